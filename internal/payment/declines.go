package payment

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/platform/postgres"
)

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
		    due_at = clock_timestamp(), next_action = NULL, decline = NULL, `+unblocked+`
		WHERE purchase_id = $1 AND version = $2 AND phase IN ('action', 'declined') AND over_at > clock_timestamp() AND tries < $5 AND cancel_job IS NULL`,
		p.PurchaseID, p.Version, method, returnURL, MostTries).
		Exec(OrConflict("the payment has just changed; read the job, then retry"))
	QueueSteps(b, Step{PurchaseID: p.PurchaseID, Event: StepMethodChanged})
}

// TooManyDeclines refuses a payment by card of a user until again.
func TooManyDeclines(again time.Time) error {
	refusal := fault.New(fault.DeclineLimitExceeded, "%d cards of this user were declined within an hour or are being charged; retry after %s", MostDeclines, again.UTC().Format(time.RFC3339))
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
