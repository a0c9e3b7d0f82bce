package cards

import (
	"context"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/payprovider"
	"triprize/internal/payment"
	"triprize/internal/payment/reconciliation"
	"triprize/internal/payment/refunds"
	"triprize/internal/platform/postgres"
)

// Our knowledge of a purchase whose money was refunded by others, as the metric says it.
const (
	refundNone  = "none"  // it is kept here: the books differ
	refundKnown = "known" // it is refunded here, too
)

// outOfBand is what a batch of events reports of a refund that is not ours.
type outOfBand struct {
	refunds.OutOfBand
	ourID  string // in its metadata
	events []string
}

// recordOutOfBand records the refunds of our payments that others have made at the
// provider. Ours, if there is one, asks for what is left when it is made.
//
// A bank can send the money back even later: then what we have to refund is owed again.
//
// Where one of ours was resolved by hand, and of a refund under our id, events are not believed: they
// come in any order. Ours was woken, and its worker lists what is there: the provider's id decides
// whether a refund is ours, or was made beside it.
func (e *Events) recordOutOfBand(ctx context.Context, tx pgx.Tx, work *eventWork, events []storedEvent) error {
	found := work.outOfBandOf(events)
	if len(found) == 0 {
		return nil
	}
	var purchases []uuid.UUID
	for _, f := range found {
		purchases = append(purchases, f.PurchaseID)
	}
	rows, err := payment.RefundsOfPurchases(ctx, tx, purchases)
	if err != nil {
		return err
	}
	work.refunded = make(map[uuid.UUID]bool)
	var all []refunds.OutOfBand
	for _, f := range found {
		isOurs := false
		for _, r := range rows[f.PurchaseID] {
			if r.Reason != payment.RefundOutOfBand {
				work.refunded[f.PurchaseID] = true
				isOurs = isOurs || f.ourID == r.ID.String() || r.State == payment.RefundResolved
			}
		}
		if isOurs {
			continue
		}
		all = append(all, f.OutOfBand)
		for _, id := range f.events {
			if work.outcomes[id] == eventIgnored {
				work.outcomes[id] = eventRecorded
			}
		}
	}
	if len(all) > 0 {
		work.outOfBand, err = refunds.RecordOutOfBand(ctx, tx, all)
	}
	return err
}

// logOutOfBand counts and logs what a batch has recorded, after its commit.
func (e *Events) logOutOfBand(w *eventWork) {
	for _, f := range w.outOfBand {
		if f.Fresh {
			known := refundNone
			if w.refunded[f.PurchaseID] {
				known = refundKnown
			}
			e.metrics.others.WithLabelValues(known).Inc()
			e.logger.Error("a payment was refunded at the provider, and not by us", "purchase", f.PurchaseID, "refund", f.ProviderID, "amount", int64(f.Amount),
				"currency", f.Currency, "our_refund", known)
		}
		if f.Fails {
			e.logger.Warn("a refund that is not ours has failed at the provider", "purchase", f.PurchaseID, "refund", f.ProviderID, "state", f.State)
		}
	}
}

// outOfBandOf reads the refunds that are not ours from events, by the provider's id. Events
// come in any order, so one that has failed stays so.
func (w *eventWork) outOfBandOf(events []storedEvent) map[string]*outOfBand {
	found := make(map[string]*outOfBand)
	for _, event := range events {
		reported, ourID, ok := w.readOutOfBand(event)
		if !ok {
			continue
		}
		f := found[reported.ProviderID]
		if f == nil {
			f = &outOfBand{OutOfBand: reported, ourID: ourID}
			found[reported.ProviderID] = f
		}
		f.events = append(f.events, event.ID)
		if reported.State.Refused() || f.State != payment.RefundSucceeded && !f.State.Refused() {
			f.State = reported.State
		}
		f.Made = f.Made || reported.Made
	}
	return found
}

