package payment

import (
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/payprovider"
	"triprize/internal/platform/postgres"
)

// Dispute is a dispute of a charge. Nothing is released because of one.
type Dispute struct {
	ID         string `json:"id"`
	Status     string `json:"status"`
	Reason     string `json:"reason"`
	Refundable bool   `json:"refundable"` // the bank has not the money, so the charge can be refunded
	payprovider.Disputed
}

// HoldsMoney reports whether the bank has the money of the charge, or has given it back to
// the buyer: a refund would pay twice.
func (d *Dispute) HoldsMoney() bool { return d != nil && !d.Refundable }

const disputeJSON = `json_build_object('id', d.id, 'status', d.status, 'reason', d.reason, 'refundable', d.refundable,
	'amount', d.amount, 'currency', d.currency, 'fee', d.fee, 'fee_currency', d.fee_currency)`

// ToldDispute is what an event tells of a dispute, and what is stored of it.
type ToldDispute struct {
	Dispute
	PurchaseID uuid.UUID
	At         time.Time // when the event was made, by the provider's clock

	Newer     bool     // set by QueueDispute: what was stored is older, or nothing was
	Closed    bool     // if newer
	Before    *Dispute // what was stored, if newer; nil: nothing
	WasClosed bool
}

// QueueDispute stores what is told of a dispute of a payment that is locked, unless what is
// stored is newer: of a higher rank, or of the same rank and told later. When both are equal
// it is the one that forbids a refund, then the one with the larger fee.
func QueueDispute(b *pgx.Batch, told *ToldDispute) {
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

// QueueDisputed notes with payments which of their disputes counts: one that forbids a refund
// before others, an open one before one that is closed, the one that was told last. It adds up
// those that are lost, in the currency of the payment. It is no
// move of the payment, so its version stays.
func QueueDisputed(b *pgx.Batch, purchases []uuid.UUID) {
	b.Queue(`
		UPDATE payments p SET disputed_at = coalesce(p.disputed_at, clock_timestamp()), dispute = (
			SELECT `+disputeJSON+` FROM disputes d WHERE d.purchase_id = p.purchase_id
			ORDER BY d.refundable, d.closed, d.told_at DESC, d.id LIMIT 1),
		    amount_disputed = (SELECT coalesce(sum(d.amount), 0) FROM disputes d WHERE d.purchase_id = p.purchase_id AND d.status = 'lost' AND d.currency = p.currency)
		WHERE p.purchase_id = ANY($1)`, purchases).
		Exec(postgres.Exactly(len(purchases), "disputed payments"))
}
