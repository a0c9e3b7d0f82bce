package payment

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"triprize/internal/domain/fault"
	"triprize/internal/lease"
	"triprize/internal/platform/postgres"
)

// BlockedReason is why a payment is blocked: it waits for more than its buyer, its method or a time.
type BlockedReason string

// The reasons.
const (
	WaitsForOperator BlockedReason = "operator" // the provider says what cannot be, refuses the key, or has not answered for long
	WaitsForKey      BlockedReason = "key"      // cards are switched off
	WaitsForAnswer   BlockedReason = "answer"   // a timeout or a fault of the provider: it may have been done
	WaitsForProvider BlockedReason = "provider" // it is not available
	WaitsForTurn     BlockedReason = "turn"     // it is busy
)

var blockedTexts = map[BlockedReason]string{
	WaitsForOperator: "the payment waits for an operator",
	WaitsForKey:      "cards are disabled: no key of a payment provider is set",
	WaitsForAnswer:   "the payment provider does not respond",
	WaitsForProvider: "the payment provider is not available",
	WaitsForTurn:     "the payment provider is busy",
}

// Text returns the reason as people read it.
func (w BlockedReason) Text() string { return blockedTexts[w] }

// unblocked are the assignments of a payment that continues.
const unblocked = `faults = 0, waiting_for = NULL, waiting_since = NULL`

// WaitsFor returns who blocks the payment: an operator, the key or the provider. Empty: it waits for
// nothing but its buyer, its method or a time.
func (p *Payment) WaitsFor() BlockedReason {
	switch reason := postgres.ValueOf(p.WaitingFor); reason {
	case "", WaitsForOperator, WaitsForKey:
		return reason
	}
	return WaitsForProvider
}

// Reason returns why the payment waits, for operators: what the provider has said, if it
// said something. Nil: it does not wait.
func (p *Payment) Reason() *string {
	if p.WaitingFor == nil {
		return nil
	}
	if p.LastError != nil {
		return p.LastError
	}
	text := p.WaitingFor.Text()
	return &text
}

// waiterSQL is WaitsFor in SQL.
const waiterSQL = `CASE WHEN waiting_for IN ('operator', 'key') THEN waiting_for ELSE 'provider' END`

// Waiting returns payments that wait for a waiter (empty: for any), in the order of their
// purchases, after the given one (zero: from the start).
func Waiting(ctx context.Context, db postgres.DB, waiter BlockedReason, after uuid.UUID, limit int) ([]Payment, error) {
	list, err := postgres.Collect(ctx, db, scan, `
		SELECT `+columns+` FROM payments p
		WHERE waiting_for IS NOT NULL AND ($1 = '' OR `+waiterSQL+` = $1) AND ($2::uuid IS NULL OR purchase_id > $2)
		ORDER BY purchase_id LIMIT $3`, string(waiter), postgres.Nullable(after), limit)
	return list, fault.At(err, "payment.Waiting(%s)", waiter)
}

// CountWaiting counts the payments that wait, by what for.
func CountWaiting(ctx context.Context, db postgres.DB) (counts map[BlockedReason]int, err error) {
	counts = map[BlockedReason]int{WaitsForOperator: 0, WaitsForKey: 0, WaitsForProvider: 0}
	var waiter BlockedReason
	var n int
	err = postgres.Scan(ctx, db, func() { counts[waiter] = n }, []any{&waiter, &n}, `SELECT `+waiterSQL+`, count(*) FROM payments WHERE waiting_for IS NOT NULL GROUP BY 1`)
	return counts, fault.At(err, "payment.CountWaiting")
}

// QueueWaiting notes why open payments wait, for people. It is no move of theirs, so
// their versions stay.
func QueueWaiting(b *pgx.Batch, purchases []uuid.UUID, reason BlockedReason) {
	b.Queue(`SELECT FROM payments WHERE purchase_id = ANY($1) ORDER BY purchase_id FOR NO KEY UPDATE`, purchases) // the UPDATE alone has no order
	b.Queue(`UPDATE payments SET waiting_for = $2, waiting_since = coalesce(waiting_since, clock_timestamp()), last_error = NULL WHERE purchase_id = ANY($1) AND finished_at IS NULL`, purchases, reason)
}

// QueueWake makes a payment that waits due at once.
func QueueWake(b *pgx.Batch, purchaseID uuid.UUID) {
	b.Queue(`UPDATE payments SET `+lease.Woken+` WHERE purchase_id = $1 AND waiting_for IS NOT NULL`, purchaseID)
}

// Lock locks a payment and reads it, in a later statement. It returns a not-found Error
// when the purchase has none.
func Lock(ctx context.Context, tx pgx.Tx, purchaseID uuid.UUID) (Payment, error) {
	if _, err := tx.Exec(ctx, `SELECT FROM payments WHERE purchase_id = $1 FOR NO KEY UPDATE`, purchaseID); err != nil {
		return Payment{}, fmt.Errorf("payment.Lock(%s): %w", purchaseID, err)
	}
	p, ok, err := Get(ctx, tx, purchaseID)
	if err == nil && !ok {
		err = fault.New(fault.NotFound, "there is no card payment of purchase %s", purchaseID)
	}
	return p, err
}

// Finding is what an operator has found out about a payment, at the provider.
type Finding string

// The findings.
const (
	FoundPaid   Finding = "paid"   // all of it: it is captured, also when the provider has not said so
	FoundUnpaid Finding = "unpaid" // nothing, or what was is refunded already
)

// QueueResolve ends a payment by hand. A paid one is captured, and an unpaid one has
// ended: a transaction of the sale decides what becomes of it, as of any other, and it is
// due at once for that. One that is cancelled already and was not paid stays so, and is
// checked once more: an event may just have reported money.
//
// The batch fails with a state-conflict Error unless the payment still has the version of
// p, waits for an operator, can no longer be confirmed, and no worker has it.
func QueueResolve(b *pgx.Batch, p *Payment, found Finding, by, reason string) {
	b.Queue(`
		UPDATE payments
		SET version = version + 1, lease_until = NULL, next_action = NULL, `+unblocked+`,
		    resolved_as = $3, resolved_by = $4, resolve_reason = $5,
		    phase = CASE WHEN $3 = 'paid' THEN 'captured' WHEN phase = 'cancelled' THEN phase ELSE 'ended' END,
		    received = CASE WHEN $3 = 'paid' THEN amount ELSE received END,
		    ending = CASE WHEN $3 = 'paid' THEN ending ELSE coalesce(ending, 'unpaid') END,
		    due_at = clock_timestamp(),
		    finished_at = CASE WHEN $3 = 'unpaid' AND phase = 'cancelled' THEN finished_at END
		WHERE purchase_id = $1 AND version = $2 AND waiting_for = 'operator' AND intent_id IS NOT NULL AND NOT (`+beforeCapture+`)
		  AND (lease_until IS NULL OR lease_until <= clock_timestamp())`, p.PurchaseID, p.Version, string(found), by, reason).
		Exec(OrConflict("the payment has changed, or a worker is checking it with the provider; retry in a moment"))
}

// OrConflict is a state-conflict Error when a statement has not changed its row.
func OrConflict(format string, values ...any) func(pgconn.CommandTag) error {
	return func(tag pgconn.CommandTag) error {
		if tag.RowsAffected() != 1 {
			return fault.New(fault.StateConflict, format, values...)
		}
		return nil
	}
}
