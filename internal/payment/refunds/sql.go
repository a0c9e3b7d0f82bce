package refunds

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"triprize/internal/domain/access"
	"triprize/internal/domain/fault"
	"triprize/internal/domain/money"
	"triprize/internal/lease"
	"triprize/internal/payment"
	"triprize/internal/platform/postgres"
)

// debt is how much of what a card purchase r.purchase_id has paid is to be refunded: the price
// of what was cancelled in part, while it keeps the rest, otherwise all.
const debt = `coalesce((SELECT CASE WHEN p.state = 'completed' THEN p.amount - (SELECT sum(i.price) FROM purchase_items i WHERE i.purchase_id = p.id)::bigint ELSE y.received END
	FROM payments y JOIN purchases p ON p.id = y.purchase_id WHERE y.purchase_id = r.purchase_id), 0)`

// givenBack is what refunds of the purchase give back beside the refund r, ours and others', and
// givenBackThere what they do at the provider.
const (
	givenBack      = givenBackBy + `'pending', 'requires_action', 'succeeded', 'resolved')), 0)::bigint`
	givenBackThere = givenBackBy + `'pending', 'requires_action', 'succeeded')), 0)::bigint`
	givenBackBy    = `coalesce((SELECT sum(o.amount) FROM refunds o WHERE o.purchase_id = r.purchase_id AND o.id <> r.id AND o.state IN (`
)

// leftSQL is how much is left of the debt for a refund r.
const leftSQL = `(` + debt + ` - ` + givenBack + `)`

// beingMade is the condition that another refund of the purchase than r is just being made: r waits
// for it, as both would ask for the same money.
const beingMade = `EXISTS (SELECT FROM refunds o WHERE o.purchase_id = r.purchase_id AND o.id <> r.id AND o.state = 'open' AND o.attempt > 0)`

// remaining is how much money remains for a card refund. Less than nothing: more was
// given back than was to be.
type remaining struct {
	Debt   money.Amount // of what is to be refunded
	Charge money.Amount // of the charge, at the provider: it refuses more
	Waits  bool         // for another refund of the purchase, which is just being made
}

// remainingOf returns how much money remains for a card refund.
func remainingOf(ctx context.Context, db postgres.DB, id uuid.UUID) (r remaining, err error) {
	err = db.QueryRow(ctx, `
		SELECT `+leftSQL+`, coalesce((SELECT received FROM payments WHERE purchase_id = r.purchase_id), 0) - `+givenBackThere+`, `+beingMade+`
		FROM refunds r WHERE id = $1`, id).Scan(&r.Debt, &r.Charge, &r.Waits)
	return r, fault.At(err, "refunds.remainingOf(%s)", id)
}

// queueWrite writes what a worker has found out about a card refund: amount, state, attempt, the
// provider's id, failure, faults, and whether it is stuck. The batch fails with [lease.ErrFenced] unless the refund
// still has the version of r. A further attempt is refused in the same way when it would give
// back more than is left, or while another refund of the purchase is being made, and a smaller
// amount when more is left. keep is for how long the
// lease is renewed; with 0 it is released, and is due after next, or not
// before an event comes.
// attempt_at and asked are set when the attempt grows. What was resolved by hand stays so.
//
// One that has succeeded has no failure. After the commit the refund has r.Version + 1.
func queueWrite(b *pgx.Batch, r *payment.Refund, keep time.Duration, next *time.Duration) {
	if r.State == payment.RefundSucceeded {
		r.Failure = nil
	}
	sql, args := payment.RefundLeases.Write(r.Item(), lease.Handover{Keep: keep, Next: next, Seen: r.Wakes}, `
		    state = $6, attempt = $7, attempt_at = CASE WHEN attempt < $7 THEN clock_timestamp() ELSE attempt_at END,
		    asked = CASE WHEN attempt < $7 THEN $12::bigint ELSE asked END, provider_id = $8, failure = $9, faults = $10, stuck = $11, amount = $12,
		    waiting_since = CASE WHEN $10::integer > 0 THEN coalesce(waiting_since, clock_timestamp()) END,
		    finished_at = CASE WHEN $6 IN ('succeeded', 'resolved') THEN coalesce(finished_at, clock_timestamp()) END`,
		` AND (state = 'resolved') = ($6 = 'resolved') AND (attempt = $7 OR $12::bigint <= `+leftSQL+` AND NOT `+beingMade+`) AND (amount <= $12 OR $12 >= `+leftSQL+`)`,
		r.State, r.Attempt, r.ProviderID, r.Failure, r.Faults, r.Stuck, int64(r.Amount))
	b.Queue(sql, args...).Exec(func(tag pgconn.CommandTag) error { return lease.Fenced(r.Item(), tag, 1) })
}

// write is queueWrite for a write that stands alone. It counts up r.Version.
func write(ctx context.Context, db postgres.DB, r *payment.Refund, keep time.Duration, next *time.Duration) error {
	var b pgx.Batch
	queueWrite(&b, r, keep, next)
	if err := db.SendBatch(ctx, &b).Close(); err != nil {
		return fmt.Errorf("refunds.write: %w", err)
	}
	r.Version++
	return nil
}

