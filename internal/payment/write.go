package payment

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/lease"
	"triprize/internal/platform/postgres"
)

// New is a payment to be made.
type New struct {
	Payment
	Reserved  time.Duration // from now until the deadline
	HeldSince time.Time     // when the hold was made that it uses; zero: it uses none
}

// QueueInsert stores new payments, reserved until their deadlines, which can be extended
// by maxExtension. Buyers are awaited for afterEnd at most after the end of a sale. The payments
// are due once dueIn has passed, if no task comes sooner.
func QueueInsert(b *pgx.Batch, payments []New, maxExtension, afterEnd, dueIn time.Duration) {
	n := len(payments)
	purchases, campaigns, amounts := make([]uuid.UUID, n), make([]uuid.UUID, n), make([]int64, n)
	currencies, methods, returns := make([]string, n), make([]string, n), make([]*string, n)
	reserved, held := make([]float64, n), make([]*time.Time, n)
	for i, p := range payments {
		purchases[i], campaigns[i], amounts[i] = p.PurchaseID, p.CampaignID, int64(p.Amount)
		currencies[i], methods[i], returns[i], reserved[i] = p.Currency, p.PaymentMethod, p.ReturnURL, p.Reserved.Seconds()
		if !p.HeldSince.IsZero() {
			held[i] = &p.HeldSince
		}
	}
	b.Queue(`
		INSERT INTO payments (purchase_id, campaign_id, amount, currency, payment_method, return_url, deadline, latest, awaits_until, kept_since, due_at, created_at)
		SELECT p.purchase_id, p.campaign_id, p.amount, p.currency, p.payment_method, p.return_url, t.now + p.reserved * interval '1 second',
		       t.now + (p.reserved + $9) * interval '1 second',
		       (SELECT sale_ends_at FROM campaigns WHERE id = p.campaign_id) + $11 * interval '1 second', coalesce(p.held_since, t.now), t.now + $10 * interval '1 second', t.now
		FROM unnest($1::uuid[], $2::uuid[], $3::bigint[], $4::text[], $5::text[], $6::text[], $7::float8[], $8::timestamptz[])
		     AS p (purchase_id, campaign_id, amount, currency, payment_method, return_url, reserved, held_since),
		     (SELECT clock_timestamp() AS now) t`,
		purchases, campaigns, amounts, currencies, methods, returns, reserved, held, maxExtension.Seconds(), dueIn.Seconds(), afterEnd.Seconds()).
		Exec(postgres.Exactly(n, "new payments"))
}

// FollowSaleEnd makes the open payments of a campaign await their buyers until as long after the end
// of its sale as before it was moved, from was on. It is no move of theirs, so their
// versions stay. Call it under the campaign's lock.
func FollowSaleEnd(ctx context.Context, tx pgx.Tx, campaignID uuid.UUID, was *time.Time) error {
	var b pgx.Batch
	b.Queue(`SELECT FROM payments WHERE campaign_id = $1 AND finished_at IS NULL ORDER BY purchase_id FOR NO KEY UPDATE`, campaignID)
	b.Queue(`
		UPDATE payments SET awaits_until = awaits_until + (c.sale_ends_at - $2::timestamptz) FROM campaigns c
		WHERE c.id = $1 AND campaign_id = $1 AND finished_at IS NULL`, campaignID, was)
	return fault.At(tx.SendBatch(ctx, &b).Close(), "payment.FollowSaleEnd(%s)", campaignID)
}

// Leases is the table of payments that are due.
var Leases = lease.Table{Name: "payments", As: "p", Key: "purchase_id", Kind: `'payment'`, Open: `true`, Due: `true`}

// Claim gives a payment to a worker, see [lease.Claim].
//
// A payment that is reserved and not over is creating from the claim
// on: with it the key of the first attempt is stored. attempt_at is then the moment of
// the claim, lease before lease_until.
func Claim(ctx context.Context, db postgres.DB, item lease.Item, until time.Duration) (p Payment, ok bool, err error) {
	const begins = `CASE WHEN p.phase = 'reserved' AND p.over_at > now.at THEN `
	return lease.Claim(ctx, db, Leases, item, until, `, phase, attempt, attempt_at`,
		`, `+begins+`'creating' ELSE p.phase END, `+begins+`p.attempt + 1 ELSE p.attempt END, `+begins+`now.at ELSE p.attempt_at END`, columns, scan)
}

