package payment

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"triprize/internal/domain/access"
	"triprize/internal/domain/fault"
	"triprize/internal/domain/money"
	"triprize/internal/domain/uuidv7"
	"triprize/internal/lease"
	"triprize/internal/platform/postgres"
)

// QueueWrite writes what a worker has found out about a card refund: amount, state, attempt, the
// provider's id, failure, faults, and whether it is stuck. The batch fails with [lease.ErrFenced] unless the refund
// still has the version of r. A further attempt is refused in the same way when it would give
// back more than is left, or while another refund of the purchase is being made, and a smaller
// amount when more is left. keep is how much longer the
// worker keeps it (the lease is renewed); with 0 it is given back, and is due after next, or not
// before an event comes.
// attempt_at and asked are set when the attempt grows. What was resolved by hand stays so.
//
// One that has succeeded has no failure. After the commit the refund has r.Version + 1.
func QueueWriteRefund(b *pgx.Batch, r *Refund, keep time.Duration, next *time.Duration) {
	if r.State == RefundSucceeded {
		r.Failure = nil
	}
	sql, args := RefundAgenda.Write(r.Item(), lease.Handover{Keep: keep, Next: next, Seen: r.Wakes}, `
		    state = $6, attempt = $7, attempt_at = CASE WHEN attempt < $7 THEN clock_timestamp() ELSE attempt_at END,
		    asked = CASE WHEN attempt < $7 THEN $12::bigint ELSE asked END, provider_id = $8, failure = $9, faults = $10, stuck = $11, amount = $12,
		    waiting_since = CASE WHEN $10::integer > 0 THEN coalesce(waiting_since, clock_timestamp()) END,
		    finished_at = CASE WHEN $6 IN ('succeeded', 'resolved') THEN coalesce(finished_at, clock_timestamp()) END`,
		` AND (state = 'resolved') = ($6 = 'resolved') AND (attempt = $7 OR $12::bigint <= `+leftSQL+` AND NOT `+beingMade+`) AND (amount <= $12 OR $12 >= `+leftSQL+`)`,
		r.State, r.Attempt, r.ProviderID, r.Failure, r.Faults, r.Stuck, int64(r.Amount))
	b.Queue(sql, args...).Exec(func(tag pgconn.CommandTag) error { return lease.Fenced(r.Item(), tag, 1) })
}

// Write is QueueWrite for a write that stands alone. It counts up r.Version.
func WriteRefund(ctx context.Context, db postgres.DB, r *Refund, keep time.Duration, next *time.Duration) error {
	var b pgx.Batch
	QueueWriteRefund(&b, r, keep, next)
	if err := db.SendBatch(ctx, &b).Close(); err != nil {
		return fmt.Errorf("refund.Write: %w", err)
	}
	r.Version++
	return nil
}

// Lock locks a refund and reads it, in a later statement. It returns a not-found Error
// when there is none.
func LockRefund(ctx context.Context, tx pgx.Tx, who access.Grant, id uuid.UUID) (Refund, error) {
	if _, err := tx.Exec(ctx, `SELECT FROM refunds WHERE id = $1 AND ($2::text IS NULL OR client = $2) FOR NO KEY UPDATE`, id, who.Client()); err != nil {
		return Refund{}, fmt.Errorf("refund.Lock(%s): %w", id, err)
	}
	return GetRefund(ctx, tx, who, id)
}

// QueueRetry opens a refund again that the provider has refused. The key of the next
// attempt is stored with it. A worker that still has the refund is fenced.
func QueueRetryRefund(b *pgx.Batch, id uuid.UUID) {
	b.Queue(`
		UPDATE refunds r
		SET state = 'open', version = version + 1, lease_until = NULL, due_at = clock_timestamp(), attempt = attempt + 1,
		    attempt_at = clock_timestamp(), asked = amount, provider_id = NULL, failure = NULL, faults = 0, stuck = false, waiting_since = NULL
		WHERE id = $1 AND method = 'card' AND number IS NOT NULL AND state IN ('failed', 'canceled')
		  AND NOT `+beingMade, id).
		Exec(exactly(id, "the provider has not refused the refund, or another one of the purchase is just being made"))
}

