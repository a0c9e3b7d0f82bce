package payment

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"triprize/internal/domain/fault"
	"triprize/internal/domain/payprovider"
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

// CountWaiting counts the payments that wait, by what for; unanswered are those that have waited for the provider for three
// minutes, if it has taken no money for two.
func CountWaiting(ctx context.Context, db postgres.DB) (counts map[BlockedReason]int, unanswered int, err error) {
	counts = map[BlockedReason]int{WaitsForOperator: 0, WaitsForKey: 0, WaitsForProvider: 0}
	var waiter BlockedReason
	var n int
	err = postgres.Scan(ctx, db, func() { counts[waiter] = n }, []any{&waiter, &n, &unanswered}, `SELECT `+waiterSQL+`, count(*),
		sum(count(*) FILTER (WHERE waiting_for NOT IN ('operator', 'key') AND waiting_since <= clock_timestamp() - interval '3 minutes'
			AND NOT EXISTS (SELECT FROM payments WHERE received > 0 AND finished_at > clock_timestamp() - interval '2 minutes'))) OVER ()::bigint
		FROM payments WHERE waiting_for IS NOT NULL GROUP BY 1`)
	return counts, unanswered, fault.At(err, "payment.CountWaiting")
}

// QueueWaiting notes why open payments wait, for people. It is no move of theirs, so
// their versions stay.
func QueueWaiting(b *pgx.Batch, purchases []uuid.UUID, reason BlockedReason) {
	b.Queue(`SELECT FROM payments WHERE purchase_id = ANY($1) ORDER BY purchase_id FOR NO KEY UPDATE`, purchases) // the UPDATE alone has no order
	b.Queue(`UPDATE payments SET waiting_for = $2, waiting_since = coalesce(waiting_since, clock_timestamp()), last_error = NULL WHERE purchase_id = ANY($1) AND finished_at IS NULL`, purchases, reason)
}

// QueueWake makes a payment due at once that waits, or is finished with money.
func QueueWake(b *pgx.Batch, purchaseID uuid.UUID) {
	b.Queue(`UPDATE payments SET `+lease.Woken+` WHERE purchase_id = $1 AND (waiting_for IS NOT NULL OR phase IN ('settled', 'refund_due'))`, purchaseID)
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
	FoundPaid      Finding = "paid"             // all of it, as the provider says
	FoundUnpaid    Finding = "unpaid"           // nothing, or what was is refunded already
	FoundOutOfBand Finding = "paid-out-of-band" // all of it, in another way: the provider has none
)

// Resolution is what an operator says of a payment at the version at which it was read.
type Resolution struct {
	Version    int64
	Found      Finding
	Reference  string // of [FoundOutOfBand]
	By, Reason string
}

