package payment

import (
	"context"
	"fmt"
	"time"

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

// EventsWait returns for how long the oldest event waits to be handled; 0: there is none.
func EventsWait(ctx context.Context, db postgres.DB) (wait time.Duration, err error) {
	err = db.QueryRow(ctx, `
		SELECT coalesce((SELECT clock_timestamp() - received_at FROM payment_events WHERE handled_at IS NULL ORDER BY received_at LIMIT 1), interval '0')`).
		Scan(&wait)
	if err != nil {
		return 0, fmt.Errorf("payment.EventsWait: %w", err)
	}
	return max(wait, 0), nil
}

// DeleteEvents deletes up to limit handled events that were received longer than keep
// ago, from a moment on (nil: from the beginning). It returns the cursor.
func DeleteEvents(ctx context.Context, db postgres.DB, keep time.Duration, from *time.Time, limit int) (deleted int, next *time.Time, err error) {
	err = db.QueryRow(ctx, `
		WITH old AS MATERIALIZED (
			SELECT id, received_at FROM payment_events
			WHERE received_at >= coalesce($2, '-infinity'::timestamptz) AND received_at < statement_timestamp() - $3 * interval '1 second'
			  AND handled_at IS NOT NULL
			ORDER BY received_at LIMIT $1 FOR UPDATE SKIP LOCKED
		), deleted AS (
			DELETE FROM payment_events WHERE id = ANY(ARRAY(SELECT id FROM old))
		)
		SELECT count(*), coalesce(max(received_at), $2) FROM old`, limit, from, keep.Seconds()).Scan(&deleted, &next)
	if err != nil {
		return 0, from, fmt.Errorf("payment.DeleteEvents: %w", err)
	}
	return deleted, next, nil
}