// readOutOfBand reads the refund that an event is about, if it is of a payment of ours whose
// money was captured, with the id of our own refund if its metadata have one. An event that comes
// before the capture is in our books is processed again with it.
func (w *eventWork) readOutOfBand(event storedEvent) (f refunds.OutOfBand, ourID string, ok bool) {
	s := w.subjectOf(event)
	if w.about(event) != payprovider.AboutRefund || s == nil || postgres.ValueOf(s.IntentID) != postgres.ValueOf(event.IntentID) {
		return f, "", false
	}
	reported, ok := w.reader.RefundIn([]byte(event.Payload))
	state := payment.RefundStateOf(payprovider.RefundStatus(postgres.ValueOf(event.Status)))
	if !ok || state == "" || reported.Amount <= 0 {
		return f, "", false
	}
	if s.Received == 0 {
		w.outcomes[event.ID] = eventUncaptured
		return f, "", false
	}
	return refunds.OutOfBand{ProviderID: reported.ID, PurchaseID: s.PurchaseID, Amount: reported.Amount, Currency: reported.Currency, State: state,
		Made: !state.Refused(), How: "and not by us"}, reported.Metadata[payprovider.RefundKey], true
}

// recordUnknown records payments that this installation has made at the provider, with money on
// them, and that our books do not know: after a restore, or a failover that has lost what
// was committed last. One that ended without money is no discrepancy. Others use the
// account, too: theirs are ignored.
func (e *Events) recordUnknown(ctx context.Context, tx pgx.Tx, work *eventWork) error {
	if len(work.unknown) == 0 {
		return nil
	}
	ours, err := reconciliation.Installation(ctx, tx)
	if err != nil {
		return err
	}
	var open, over []reconciliation.Discrepancy
	for _, event := range work.unknown {
		in, ok := e.reader.IntentIn([]byte(event.Payload))
		if !ok || in.Metadata[payprovider.InstallationKey] != ours.String() {
			continue
		}
		switch in.Status {
		case payprovider.Succeeded, payprovider.RequiresCapture, payprovider.Processing:
			open = append(open, unknownHere(in))
		case payprovider.Canceled:
			over = append(over, unknownHere(in))
		default:
			continue
		}
		work.outcomes[event.ID] = eventRecorded
	}
	if _, err := reconciliation.RecordReported(ctx, tx, over, true); err != nil {
		return err
	}
	work.missing, err = reconciliation.RecordReported(ctx, tx, open, false)
	return err
}

func unknownHere(in payprovider.Intent) reconciliation.Discrepancy {
	amount := int64(in.Amount)
	d := reconciliation.Discrepancy{Kind: reconciliation.UnknownHere, ObjectID: in.ID, ThereAmount: &amount, ThereCurrency: &in.Currency,
		Detail: "this installation created the payment; it is " + string(in.Status) + " at the provider, and we have no record of it"}
	if id, err := uuid.Parse(in.Metadata[payprovider.PurchaseKey]); err == nil {
		d.PurchaseID = &id
	}
	return d
}

// logUnknown logs what a batch has recorded, after its commit.
func (e *Events) logUnknown(w *eventWork) {
	for _, d := range w.missing {
		e.logger.Error("a payment of ours at the provider is not in our books", "discrepancy", d.ID, "intent", d.ObjectID, "purchase", d.PurchaseID,
			"amount", *d.ThereAmount, "currency", *d.ThereCurrency)
	}
}

// disputeReport is what an event reports of a dispute, and what is stored of it.
type disputeReport struct {
	payment.Dispute
	PurchaseID uuid.UUID
	At         time.Time // when the event was made, by the provider's clock

	Newer     bool             // set by QueueDispute: what was stored is older, or nothing was
	Closed    bool             // if newer
	Before    *payment.Dispute // what was stored, if newer; nil: nothing
	WasClosed bool

	event storedEvent
}

// takeDispute keeps what an event reports of a dispute for recordDisputes.
func (w *eventWork) takeDispute(event storedEvent) eventOutcome {
	s := w.subjectOf(event)
	if s == nil || event.ObjectID == nil {
		w.disputed = append(w.disputed, event) // on an account that others use, too, or of a payment that is forgotten
		return eventIgnored
	}
	reported := payment.Dispute{ID: *event.ObjectID, Status: postgres.ValueOf(event.Status), Reason: postgres.ValueOf(event.Reason), Refundable: event.Refundable}
	if event.Disputed != nil {
		reported.Disputed = *event.Disputed
	}
	w.reports = append(w.reports, &disputeReport{PurchaseID: s.PurchaseID, At: event.CreatedAt, Dispute: reported, event: event})
	return eventIgnored
}

