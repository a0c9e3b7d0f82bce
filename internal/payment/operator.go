package payment

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"triprize/internal/domain/fault"
	"triprize/internal/lease"
	"triprize/internal/platform/postgres"
)

// Wait is what a payment waits for, where more than its buyer, its method or a time is
// needed.
type Wait string

// The waits.
const (
	WaitsForOperator Wait = "operator" // the provider says what cannot be, refuses the key, or has not answered for long
	WaitsForKey      Wait = "key"      // cards are switched off
	WaitsForAnswer   Wait = "answer"   // a timeout or a fault of the provider: it may have been done
	WaitsForProvider Wait = "provider" // it is not available
	WaitsForTurn     Wait = "turn"     // it is busy
)

// Text returns the wait as people read it.
func (w Wait) Text() string {
	switch w {
	case WaitsForOperator:
		return "an operator must look at the payment"
	case WaitsForKey:
		return "cards are switched off: no key of a payment provider is set"
	case WaitsForAnswer:
		return "the payment provider does not answer"
	case WaitsForTurn:
		return "the payment provider is busy"
	}
	return "the payment provider is not available"
}

// Waiter is who or what a payment waits for.
type Waiter string

// The waiters.
const (
	Operator Waiter = "operator" // a person has to see to it, or to the key
	Key      Waiter = "key"      // cards are switched off
	Provider Waiter = "provider" // does not answer, or is busy
)

// waitsNoMore are the assignments of a payment that goes on.
const waitsNoMore = `faults = 0, waiting_for = NULL, waiting_since = NULL`

// WaitsFor returns what the payment waits for; empty: for nothing but its buyer, its
// method or a time.
func (p *Payment) WaitsFor() Waiter {
	switch {
	case p.WaitingFor == nil:
		return ""
	case *p.WaitingFor == WaitsForOperator, *p.WaitingFor == WaitsForKey:
		return Waiter(*p.WaitingFor)
	}
	return Provider
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
func Waiting(ctx context.Context, db postgres.DB, waiter Waiter, after uuid.UUID, limit int) ([]Payment, error) {
	list, err := postgres.Collect(ctx, db, scan, `
		SELECT `+columns+` FROM payments p
		WHERE waiting_for IS NOT NULL AND ($1 = '' OR `+waiterSQL+` = $1) AND ($2::uuid IS NULL OR purchase_id > $2)
		ORDER BY purchase_id LIMIT $3`, string(waiter), postgres.Nullable(after), limit)
	return list, fault.At(err, "payment.Waiting(%s)", waiter)
}

// CountWaiting counts the payments that wait, by what for.
func CountWaiting(ctx context.Context, db postgres.DB) (counts map[Waiter]int, err error) {
	counts = map[Waiter]int{Operator: 0, Key: 0, Provider: 0}
	var waiter Waiter
	var n int
	err = postgres.Scan(ctx, db, func() { counts[waiter] = n }, []any{&waiter, &n}, `SELECT `+waiterSQL+`, count(*) FROM payments WHERE waiting_for IS NOT NULL GROUP BY 1`)
	return counts, fault.At(err, "payment.CountWaiting")
}

// Escalate gives up to limit payments to the operators that have waited for a key or the
// provider for longer than after, the longest first. It leaves out what a worker has, and what
// is locked. They are due as before: when the provider answers, they go on by themselves.
func Escalate(ctx context.Context, db postgres.DB, after time.Duration, limit int) (int, error) {
	tag, err := db.Exec(ctx, `
		UPDATE payments SET waiting_for = 'operator', last_error = coalesce(payments.last_error, $3)
		FROM (SELECT purchase_id FROM payments p
		      WHERE waiting_for <> 'operator' AND waiting_since <= clock_timestamp() - $1 * interval '1 second' AND `+Agenda.Free()+`
		      ORDER BY waiting_since LIMIT $2 FOR NO KEY UPDATE SKIP LOCKED) w
		WHERE payments.purchase_id = w.purchase_id`, after.Seconds(), limit, WaitsForKey.Text()) // what waits for a key has no error
	return int(tag.RowsAffected()), fault.At(err, "payment.Escalate")
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
		err = fault.New(fault.NotFound, "no payment of a purchase %s is at the provider", purchaseID)
	}
	return p, err
}

// Finding is what an operator has found out about a payment, at the provider.
type Finding string

// The findings.
const (
	FoundPaid   Finding = "paid"   // all of it: it is captured, also when the provider has not said so
	FoundUnpaid Finding = "unpaid" // nothing, or what was is given back already
)

