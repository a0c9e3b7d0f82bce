package cards

import (
	"context"
	"slices"

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
		isOurs := slices.ContainsFunc(rows[f.PurchaseID], func(r payment.Refund) bool {
			work.refunded[f.PurchaseID] = work.refunded[f.PurchaseID] || r.Reason != payment.RefundOutOfBand
			return r.Reason != payment.RefundOutOfBand && (f.ourID == r.ID.String() || r.State == payment.RefundResolved)
		})
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