// Precondition is a condition of a write beside the version.
type Precondition string

// The guards.
const (
	Always         Precondition = ""
	BeforeDeadline Precondition = ` AND over_at > clock_timestamp()` // by the database's clock, at the moment of the write
)

// Write writes what a worker has found out: phase, attempt, intent, ending, decline, what it
// waits for, and steps. It fails with [lease.ErrFenced] unless the payment still has the
// version of p and the guard holds. extend is for how long the lease is renewed; with 0 it is released, and is due after next. attempt_at is set when the
// attempt grows. It is one statement, so it needs no transaction around it. It counts up
// p.Version.
func Write(ctx context.Context, db postgres.DB, p *Payment, guard Precondition, extend time.Duration, next *time.Duration, steps ...Step) error {
	sql, args := writing(p, guard, extend, next)
	rows := max(1, len(steps))
	if len(steps) > 0 {
		events, details, declined := make([]string, len(steps)), make([]*string, len(steps)), make([]bool, len(steps))
		for i, s := range steps {
			events[i], details[i], declined[i] = s.Event, s.Detail, s.Declined
		}
		sql = `WITH written AS (` + sql + ` RETURNING purchase_id)
			INSERT INTO payment_steps (purchase_id, event, detail, declined_client, declined_user)
			SELECT w.purchase_id, s.event, s.detail, d.client, d.user_id FROM written w CROSS JOIN unnest($22::text[], $23::text[], $24::bool[]) WITH ORDINALITY AS s (event, detail, declined, n)
			LEFT JOIN LATERAL (SELECT client, user_id FROM purchases WHERE id = w.purchase_id AND s.declined) d ON true ORDER BY s.n`
		args = append(args, events, details, declined)
	}
	tag, err := db.Exec(ctx, sql, args...)
	if err == nil {
		err = lease.Fenced(p.Ref().Item(), tag, rows)
	}
	if err != nil {
		return fmt.Errorf("payment.Write: %w", err)
	}
	p.Version++
	return nil
}

// writing is the statement of a write, with 21 arguments.
func writing(p *Payment, guard Precondition, extend time.Duration, next *time.Duration) (sql string, args []any) {
	return Leases.Write(p.Ref().Item(), lease.Handover{Extend: extend, Next: next, Seen: p.Wakes}, `
		    phase = $6, attempt = $7, attempt_at = CASE WHEN attempt < $7 THEN clock_timestamp() ELSE attempt_at END,
		    intent_id = $8, intent_status = $9, received = $10, next_action = $11, ending = $12, uncancellable = $13, decline = $14,
		    faults = $15, waiting_for = $16, waiting_since = CASE WHEN $16::text IS NOT NULL THEN coalesce(waiting_since, clock_timestamp()) END, last_error = $17,
		    deadline = least($18, latest), kept_since = kept_since + greatest(least($18, latest) - deadline, interval '0'), livemode = $19, declined_until = $20, payment_method = $21,
		    finished_at = CASE WHEN $6 IN ('settled', 'refund_due', 'cancelled') THEN coalesce(finished_at, clock_timestamp()) END`, string(guard),
		p.Phase, p.Attempt, p.IntentID, p.IntentStatus, int64(p.Received), p.NextAction, p.Ending, p.Uncancellable, p.Decline,
		p.Faults, p.WaitingFor, p.LastError, p.Deadline, p.Livemode, p.DeclinedUntil, p.PaymentMethod)
}

// Wake makes payments due at once, final ones too: something has happened to them at the
// provider. See [lease.Wake].
func Wake(ctx context.Context, db postgres.DB, purchases []uuid.UUID) ([]Ref, error) {
	return lease.Wake(ctx, db, Leases, `SELECT unnest($1::uuid[])`, refColumns, pgx.RowToStructByPos[Ref], purchases)
}

// QueueOfJobs finds the payments of purchase jobs, whose ids they have.
func QueueOfJobs(b *pgx.Batch, jobs []uuid.UUID, found *[]Ref) {
	b.Queue(`
		SELECT `+refColumns+` FROM unnest($1::uuid[]) WITH ORDINALITY AS j (id, ordinal)
		CROSS JOIN LATERAL (SELECT * FROM payments WHERE purchase_id = j.id) p ORDER BY j.ordinal`, jobs).Query(refsInto(found))
}

