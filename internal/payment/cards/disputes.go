package cards

import (
	"context"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/payment"
	"triprize/internal/platform/postgres"
)

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

func (w *eventWork) queueDisputes(b *pgx.Batch) {
	if len(w.disputes) > 0 {
		queueDisputed(b, w.disputes)
	}
	if len(w.steps) > 0 {
		payment.QueueSteps(b, w.steps...)
	}
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