// QueueLook makes a stuck refund due now. The worker that has it looks at it again when it
// is done.
func QueueLookRefund(b *pgx.Batch, id uuid.UUID) {
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

// QueueResolve notes that a refund was given back by hand, by whom and why: one that was
// listed, one that the provider has refused, or one that is stuck and that no worker has:
// a worker could still make that one. A worker that still has it is fenced.
func QueueResolveRefund(b *pgx.Batch, id uuid.UUID, by, reason string) {
	b.Queue(`UPDATE refunds r SET `+resolved+` WHERE id = $3 AND `+resolvable, by, reason, id).
		Exec(exactly(id, "only a refund that is listed, or whose waiting_for is operator and that no worker has, can be resolved by hand"))
}

// ResolveOf is [QueueResolve] for up to limit refunds of a campaign that were paid by one method.
// It passes over those that somebody else has locked, and resolves one card refund of a purchase: what
// is left for the next one depends on that. It returns the purchase of each, and whether
// there are more.
func ResolveRefunds(ctx context.Context, tx pgx.Tx, who access.Grant, campaignID uuid.UUID, method RefundMethod, by, reason string, limit int) (purchases []uuid.UUID, more bool, err error) {
	purchases, err = postgres.Collect(ctx, tx, pgx.RowTo[uuid.UUID], `
		WITH chosen AS MATERIALIZED (
			SELECT id, purchase_id FROM refunds WHERE campaign_id = $3 AND method = $4 AND ($6::text IS NULL OR client = $6) AND `+resolvable+` ORDER BY id LIMIT $5 FOR NO KEY UPDATE SKIP LOCKED)
		UPDATE refunds r SET `+resolved+` WHERE id = ANY(ARRAY(SELECT DISTINCT ON (CASE WHEN $4 = 'card' THEN purchase_id ELSE id END) id FROM chosen ORDER BY CASE WHEN $4 = 'card' THEN purchase_id ELSE id END, id)) RETURNING purchase_id`, by, reason, campaignID, string(method), limit, who.Client())
	if err != nil {
		return nil, false, fmt.Errorf("refund.ResolveOf(%s): %w", campaignID, err)
	}
	err = tx.QueryRow(ctx, `SELECT EXISTS (SELECT FROM refunds WHERE campaign_id = $1 AND method = $2 AND ($3::text IS NULL OR client = $3) AND `+resolvable+`)`, campaignID, string(method), who.Client()).Scan(&more)
	return purchases, more, fault.At(err, "refund.ResolveOf(%s)", campaignID)
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

// Told is what the provider tells of a refund that is not ours.
type ToldRefund struct {
	ProviderID string // re_… of the provider
	PurchaseID uuid.UUID
	Amount     money.Amount
	Currency   string      // ISO 4217, capitals
	State      RefundState // as the provider tells
}

// Made says of the refund that it was made, for the timeline; how says by whom.
func (t ToldRefund) Made(how string) string {
	return fmt.Sprintf("%s of %s was made at the provider, %s", t.ProviderID, money.Currency(t.Currency).Format(t.Amount), how)
}

// Broken says of the refund that it has failed, for the timeline.
func (t ToldRefund) Broken() string {
	return fmt.Sprintf("%s of %s is %s at the provider: that money was not given back", t.ProviderID, money.Currency(t.Currency).Format(t.Amount), t.State)
}

// Noted is a refund that was noted: it was not known, or has another state now.
type NotedRefund struct {
	ToldRefund
	Fresh bool // it was not known
}

// Note notes refunds that others have made at the provider, and what was told of them last,
// under the locks of their payments. News of them come in any order: one that has failed or was
// canceled stays so, and one that has succeeded can only fail. It returns those that it has
// written, in the order of the provider's ids. No id may be given twice.
//
// When one has failed, and ours do not ask for all that is to be given back any more, the rest is
// owed again: Note makes a refund of ours over it, which waits for an operator as any that has
// failed. The purchase is to follow, in the same transaction.
func NoteRefunds(ctx context.Context, tx pgx.Tx, all []ToldRefund) ([]NotedRefund, error) {
	told := make(map[string]ToldRefund, len(all))
	n := len(all)
	ids, providerIDs, purchases := make([]uuid.UUID, n), make([]string, n), make([]uuid.UUID, n)
	amounts, currencies, states := make([]int64, n), make([]string, n), make([]string, n)
	for i, t := range all {
		told[t.ProviderID] = t
		ids[i], providerIDs[i], purchases[i] = uuidv7.New(), t.ProviderID, t.PurchaseID
		amounts[i], currencies[i], states[i] = int64(t.Amount), t.Currency, string(t.State)
	}
	// What we have asked for and was resolved by hand is not ours any more when it is made after all.
	if _, err := tx.Exec(ctx, `UPDATE refunds SET provider_id = NULL WHERE provider_id = ANY($1) AND state = 'resolved'`, providerIDs); err != nil {
		return nil, fmt.Errorf("refund.Note: %w", err)
	}
	rows, err := tx.Query(ctx, `
		INSERT INTO refunds (id, purchase_id, campaign_id, user_id, method, amount, currency, reason, state, provider_id, finished_at)
		SELECT t.id, t.purchase_id, p.campaign_id, p.user_id, 'card', t.amount, t.currency, 'out-of-band', t.state, t.provider_id,
		       CASE WHEN t.state = 'succeeded' THEN clock_timestamp() END
		FROM unnest($1::uuid[], $2::text[], $3::uuid[], $4::bigint[], $5::text[], $6::text[]) AS t (id, provider_id, purchase_id, amount, currency, state)
		JOIN purchases p ON p.id = t.purchase_id
		ON CONFLICT (provider_id) DO UPDATE
		SET state = excluded.state, version = refunds.version + 1, finished_at = excluded.finished_at
		WHERE refunds.number IS NULL AND refunds.state <> excluded.state AND refunds.state NOT IN ('failed', 'canceled')
		  AND (refunds.state <> 'succeeded' OR excluded.state IN ('failed', 'canceled'))
		RETURNING provider_id, xmax = 0`, ids, providerIDs, purchases, amounts, currencies, states) // a row that was inserted just now has no xmax
	if err != nil {
		return nil, fmt.Errorf("refund.Note: %w", err)
	}
	noted, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (n NotedRefund, err error) {
		var id string
		err = row.Scan(&id, &n.Fresh)
		n.ToldRefund = told[id]
		return n, err
	})
	if err != nil {
		return nil, fmt.Errorf("refund.Note: %w", err)
	}
	slices.SortFunc(noted, func(a, b NotedRefund) int { return cmp.Compare(a.ProviderID, b.ProviderID) })
	return noted, owe(ctx, tx, noted)
}

// owe makes refunds of the money that refunds of others were to give back and have not. A
// purchase that is kept owes nothing, and what ours are about is owed already.
func owe(ctx context.Context, tx pgx.Tx, noted []NotedRefund) error {
	var ids, purchases []uuid.UUID
	var failures []string
	for _, n := range noted {
		if n.State.Refused() && !slices.Contains(purchases, n.PurchaseID) {
			ids, purchases, failures = append(ids, uuidv7.New()), append(purchases, n.PurchaseID), append(failures, n.Broken())
		}
	}
	if len(ids) == 0 {
		return nil
	}
	_, err := tx.Exec(ctx, `
		INSERT INTO refunds (id, purchase_id, number, campaign_id, user_id, method, amount, currency, reason, state, failure)
		SELECT n.id, n.purchase_id, ours.number + 1, ours.campaign_id, ours.user_id, 'card', owed.amount, ours.currency, ours.reason, 'failed', n.failure
		FROM unnest($1::uuid[], $2::uuid[], $3::text[]) AS n (id, purchase_id, failure)
		CROSS JOIN LATERAL (SELECT * FROM refunds WHERE purchase_id = n.purchase_id AND number IS NOT NULL ORDER BY number DESC LIMIT 1) ours
		CROSS JOIN LATERAL (
			SELECT (SELECT `+debt+` FROM (SELECT n.purchase_id) r (purchase_id)) - sum(amount)::bigint AS amount FROM refunds
			WHERE purchase_id = n.purchase_id AND (number IS NOT NULL OR state NOT IN ('failed', 'canceled'))) owed
		WHERE owed.amount > 0`, ids, purchases, failures)
	if err != nil {
		return fmt.Errorf("refund.Note: %w", err)
	}
	return nil
}