// QueueLock locks the payments of purchases in the order of their ids and reads them
// into a map. It comes after the locks of their campaigns. mode says what it does with
// payments that another transaction has locked. locked gets the payments that it has
// locked, and into all of them.
func QueueLock(b *pgx.Batch, purchases []uuid.UUID, mode postgres.LockMode, locked map[uuid.UUID]bool, into map[uuid.UUID]*Payment) {
	var id uuid.UUID
	b.Queue(`SELECT purchase_id FROM payments WHERE purchase_id = ANY($1) ORDER BY purchase_id`+mode.SQL(), purchases).Query(postgres.Each(func() { locked[id] = true }, &id))
	QueueGet(b, purchases, into)
}

// Settlement is what a transaction of the sale has decided about a payment.
type Settlement struct {
	PurchaseID uuid.UUID
	Version    int64 // at which it was read
	From, To   Phase
}

// recheck is when a payment that was cancelled is checked once more: an event about it
// may have come meanwhile.
const recheck = time.Minute

// QueueSettle moves payments to the phases that were decided. A worker that has one of
// them is fenced. Each must still have the version at which it was read.
//
// A payment in the phase settled or refund_due is not checked again, unless an event comes; a late one
// is due at once, and a cancelled one after a while, if it was ever at the provider, as is one that was
// paid out of band. Events about refunds
// that came before the money was in our books are open again.
func QueueSettle(b *pgx.Batch, settlements []Settlement) {
	n := len(settlements)
	ids, versions, from, to := make([]uuid.UUID, n), make([]int64, n), make([]string, n), make([]string, n)
	for i, c := range settlements {
		ids[i], versions[i], from[i], to[i] = c.PurchaseID, c.Version, string(c.From), string(c.To)
	}
	b.Queue(`
		UPDATE payments p
		SET version = p.version + 1, phase = c.next, lease_until = NULL, next_action = NULL, `+unblocked+`,
		    due_at = CASE WHEN c.next = 'late' THEN clock_timestamp()
		                  WHEN c.next = 'cancelled' AND p.intent_id IS NOT NULL OR p.resolved_as = 'paid-out-of-band' THEN clock_timestamp() + $5 * interval '1 second' END,
		    finished_at = CASE WHEN c.next IN ('settled', 'refund_due', 'cancelled') THEN coalesce(p.finished_at, clock_timestamp()) END
		FROM unnest($1::uuid[], $2::bigint[], $3::text[], $4::text[]) AS c (id, version, phase, next)
		WHERE p.purchase_id = c.id AND p.version = c.version AND p.phase = c.phase`, ids, versions, from, to, recheck.Seconds()).
		Exec(postgres.Exactly(n, "payments"))
	b.Queue(`
		UPDATE payment_events e SET handled_at = NULL, outcome = NULL FROM payments p
		WHERE p.purchase_id = ANY($1) AND p.received > 0 AND e.intent_id = p.intent_id AND e.outcome = 'uncaptured'`, ids)
}

// OpenByPhase counts the open payments, by phase.
func OpenByPhase(ctx context.Context, db postgres.DB) (map[Phase]int, error) {
	counts := make(map[Phase]int)
	var phase Phase
	var n int
	err := postgres.Scan(ctx, db, func() { counts[phase] = n }, []any{&phase, &n}, `SELECT phase, count(*) FROM payments WHERE finished_at IS NULL GROUP BY phase`)
	return counts, fault.At(err, "payment.OpenByPhase")
}

// QueueWait returns for how long the oldest new payment waits for a worker; 0: none
// waits. It is about how long a payment that is reserved now will wait, too. It reads
// one entry of an index.
func QueueWait(ctx context.Context, db postgres.DB) (wait time.Duration, err error) {
	err = db.QueryRow(ctx, `
		SELECT coalesce((SELECT clock_timestamp() - created_at FROM payments WHERE phase = 'reserved' ORDER BY created_at LIMIT 1), interval '0')`).
		Scan(&wait)
	return max(wait, 0), fault.At(err, "payment.QueueWait")
}
