package payment

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"triprize/internal/platform/postgres"
)

// QueueInsert stores new payments, reserved until their deadlines, which are given as
// times from now. They are due once dueIn has passed, if no task comes sooner.
func QueueInsert(b *pgx.Batch, payments []Payment, reservation, latest, dueIn time.Duration) {
	n := len(payments)
	purchases, jobs, campaigns, amounts := make([]uuid.UUID, n), make([]uuid.UUID, n), make([]uuid.UUID, n), make([]int64, n)
	currencies, methods, returns := make([]string, n), make([]string, n), make([]*string, n)
	for i, p := range payments {
		purchases[i], jobs[i], campaigns[i], amounts[i] = p.PurchaseID, p.JobID, p.CampaignID, int64(p.Amount)
		currencies[i], methods[i], returns[i] = p.Currency, p.PaymentMethod, p.ReturnURL
	}
	b.Queue(`
		INSERT INTO payments (purchase_id, job_id, campaign_id, amount, currency, payment_method, return_url, deadline, latest, due_at)
		SELECT p.*, t.now + $8 * interval '1 second', t.now + $9 * interval '1 second', t.now + $10 * interval '1 second'
		FROM unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::bigint[], $5::text[], $6::text[], $7::text[]) AS p,
		     (SELECT clock_timestamp() AS now) t`,
		purchases, jobs, campaigns, amounts, currencies, methods, returns, reservation.Seconds(), latest.Seconds(), dueIn.Seconds()).
		Exec(postgres.Exactly(n, "new payments"))
}

// Claim gives a payment to a worker for lease. ok is false when it has changed since
// ref was made, or another worker has it. From the claim on the payment is due when the
// lease ends, so a worker that dies leaves nothing behind.
//
// A payment that is reserved, and whose deadline is not over, is creating from the claim
// on: with it the key of the first attempt is stored. attempt_at is then the moment of
// the claim, lease before lease_until.
func Claim(ctx context.Context, db postgres.DB, ref Ref, lease time.Duration) (p Payment, ok bool, err error) {
	p, err = postgres.CollectOne(ctx, db, scan, `
		UPDATE payments p
		SET version = version + 1, (lease_until, due_at, phase, attempt, attempt_at) = (
			SELECT t.now + $3 * interval '1 second', t.now + $3 * interval '1 second',
			       CASE WHEN p.phase = 'reserved' AND p.deadline > t.now THEN 'creating' ELSE p.phase END,
			       CASE WHEN p.phase = 'reserved' AND p.deadline > t.now THEN p.attempt + 1 ELSE p.attempt END,
			       CASE WHEN p.phase = 'reserved' AND p.deadline > t.now THEN t.now ELSE p.attempt_at END
			FROM (SELECT clock_timestamp() AS now) t)
		WHERE purchase_id = $1 AND version = $2 AND (lease_until IS NULL OR lease_until <= clock_timestamp())
		RETURNING `+columns, ref.PurchaseID, ref.Version, lease.Seconds())
	if errors.Is(err, pgx.ErrNoRows) {
		return Payment{}, false, nil
	}
	if err != nil {
		return Payment{}, false, fmt.Errorf("payment.Claim(%s): %w", ref.PurchaseID, err)
	}
	return p, true, nil
}

// Guard is a condition of a write beside the version.
type Guard string

// The guards.
const (
	Always         Guard = ""
	BeforeDeadline Guard = ` AND deadline > clock_timestamp()` // by the database's clock, at the moment of the write
)

// QueueWrite writes what a worker has found out: phase, attempt, intent, ending, decline,
// what it waits for. The batch fails with [ErrFenced] unless the payment still has the
// version of p and the guard holds. keep is how much longer the worker keeps it (the
// lease is renewed); with 0 it is given back, and is due after next. An event that came
// since p was claimed makes it due at once. attempt_at is set when the attempt grows.
//
// After the commit the payment has p.Version + 1.
func QueueWrite(b *pgx.Batch, p *Payment, guard Guard, keep time.Duration, next *time.Duration) {
	sql, args := writing(p, guard, keep, next)
	b.Queue(sql, args...).Exec(func(tag pgconn.CommandTag) error { return p.fenced(tag, 1) })
}