// QueueResolve ends a payment by hand. A paid one is captured, and an unpaid one has
// ended: a transaction of the sale decides what becomes of it, as of any other, and it is
// due at once for that. One that is cancelled already and was not paid stays so, and is
// looked at once more: an event may just have told of money.
//
// The batch fails with a state-conflict Error unless the payment still has the version of
// p, waits for an operator, can no longer be confirmed, and no worker has it.
func QueueResolve(b *pgx.Batch, p *Payment, found Finding, by, reason string) {
	b.Queue(`
		UPDATE payments
		SET version = version + 1, lease_until = NULL, next_action = NULL, `+waitsNoMore+`,
		    resolved_as = $3, resolved_by = $4, resolve_reason = $5,
		    phase = CASE WHEN $3 = 'paid' THEN 'captured' WHEN phase = 'cancelled' THEN phase ELSE 'ended' END,
		    received = CASE WHEN $3 = 'paid' THEN amount ELSE received END,
		    ending = CASE WHEN $3 = 'paid' THEN ending ELSE coalesce(ending, 'unpaid') END,
		    due_at = clock_timestamp(),
		    finished_at = CASE WHEN $3 = 'unpaid' AND phase = 'cancelled' THEN finished_at END
		WHERE purchase_id = $1 AND version = $2 AND waiting_for = 'operator' AND intent_id IS NOT NULL AND NOT (`+beforeCapture+`)
		  AND (lease_until IS NULL OR lease_until <= clock_timestamp())`, p.PurchaseID, p.Version, string(found), by, reason).
		Exec(func(tag pgconn.CommandTag) error {
			if tag.RowsAffected() != 1 {
				return fault.New(fault.StateConflict, "the payment has changed, or a worker is just asking the provider about it: try again in a moment")
			}
			return nil
		})
}

const (
	// MostTries bounds the payment methods that a buyer may bring after the first; the table
	// has it, too.
	MostTries = 4
	// TryWithin is how long after a decline another payment method may come.
	TryWithin = 3 * time.Minute
	// MostDeclines bounds the declines of a client's user in declinesIn, together with the cards that
	// are being tried, in all campaigns: nobody may find out here which stolen cards are good.
	MostDeclines = 10
	declinesIn   = time.Hour
)

// QueueTry has a payment paid with another payment method of the provider. returnURL replaces
// where an authentication ends; nil: it stays. A worker that has the payment is fenced, and it
// is due at once. The batch fails with a state-conflict Error unless the payment still has the
// version of p, waits for its buyer, is not over or taken back, and has tries left.
func QueueTry(b *pgx.Batch, p *Payment, method string, returnURL *string) {
	b.Queue(`
		UPDATE payments
		SET phase = 'confirming', payment_method = $3, return_url = coalesce($4, return_url), tries = tries + 1, version = version + 1, lease_until = NULL,
		    due_at = clock_timestamp(), next_action = NULL, decline = NULL, `+waitsNoMore+`
		WHERE purchase_id = $1 AND version = $2 AND phase IN ('action', 'declined') AND over_at > clock_timestamp() AND tries < $5 AND cancel_job IS NULL`,
		p.PurchaseID, p.Version, method, returnURL, MostTries).
		Exec(func(tag pgconn.CommandTag) error {
			if tag.RowsAffected() != 1 {
				return fault.New(fault.StateConflict, "the payment has just changed: read the job, and try again")
			}
			return nil
		})
	QueueSteps(b, Step{PurchaseID: p.PurchaseID, Event: StepMethodChanged})
}

// TooManyDeclines refuses a payment by card of a user until again.
func TooManyDeclines(again time.Time) error {
	refusal := fault.New(fault.DeclineLimitExceeded, "%d cards of this user were declined within an hour or are being tried; another one may be tried from %s on", MostDeclines, again.UTC().Format(time.RFC3339))
	refusal.RetryAt = again
	return refusal
}

// Buyer is a user of a client.
type Buyer struct{ Client, ID string }

