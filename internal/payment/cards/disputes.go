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
	told := payment.Dispute{ID: *event.ObjectID, Status: postgres.ValueOf(event.Status), Reason: postgres.ValueOf(event.Reason), Refundable: event.Refundable}
	if event.Disputed != nil {
		told.Disputed = *event.Disputed
	}
	w.reports = append(w.reports, &disputeReport{PurchaseID: s.PurchaseID, At: event.CreatedAt, Dispute: told, event: event})
	return eventIgnored
}

// recordDisputes records disputes as they were reported. Events come in any order: one that is
// older than what is stored changes nothing. A payment may have several disputes.
func (e *Events) recordDisputes(ctx context.Context, tx pgx.Tx, w *eventWork) error {
	if len(w.reports) == 0 {
		return nil
	}
	var b pgx.Batch
	for _, told := range w.reports {
		queueDispute(&b, told)
	}
	if err := tx.SendBatch(ctx, &b).Close(); err != nil {
		return err
	}
	for _, told := range w.reports {
		if !told.Newer || told.Before != nil && *told.Before == told.Dispute {
			continue
		}
		w.outcomes[told.event.ID] = eventRecorded
		w.disputed = append(w.disputed, told.event)
		if !slices.Contains(w.disputes, told.PurchaseID) {
			w.disputes = append(w.disputes, told.PurchaseID)
		}
		if told.Before == nil || told.WasClosed && !told.Closed {
			w.steps = append(w.steps, payment.Step{PurchaseID: told.PurchaseID, Event: payment.StepDisputed, Detail: postgres.Nullable(told.Reason)})
		}
		if told.Closed && !(told.WasClosed && told.Before.Status == told.Status) {
			w.steps = append(w.steps, payment.Step{PurchaseID: told.PurchaseID, Event: payment.StepDisputeClosed, Detail: postgres.Nullable(told.Status)})
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
func queueDispute(b *pgx.Batch, told *disputeReport) {
	b.Queue(`
		INSERT INTO disputes AS d (id, purchase_id, status, reason, refundable, told_at, amount, currency, fee, fee_currency)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
		ON CONFLICT (id) DO UPDATE SET status = excluded.status, reason = excluded.reason, refundable = excluded.refundable, told_at = excluded.told_at,
		    amount = excluded.amount, currency = excluded.currency, fee = excluded.fee, fee_currency = excluded.fee_currency
		WHERE d.purchase_id = excluded.purchase_id
		  AND (excluded.rank, excluded.told_at, NOT excluded.refundable, excluded.fee) > (d.rank, d.told_at, NOT d.refundable, d.fee)
		RETURNING closed, (SELECT `+disputeJSON+` FROM disputes d WHERE d.id = $1), coalesce((SELECT d.closed FROM disputes d WHERE d.id = $1), false)`,
		told.ID, told.PurchaseID, told.Status, told.Reason, told.Refundable, told.At, int64(told.Amount), told.Currency, int64(told.Fee), told.FeeCurrency).
		Query(func(rows pgx.Rows) error {
			for rows.Next() {
				if err := rows.Scan(&told.Closed, &told.Before, &told.WasClosed); err != nil {
					return err
				}
				told.Newer = true
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
