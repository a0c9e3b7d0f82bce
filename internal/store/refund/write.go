package refund

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"triprize/internal/domain/fault"
	"triprize/internal/platform/postgres"
)

// Claim gives a card refund to a worker for lease. ok is false when it has changed since
// ref was made, another worker has it, or it was resolved by hand. From the claim on the
// refund is due when the lease ends, so a worker that dies leaves nothing behind.
func Claim(ctx context.Context, db postgres.DB, ref Ref, lease time.Duration) (r Refund, ok bool, err error) {
	r, err = postgres.CollectOne(ctx, db, scan, `
		UPDATE refunds r
		SET version = version + 1, lease_until = clock_timestamp() + $3 * interval '1 second', due_at = clock_timestamp() + $3 * interval '1 second'
		WHERE id = $1 AND version = $2 AND method = 'card' AND state <> 'resolved' AND (lease_until IS NULL OR lease_until <= clock_timestamp())
		RETURNING `+columns, ref.ID, ref.Version, lease.Seconds())
	if errors.Is(err, pgx.ErrNoRows) {
		return Refund{}, false, nil
	}
	if err != nil {
		return Refund{}, false, fmt.Errorf("refund.Claim(%s): %w", ref.ID, err)
	}
	return r, true, nil
}

// QueueWrite writes what a worker has found out about a card refund: state, attempt, the
// provider's id, failure, faults, and whether it is stuck. The batch fails with [ErrFenced] unless the refund
// still has the version of r. keep is how much longer the worker keeps it (the lease is
// renewed); with 0 it is given back, and is due after next, or not before an event comes.
// An event that came since r was claimed makes it due at once. attempt_at is set when the
// attempt grows.
//
// After the commit the refund has r.Version + 1.
func QueueWrite(b *pgx.Batch, r *Refund, keep time.Duration, next *time.Duration) {
	var dueIn *float64
	if keep > 0 {
		next = &keep
	}
	if next != nil {
		seconds := next.Seconds()
		dueIn = &seconds
	}
	b.Queue(`
		UPDATE refunds
		SET version = version + 1, state = $3, attempt = $4,
		    attempt_at = CASE WHEN attempt < $4 THEN clock_timestamp() ELSE attempt_at END,
		    provider_id = $5, failure = $6, faults = $7, stuck = $11,
		    lease_until = CASE WHEN $8::float8 > 0 THEN clock_timestamp() + $8 * interval '1 second' END,
		    due_at = CASE WHEN wakes > $9 AND $8::float8 = 0 THEN clock_timestamp() ELSE clock_timestamp() + $10::float8 * interval '1 second' END,
		    finished_at = CASE WHEN $3 = 'succeeded' THEN coalesce(finished_at, clock_timestamp()) END
		WHERE id = $1 AND version = $2 AND state <> 'resolved'`,
		r.ID, r.Version, r.State, r.Attempt, r.ProviderID, r.Failure, r.Faults, keep.Seconds(), r.Wakes, dueIn, r.Stuck).Exec(func(tag pgconn.CommandTag) error {
		if tag.RowsAffected() != 1 {
			return fmt.Errorf("refund %s: %w", r.ID, ErrFenced)
		}
		return nil
	})
}

// Write is QueueWrite for a write that stands alone. It counts up r.Version.
func Write(ctx context.Context, db postgres.DB, r *Refund, keep time.Duration, next *time.Duration) error {
	var b pgx.Batch
	QueueWrite(&b, r, keep, next)
	if err := db.SendBatch(ctx, &b).Close(); err != nil {
		return fmt.Errorf("refund.Write: %w", err)
	}
	r.Version++
	return nil
}

// TakeDue returns up to limit card refunds that are due and that no worker has, the
// oldest first. They are due again after again, if whoever takes them dies. Several
// callers at once get different refunds.
func TakeDue(ctx context.Context, db postgres.DB, again time.Duration, limit int) ([]Ref, error) {
	due, err := postgres.Collect(ctx, db, pgx.RowToStructByPos[Ref], `
		UPDATE refunds r SET due_at = clock_timestamp() + $1 * interval '1 second'
		FROM (SELECT id FROM refunds
		      WHERE due_at <= clock_timestamp() AND (lease_until IS NULL OR lease_until <= clock_timestamp())
		      ORDER BY due_at LIMIT $2 FOR NO KEY UPDATE SKIP LOCKED) d
		WHERE r.id = d.id
		RETURNING r.id, r.purchase_id, r.campaign_id, r.version`, again.Seconds(), limit)
	if err != nil {
		return nil, fmt.Errorf("refund.TakeDue: %w", err)
	}
	return due, nil
}