// Cards are the cards of a buyer that count: declined lately, or being tried.
type Cards struct {
	Count int
	Again time.Time // of [MostDeclines] or more: when they are fewer, as far as it is known
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
		WHERE c.n > 0`, clients, users, declinesIn.Seconds(), MostDeclines, except).Query(postgres.Each(func() { each(buyer, cards) }, &buyer.Client, &buyer.ID, &cards.Count, &cards.Again))
}

// HasTooManyDeclines reports whether the buyer of a purchase has too many declines now; one
// that is not stored yet may be counted, too.
func HasTooManyDeclines(ctx context.Context, db postgres.DB, purchaseID uuid.UUID, another bool) (many bool, err error) {
	err = db.QueryRow(ctx, `
		SELECT count(*) + $2::bool::int >= $4 FROM (
			SELECT FROM payment_steps
			WHERE (declined_client, declined_user) = (SELECT client, user_id FROM purchases WHERE id = $1) AND at > (SELECT clock_timestamp()) - $3 * interval '1 second' LIMIT $4) d`,
		purchaseID, another, declinesIn.Seconds(), MostDeclines).Scan(&many)
	return many, fault.At(err, "payment.HasTooManyDeclines(%s)", purchaseID)
}

// EndUnsent leads payments as far as they go without a provider, those that still have
// their versions and that no worker has. One that is given up and has no intent has
// ended: nothing can have been paid. It returns the payments whose end is known, for a
// transaction of the sale, and those that wait for a key.
func EndUnsent(ctx context.Context, tx pgx.Tx, items []lease.Item) (known, waiting []Ref, err error) {
	purchases, versions := lease.Split(items)
	var b pgx.Batch
	b.Queue(`SELECT FROM payments WHERE purchase_id = ANY($1) ORDER BY purchase_id FOR NO KEY UPDATE`, purchases) // the UPDATE alone has no order
	free := ` FROM payments p JOIN unnest($1::uuid[], $2::bigint[]) AS r (id, version) ON p.purchase_id = r.id AND p.version = r.version
		WHERE ` + Agenda.Free()
	read := func(into *[]Ref, condition string) {
		b.Queue(`SELECT `+refColumns+free+condition+` ORDER BY p.purchase_id`, purchases, versions).
			Query(func(rows pgx.Rows) (err error) {
				*into, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Ref])
				return err
			})
	}
	var ended []Ref
	read(&known, ` AND p.phase IN ('captured', 'ended')`)
	read(&waiting, ` AND p.finished_at IS NULL AND p.phase NOT IN ('captured', 'ended') AND NOT (`+unsent+`) AND p.waiting_for IS DISTINCT FROM 'operator'`)
	b.Queue(`
		UPDATE payments p SET phase = 'ended', version = p.version + 1, lease_until = NULL, `+waitsNoMore+`
		FROM (SELECT p.purchase_id`+free+` AND `+unsent+`) f WHERE p.purchase_id = f.purchase_id
		RETURNING `+refColumns, purchases, versions).
		Query(func(rows pgx.Rows) (err error) {
			ended, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Ref])
			return err
		})
	if err := tx.SendBatch(ctx, &b).Close(); err != nil {
		return nil, nil, fmt.Errorf("payment.EndUnsent: %w", err)
	}
	return append(known, ended...), waiting, nil
}

// unsent is what was given up before anything was sent.
const unsent = `p.phase = 'expiring' AND p.intent_id IS NULL`

// QueueGiveUpCampaign gives up the payments of a cancelled campaign that can still be
// given up without a refund, as [Phase.BeforeCapture] says. Workers that have them are
// fenced, and they are due at once. It adds their names to given. Call it under the
// campaign's lock.
func QueueGiveUpCampaign(b *pgx.Batch, campaignID uuid.UUID, given *[]Ref) {
	b.Queue(`SELECT FROM payments WHERE campaign_id = $1 AND finished_at IS NULL ORDER BY purchase_id FOR NO KEY UPDATE`, campaignID)
	b.Queue(`
		UPDATE payments
		SET phase = 'expiring', ending = 'campaign-cancelled', version = version + 1, lease_until = NULL, due_at = clock_timestamp(),
		    next_action = NULL, `+waitsNoMore+`
		WHERE campaign_id = $1 AND finished_at IS NULL AND `+beforeCapture+`
		RETURNING purchase_id, campaign_id, job_id, version`, campaignID).Query(func(rows pgx.Rows) (err error) {
		*given, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Ref])
		return err
	})
}

// CountOpen counts the payments of a campaign whose end is not known, without the late
// ones: those have no positions any more, and may take as long as they like.
func CountOpen(ctx context.Context, db postgres.DB, campaignID uuid.UUID) (n int, err error) {
	err = db.QueryRow(ctx, `SELECT count(*) FROM payments WHERE campaign_id = $1 AND finished_at IS NULL AND phase <> 'late'`, campaignID).Scan(&n)
	return n, fault.At(err, "payment.CountOpen(%s)", campaignID)
}

// QueueOutOfTime finds up to limit payments of a campaign whose reservations should have
// ended, with every extension, and whose end only the provider knows: they were given up,
// and it has not answered. One that is being captured is none of them: its buyer has paid
// in time. The longest overdue come first. It locks what it finds and leaves out what is locked, so that nobody behind waits for that:
// queue it after the statement that locks the campaign.
func QueueOutOfTime(b *pgx.Batch, campaignID uuid.UUID, limit int, found *[]Ref) {
	b.Queue(`
		SELECT purchase_id, campaign_id, job_id, version FROM payments
		WHERE campaign_id = $1 AND finished_at IS NULL AND phase = 'expiring' AND intent_id IS NOT NULL
		  AND latest <= (SELECT clock_timestamp())
		ORDER BY latest, purchase_id LIMIT $2`+postgres.SkipLocked.SQL(), campaignID, limit).Query(func(rows pgx.Rows) (err error) {
		*found, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Ref])
		return err
	})
}
