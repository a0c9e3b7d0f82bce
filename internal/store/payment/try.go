package payment

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"triprize/internal/domain/fault"
	"triprize/internal/platform/postgres"
)

const (
	// MostTries bounds the payment methods that a buyer may bring after the first; the table
	// has it, too.
	MostTries = 4
	// TryWithin is how long after a decline another payment method may come.
	TryWithin = 3 * time.Minute
	// MostDeclines bounds the declines of a user in declinesIn: nobody may find out here which
	// stolen cards are good. Cards that are being tried at that moment come on top: as many as a
	// user may have reserved positions.
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
	refusal := fault.New(fault.DeclineLimitExceeded, "%d cards of this user were declined within an hour; another one may be tried from %s on", MostDeclines, again.UTC().Format(time.RFC3339))
	refusal.RetryAt = again
	return refusal
}

// QueueDeclines calls each for the users that have too many declines now, with the moment from
// which on they may pay by card again.
func QueueDeclines(b *pgx.Batch, users []string, each func(user string, again time.Time)) {
	b.Queue(`
		SELECT u.id, d.at + $2 * interval '1 second' FROM unnest($1::text[]) AS u (id) CROSS JOIN LATERAL (
			SELECT at FROM payment_steps WHERE declined_user = u.id AND at > (SELECT clock_timestamp()) - $2 * interval '1 second'
			ORDER BY at DESC OFFSET $3 LIMIT 1) d`, users, declinesIn.Seconds(), MostDeclines-1).Query(func(rows pgx.Rows) error {
		var user string
		var again time.Time
		_, err := pgx.ForEachRow(rows, []any{&user, &again}, func() error { each(user, again); return nil })
		return err
	})
}

// HasTooManyDeclines reports whether the user of a purchase has too many declines now; one
// that is not stored yet may be counted, too.
func HasTooManyDeclines(ctx context.Context, db postgres.DB, purchaseID uuid.UUID, another bool) (many bool, err error) {
	err = db.QueryRow(ctx, `
		SELECT count(*) + $2::bool::int >= $4 FROM (
			SELECT FROM payment_steps
			WHERE declined_user = (SELECT user_id FROM purchases WHERE id = $1) AND at > (SELECT clock_timestamp()) - $3 * interval '1 second' LIMIT $4) d`,
		purchaseID, another, declinesIn.Seconds(), MostDeclines).Scan(&many)
	return many, fault.At(err, "payment.HasTooManyDeclines(%s)", purchaseID)
}