// Wake makes card refunds due at once, those of purchases and those with the provider's
// ids: something has happened to them there. One that succeeded can have failed since.
// What was resolved by hand stays so. The worker that has one looks at it again when it is
// done. Wake returns those it has found, and it does not change their versions.
func Wake(ctx context.Context, db postgres.DB, purchases []uuid.UUID, providerIDs []string) ([]Ref, error) {
	woken, err := postgres.Collect(ctx, db, pgx.RowToStructByPos[Ref], `
		WITH named AS (SELECT id FROM refunds WHERE purchase_id = ANY($1) UNION SELECT id FROM refunds WHERE provider_id = ANY($2)),
		     locked AS (SELECT id FROM refunds WHERE id = ANY(ARRAY(TABLE named)) ORDER BY id FOR NO KEY UPDATE)
		UPDATE refunds r SET wakes = wakes + 1, due_at = greatest(clock_timestamp(), lease_until)
		FROM locked l WHERE r.id = l.id AND r.method = 'card' AND r.state <> 'resolved'
		RETURNING r.id, r.purchase_id, r.campaign_id, r.version`, purchases, providerIDs)
	if err != nil {
		return nil, fmt.Errorf("refund.Wake: %w", err)
	}
	return woken, nil
}

// Lock locks a refund and reads it, in a later statement. It returns a not-found Error
// when there is none.
func Lock(ctx context.Context, tx pgx.Tx, id uuid.UUID) (Refund, error) {
	if _, err := tx.Exec(ctx, `SELECT FROM refunds WHERE id = $1 FOR NO KEY UPDATE`, id); err != nil {
		return Refund{}, fmt.Errorf("refund.Lock(%s): %w", id, err)
	}
	return Get(ctx, tx, id)
}

// QueueRetry opens a refund again that the provider has refused. The key of the next
// attempt is stored with it. A worker that still has the refund is fenced.
func QueueRetry(b *pgx.Batch, id uuid.UUID) {
	b.Queue(`
		UPDATE refunds
		SET state = 'open', version = version + 1, lease_until = NULL, due_at = clock_timestamp(), attempt = attempt + 1,
		    attempt_at = clock_timestamp(), provider_id = NULL, failure = NULL, faults = 0, stuck = false
		WHERE id = $1 AND method = 'card' AND state IN ('failed', 'canceled')`, id).
		Exec(exactly(id, "the provider has not refused the refund"))
}

// QueueLook makes a stuck refund due now. The worker that has it looks at it again when it
// is done.
func QueueLook(b *pgx.Batch, id uuid.UUID) {
	b.Queue(`
		UPDATE refunds SET wakes = wakes + 1, due_at = greatest(clock_timestamp(), lease_until)
		WHERE id = $1 AND method = 'card' AND stuck AND state IN ('open', 'pending', 'requires_action')`, id).
		Exec(exactly(id, "the provider does not refuse to tell of the refund"))
}

// QueueResolve notes that a refund was given back by hand, by whom and why: one that was
// listed, one that the provider has refused, or one that is stuck and that no worker has:
// a worker could still make that one. A worker that still has it is fenced.
func QueueResolve(b *pgx.Batch, id uuid.UUID, by, reason string) {
	b.Queue(`
		UPDATE refunds
		SET state = 'resolved', version = version + 1, lease_until = NULL, due_at = NULL, stuck = false, resolved_by = $2, resolve_reason = $3,
		    finished_at = clock_timestamp()
		WHERE id = $1 AND (method = 'external' AND state = 'listed' OR method = 'card' AND state IN ('failed', 'canceled')
		  OR method = 'card' AND stuck AND state IN ('open', 'pending', 'requires_action') AND (lease_until IS NULL OR lease_until <= clock_timestamp()))`,
		id, by, reason).
		Exec(exactly(id, "only a refund that is listed, or whose waiting_for is operator and that no worker has, can be resolved by hand"))
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