// Write is QueueWrite for a write that stands alone, with its steps. It is one statement,
// so it needs no transaction around it. It counts up p.Version.
func Write(ctx context.Context, db postgres.DB, p *Payment, guard Guard, keep time.Duration, next *time.Duration, steps ...Step) error {
	sql, args := writing(p, guard, keep, next)
	rows := max(1, len(steps))
	if len(steps) > 0 {
		events, details := make([]string, len(steps)), make([]*string, len(steps))
		for i, s := range steps {
			events[i], details[i] = s.Event, s.Detail
		}
		sql = `WITH written AS (` + sql + ` RETURNING purchase_id)
			INSERT INTO payment_steps (purchase_id, event, detail)
			SELECT w.purchase_id, s.event, s.detail FROM written w CROSS JOIN unnest($19::text[], $20::text[]) WITH ORDINALITY AS s (event, detail, n) ORDER BY s.n`
		args = append(args, events, details)
	}
	tag, err := db.Exec(ctx, sql, args...)
	if err == nil {
		err = p.fenced(tag, rows)
	}
	if err != nil {
		return fmt.Errorf("payment.Write: %w", err)
	}
	p.Version++
	return nil
}

// fenced is ErrFenced unless a write has touched the rows that it names.
func (p *Payment) fenced(tag pgconn.CommandTag, rows int) error {
	if tag.RowsAffected() != int64(rows) {
		return fmt.Errorf("payment %s: %w", p.PurchaseID, ErrFenced)
	}
	return nil
}

// writing is the statement of a write, with 18 arguments.
func writing(p *Payment, guard Guard, keep time.Duration, next *time.Duration) (sql string, args []any) {
	var dueIn *float64
	if keep > 0 {
		next = &keep
	}
	if next != nil {
		seconds := next.Seconds()
		dueIn = &seconds
	}
	return `
		UPDATE payments
		SET version = version + 1, phase = $3, attempt = $4,
		    attempt_at = CASE WHEN attempt < $4 THEN clock_timestamp() ELSE attempt_at END,
		    intent_id = $5, intent_status = $6, received = $7, next_action = $8, ending = $9, uncancellable = $10, decline = $11,
		    faults = $12, waiting_for = $13, last_error = $18, deadline = least($14, latest),
		    lease_until = CASE WHEN $15::float8 > 0 THEN clock_timestamp() + $15 * interval '1 second' END,
		    due_at = CASE WHEN wakes > $16 AND $15::float8 = 0 THEN clock_timestamp() ELSE clock_timestamp() + $17::float8 * interval '1 second' END,
		    finished_at = CASE WHEN $3 IN ('settled', 'refund_due', 'cancelled') THEN coalesce(finished_at, clock_timestamp()) END
		WHERE purchase_id = $1 AND version = $2` + string(guard), []any{
			p.PurchaseID, p.Version, p.Phase, p.Attempt, p.IntentID, p.IntentStatus, int64(p.Received), p.NextAction, p.Ending, p.Uncancellable, p.Decline,
			p.Faults, p.WaitingFor, p.Deadline, keep.Seconds(), p.Wakes, dueIn, p.LastError}
}

// TakeDue returns up to limit payments that are due and that no worker has, the oldest
// first. They are due again after again, if whoever takes them dies. Several callers at
// once get different payments.
func TakeDue(ctx context.Context, db postgres.DB, again time.Duration, limit int) ([]Ref, error) {
	due, err := postgres.Collect(ctx, db, pgx.RowToStructByPos[Ref], `
		UPDATE payments p SET due_at = clock_timestamp() + $1 * interval '1 second'
		FROM (SELECT purchase_id FROM payments
		      WHERE due_at <= clock_timestamp() AND (lease_until IS NULL OR lease_until <= clock_timestamp())
		      ORDER BY due_at LIMIT $2 FOR NO KEY UPDATE SKIP LOCKED) d
		WHERE p.purchase_id = d.purchase_id
		RETURNING p.purchase_id, p.campaign_id, p.job_id, p.version`, again.Seconds(), limit)
	if err != nil {
		return nil, fmt.Errorf("payment.TakeDue: %w", err)
	}
	return due, nil
}

// Wake makes payments due at once, final ones too: something has happened to them at the
// provider. The worker that has one looks at it again when it is done. Wake returns those
// it has found, and it does not change their versions.
func Wake(ctx context.Context, db postgres.DB, purchases []uuid.UUID) ([]Ref, error) {
	woken, err := postgres.Collect(ctx, db, pgx.RowToStructByPos[Ref], `
		WITH locked AS (SELECT purchase_id FROM payments WHERE purchase_id = ANY($1) ORDER BY purchase_id FOR NO KEY UPDATE)
		UPDATE payments p SET wakes = wakes + 1, due_at = greatest(clock_timestamp(), lease_until)
		FROM locked l WHERE p.purchase_id = l.purchase_id
		RETURNING p.purchase_id, p.campaign_id, p.job_id, p.version`, purchases)
	if err != nil {
		return nil, fmt.Errorf("payment.Wake: %w", err)
	}
	return woken, nil
}