// lock locks a refund and reads it, in a later statement. It returns a not-found Error
// when there is none.
func lock(ctx context.Context, tx pgx.Tx, who access.Grant, id uuid.UUID) (payment.Refund, error) {
	if _, err := tx.Exec(ctx, `SELECT FROM refunds WHERE id = $1 AND ($2::text IS NULL OR client = $2) FOR NO KEY UPDATE`, id, who.Client()); err != nil {
		return payment.Refund{}, fmt.Errorf("refunds.lock(%s): %w", id, err)
	}
	return payment.GetRefund(ctx, tx, who, id)
}

// queueRetry opens a refund again that the provider has refused. The key of the next
// attempt is stored with it. A worker that still has the refund is fenced.
func queueRetry(b *pgx.Batch, id uuid.UUID) {
	b.Queue(`
		UPDATE refunds r
		SET state = 'open', version = version + 1, lease_until = NULL, due_at = clock_timestamp(), attempt = attempt + 1,
		    attempt_at = clock_timestamp(), asked = amount, provider_id = NULL, failure = NULL, faults = 0, stuck = false, waiting_since = NULL
		WHERE id = $1 AND method = 'card' AND number IS NOT NULL AND state IN ('failed', 'canceled')
		  AND NOT `+beingMade, id).
		Exec(exactly(id, "the provider has not rejected the refund, or another refund of the purchase is being made"))
}

// queueWake makes a stuck refund due now. The worker that has it checks it again when it
// is done.
func queueWake(b *pgx.Batch, id uuid.UUID) {
	b.Queue(`
		UPDATE refunds SET `+lease.Woken+`
		WHERE id = $1 AND method = 'card' AND stuck AND state IN ('open', 'pending', 'requires_action')`, id).
		Exec(exactly(id, "the refund is not stuck"))
}

// resolvable is the condition of refunds that can be resolved by hand.
const resolvable = `number IS NOT NULL AND (method = 'external' AND state = 'listed' OR method = 'card' AND state IN ('failed', 'canceled')
		  OR method = 'card' AND stuck AND state IN ('open', 'pending', 'requires_action') AND (lease_until IS NULL OR lease_until <= clock_timestamp()))`

// resolved are the assignments that resolve a refund r: $1 and $2 say by whom and why. One by card
// is then about what others have left: they may be what was done by hand, and if one fails later
// its money must be owed again. An attempt may have been made at the provider: it is due until the
// refunds of the intent are listed.
const resolved = `amount = CASE WHEN method = 'card' THEN greatest(least(amount, ` + leftSQL + `), 0) ELSE amount END,
		    provider_id = CASE WHEN method <> 'card' OR amount <= ` + leftSQL + ` THEN provider_id END,
		    state = 'resolved', version = version + 1, lease_until = NULL, due_at = CASE WHEN method = 'card' AND attempt > 0 THEN clock_timestamp() END,
		    faults = 0, stuck = false, waiting_since = NULL, resolved_by = $1, resolve_reason = $2,
		    finished_at = clock_timestamp()`

// queueResolve notes that a refund was made by hand, by whom and why: one that was
// listed, one that the provider has refused, or one that is stuck and that no worker has:
// a worker could still make that one. A worker that still has it is fenced.
func queueResolve(b *pgx.Batch, id uuid.UUID, by, reason string) {
	b.Queue(`UPDATE refunds r SET `+resolved+` WHERE id = $3 AND `+resolvable, by, reason, id).
		Exec(exactly(id, "only a refund that is listed, or whose waiting_for is operator and that no worker has, can be resolved by hand"))
}

// resolveOfCampaign is [queueResolve] for up to limit refunds of a campaign that were paid by one method.
// It passes over those that another transaction has locked, and resolves one card refund of a purchase: what
// is left for the next one depends on that. It returns the purchase of each, and whether
// there are more.
func resolveOfCampaign(ctx context.Context, tx pgx.Tx, who access.Grant, campaignID uuid.UUID, method payment.RefundMethod, by, reason string, limit int) (purchases []uuid.UUID, more bool, err error) {
	purchases, err = postgres.Collect(ctx, tx, pgx.RowTo[uuid.UUID], `
		WITH chosen AS MATERIALIZED (
			SELECT id, purchase_id FROM refunds WHERE campaign_id = $3 AND method = $4 AND ($6::text IS NULL OR client = $6) AND `+resolvable+` ORDER BY id LIMIT $5 FOR NO KEY UPDATE SKIP LOCKED)
		UPDATE refunds r SET `+resolved+` WHERE id = ANY(ARRAY(SELECT DISTINCT ON (CASE WHEN $4 = 'card' THEN purchase_id ELSE id END) id FROM chosen ORDER BY CASE WHEN $4 = 'card' THEN purchase_id ELSE id END, id)) RETURNING purchase_id`, by, reason, campaignID, string(method), limit, who.Client())
	if err != nil {
		return nil, false, fmt.Errorf("refunds.resolveOfCampaign(%s): %w", campaignID, err)
	}
	err = tx.QueryRow(ctx, `SELECT EXISTS (SELECT FROM refunds WHERE campaign_id = $1 AND method = $2 AND ($3::text IS NULL OR client = $3) AND `+resolvable+`)`, campaignID, string(method), who.Client()).Scan(&more)
	return purchases, more, fault.At(err, "refunds.resolveOfCampaign(%s)", campaignID)
}

// exactly makes a guard that does not hold a state-conflict Error.
func exactly(id uuid.UUID, message string) func(pgconn.CommandTag) error {
	return func(tag pgconn.CommandTag) error {
		if tag.RowsAffected() != 1 {
			return fault.New(fault.StateConflict, "refund %s: %s", id, message)
		}
		return nil
	}
}