// QueueResolve ends a payment by hand. A paid one is captured, and an unpaid one has
// ended: a transaction of the sale decides what becomes of it, as of any other, and it is
// due at once for that. One that is cancelled already and was not paid stays so, and is
// checked once more: an event may just have reported money. So is one that was paid out of band,
// whatever becomes of it; money on it at the provider is acknowledged by resolving it so again, or was the
// only payment: then it is paid.
// there is what the provider says of one that is paid: all of the money.
//
// The batch fails with a state-conflict Error unless the payment still has the version of
// the resolution, waits for an operator, can no longer be confirmed, and no worker has it.
func QueueResolve(b *pgx.Batch, purchaseID uuid.UUID, r Resolution, there payprovider.Intent) {
	b.Queue(`
		UPDATE payments
		SET version = version + 1, lease_until = NULL, next_action = NULL, `+unblocked+`,
		    resolved_as = $3, resolved_by = $4, resolve_reason = $5,
		    resolve_reference = CASE WHEN phase IN ('settled', 'refund_due') AND $3 = resolved_as THEN resolve_reference ELSE $6 END,
		    last_error = CASE WHEN $3 = 'paid-out-of-band' AND phase NOT IN ('settled', 'refund_due') THEN NULL ELSE last_error END,
		    phase = CASE WHEN phase IN ('settled', 'refund_due') OR phase = 'cancelled' AND $3 = 'unpaid' THEN phase WHEN $3 = 'unpaid' THEN 'ended' ELSE 'captured' END,
		    received = CASE WHEN $3 = 'paid' THEN $7 ELSE received END,
		    intent_status = CASE WHEN $3 = 'paid' THEN $8 ELSE intent_status END, livemode = CASE WHEN $3 = 'paid' THEN $9 ELSE livemode END,
		    ending = CASE WHEN $3 = 'unpaid' THEN coalesce(ending, 'unpaid') ELSE ending END,
		    due_at = clock_timestamp(),
		    finished_at = CASE WHEN phase IN ('settled', 'refund_due') OR phase = 'cancelled' AND $3 = 'unpaid' THEN finished_at END
		WHERE purchase_id = $1 AND version = $2 AND waiting_for = 'operator' AND intent_id IS NOT NULL AND NOT (`+beforeCapture+`)
		  AND (phase NOT IN ('settled', 'refund_due') OR $3 <> 'unpaid' AND resolved_as = 'paid-out-of-band')
		  AND ($3 <> 'paid' OR (amount, currency, 'succeeded') = ($7, $10, $8))
		  AND (lease_until IS NULL OR lease_until <= clock_timestamp())`, purchaseID, r.Version, string(r.Found), r.By, r.Reason, postgres.Nullable(r.Reference),
		int64(there.Received), string(there.Status), there.Livemode, there.Currency).
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

const (
	// MaxTries bounds the payment methods that a buyer may bring after the first; the table
	// has it, too.
	MaxTries = 4
	// TryWithin is how long after a decline another payment method may come.
	TryWithin = 3 * time.Minute
	// MaxDeclines bounds the declines of a client's user in declinesIn, together with the cards that
	// are being tried, in all campaigns: nobody may find out here which stolen cards are good.
	MaxDeclines = 10
	declinesIn  = time.Hour
)

// QueueTry has a payment paid with another payment method of the provider. returnURL replaces
// where an authentication ends; nil: it stays. A worker that has the payment is fenced, and it
// is due at once. The batch fails with a state-conflict Error unless the payment still has the
// version of p, waits for its buyer, is not over or taken back, and has tries left.
func QueueTry(b *pgx.Batch, p *Payment, method string, returnURL *string) {
	b.Queue(`
		UPDATE payments
		SET phase = 'confirming', payment_method = $3, return_url = coalesce($4, return_url), tries = tries + 1, version = version + 1, lease_until = NULL,
		    due_at = clock_timestamp(), next_action = NULL, decline = NULL, `+unblocked+`
		WHERE purchase_id = $1 AND version = $2 AND phase IN ('action', 'declined') AND over_at > clock_timestamp() AND tries < $5 AND cancel_job IS NULL`,
		p.PurchaseID, p.Version, method, returnURL, MaxTries).
		Exec(OrConflict("the payment has just changed; read the job, then retry"))
	QueueSteps(b, Step{PurchaseID: p.PurchaseID, Event: StepMethodChanged})
}

// TooManyDeclines refuses a payment by card of a user until again.
func TooManyDeclines(again time.Time) error {
	refusal := fault.New(fault.DeclineLimitExceeded, "%d cards of this user were declined within an hour or are being charged; retry after %s", MaxDeclines, again.UTC().Format(time.RFC3339))
	refusal.RetryAt = again
	return refusal
}

// Buyer is a user of a client.
type Buyer struct{ Client, ID string }

// Cards are the cards of a buyer that count: declined lately, or being tried.
type Cards struct {
	Count int
	Again time.Time // of [MaxDeclines] or more: when they are fewer, as far as it is known
}

// QueueCards counts the cards of buyers for a transaction that is to try others: each is called
// for those who have any. except is a purchase whose card is replaced. It takes an advisory lock of
// each buyer, because the campaigns that it buys in are locked apart. Without wait it calls busy
// for those whose lock another transaction has.
func QueueCards(b *pgx.Batch, buyers []Buyer, except uuid.UUID, wait bool, busy func(Buyer), each func(Buyer, Cards)) {
	clients, users := make([]string, len(buyers)), make([]string, len(buyers))
	for i, buyer := range buyers {
		clients[i], users[i] = buyer.Client, buyer.ID
	}
	lock := `pg_try_advisory_xact_lock`
	if wait {
		lock = `true FROM pg_advisory_xact_lock`
	}
	var buyer Buyer
	b.Queue(`
		SELECT u.client, u.id FROM unnest($1::text[], $2::text[]) AS u (client, id)
		WHERE NOT (SELECT `+lock+`(hashtextextended('cards ' || u.client || chr(10) || u.id, 0)))`, clients, users).Query(postgres.Each(func() { busy(buyer) }, &buyer.Client, &buyer.ID))
	var cards Cards
	b.Queue(`
		SELECT u.client, u.id, c.n, c.again FROM unnest($1::text[], $2::text[]) AS u (client, id) CROSS JOIN LATERAL (
			SELECT count(*) AS n, min(until) AS again FROM (
				(SELECT at + $3 * interval '1 second' AS until FROM payment_steps
				 WHERE declined_client = u.client AND declined_user = u.id AND at > (SELECT clock_timestamp()) - $3 * interval '1 second' ORDER BY at DESC LIMIT $4)
				UNION ALL
				SELECT greatest(y.over_at, (SELECT clock_timestamp())) FROM purchases p CROSS JOIN LATERAL (SELECT phase, over_at FROM payments WHERE purchase_id = p.id OFFSET 0) y
				WHERE p.client = u.client AND p.user_id = u.id AND p.state IN ('pending', 'awaiting_action') AND p.id <> $5
				  AND y.phase IN ('reserved', 'creating', 'confirming', 'action', 'processing')
				ORDER BY until DESC LIMIT $4) newest) c
		WHERE c.n > 0`, clients, users, declinesIn.Seconds(), MaxDeclines, except).Query(postgres.Each(func() { each(buyer, cards) }, &buyer.Client, &buyer.ID, &cards.Count, &cards.Again))
}

// HasTooManyDeclines reports whether the buyer of a purchase has too many declines now; one
// that is not stored yet may be counted, too.
func HasTooManyDeclines(ctx context.Context, db postgres.DB, purchaseID uuid.UUID, another bool) (many bool, err error) {
	err = db.QueryRow(ctx, `
		SELECT count(*) + $2::bool::int >= $4 FROM (
			SELECT FROM payment_steps
			WHERE (declined_client, declined_user) = (SELECT client, user_id FROM purchases WHERE id = $1) AND at > (SELECT clock_timestamp()) - $3 * interval '1 second' LIMIT $4) d`,
		purchaseID, another, declinesIn.Seconds(), MaxDeclines).Scan(&many)
	return many, fault.At(err, "payment.HasTooManyDeclines(%s)", purchaseID)
}