// recordDisputes records disputes as they were reported. Events come in any order: one that is
// older than what is stored changes nothing. A payment may have several disputes.
func (e *Events) recordDisputes(ctx context.Context, tx pgx.Tx, w *eventWork) error {
	if len(w.reports) == 0 {
		return nil
	}
	var b pgx.Batch
	for _, reported := range w.reports {
		queueDispute(&b, reported)
	}
	if err := tx.SendBatch(ctx, &b).Close(); err != nil {
		return err
	}
	for _, reported := range w.reports {
		if !reported.Newer || reported.Before != nil && *reported.Before == reported.Dispute {
			continue
		}
		w.outcomes[reported.event.ID] = eventRecorded
		w.disputed = append(w.disputed, reported.event)
		if !slices.Contains(w.disputes, reported.PurchaseID) {
			w.disputes = append(w.disputes, reported.PurchaseID)
		}
		if reported.Before == nil || reported.WasClosed && !reported.Closed {
			w.steps = append(w.steps, payment.Step{PurchaseID: reported.PurchaseID, Event: payment.StepDisputed, Detail: postgres.Nullable(reported.Reason)})
		}
		if reported.Closed && !(reported.WasClosed && reported.Before.Status == reported.Status) {
			w.steps = append(w.steps, payment.Step{PurchaseID: reported.PurchaseID, Event: payment.StepDisputeClosed, Detail: postgres.Nullable(reported.Status)})
		}
	}
	return nil
}

const disputeJSON = `json_build_object('id', d.id, 'status', d.status, 'reason', d.reason, 'refundable', d.refundable,
	'amount', d.amount, 'currency', d.currency, 'fee', d.fee, 'fee_currency', d.fee_currency)`

// queueDispute stores what is reported of a dispute of a payment that is locked, unless what is
// stored is newer: of a higher rank, or of the same rank and reported later. When both are equal
// it is the one that forbids a refund, then the one with the larger fee.
func queueDispute(b *pgx.Batch, reported *disputeReport) {
	b.Queue(`
		INSERT INTO disputes AS d (id, purchase_id, status, reason, refundable, told_at, amount, currency, fee, fee_currency)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
		ON CONFLICT (id) DO UPDATE SET status = excluded.status, reason = excluded.reason, refundable = excluded.refundable, told_at = excluded.told_at,
		    amount = excluded.amount, currency = excluded.currency, fee = excluded.fee, fee_currency = excluded.fee_currency
		WHERE d.purchase_id = excluded.purchase_id
		  AND (excluded.rank, excluded.told_at, NOT excluded.refundable, excluded.fee) > (d.rank, d.told_at, NOT d.refundable, d.fee)
		RETURNING closed, (SELECT `+disputeJSON+` FROM disputes d WHERE d.id = $1), coalesce((SELECT d.closed FROM disputes d WHERE d.id = $1), false)`,
		reported.ID, reported.PurchaseID, reported.Status, reported.Reason, reported.Refundable, reported.At, int64(reported.Amount), reported.Currency, int64(reported.Fee), reported.FeeCurrency).
		Query(func(rows pgx.Rows) error {
			for rows.Next() {
				if err := rows.Scan(&reported.Closed, &reported.Before, &reported.WasClosed); err != nil {
					return err
				}
				reported.Newer = true
			}
			return rows.Err()
		})
}

// queueDisputed notes with payments which of their disputes counts: one that forbids a refund
// before others, an open one before one that is closed, the one that was reported last. It adds up
// those that are lost, in the currency of the payment. It is no
// move of the payment, so its version stays.
func queueDisputed(b *pgx.Batch, purchases []uuid.UUID) {
	b.Queue(`
		UPDATE payments p SET disputed_at = coalesce(p.disputed_at, clock_timestamp()), dispute = (
			SELECT `+disputeJSON+` FROM disputes d WHERE d.purchase_id = p.purchase_id
			ORDER BY d.refundable, d.closed, d.told_at DESC, d.id LIMIT 1),
		    amount_disputed = (SELECT coalesce(sum(d.amount), 0) FROM disputes d WHERE d.purchase_id = p.purchase_id AND d.status = 'lost' AND d.currency = p.currency)
		WHERE p.purchase_id = ANY($1)`, purchases).
		Exec(postgres.Exactly(len(purchases), "disputed payments"))
}
