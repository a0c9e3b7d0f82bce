package webhook

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/uuidv7"
	"triprize/internal/lease"
	"triprize/internal/platform/postgres"
	"triprize/internal/webhook/sender"
)

// maxChallenges is how many challenges an endpoint may leave without an echo, until it is
// disabled. Enabling it begins anew.
const maxChallenges = 5

// mayChallenge bounds the challenges of an endpoint, however often its URL is changed.
const mayChallenge = `(p.verified_at IS NOT NULL OR p.challenged_at IS NULL OR p.challenged_at <= clock_timestamp() - interval '10 seconds')`

// recordChallenge verifies an endpoint that has echoed a challenge, or disables it after
// [maxChallenges] that have failed. failed says why it was not echoed, as its client may see it
// (nil: it was), and pause when it may be tried again. The echo counts for the URL and the version of e alone: otherwise,
// or when the endpoint was disabled or deleted, it fails with [lease.ErrFenced].
func recordChallenge(ctx context.Context, tx pgx.Tx, e Endpoint, failed *string, pause time.Duration) (Endpoint, error) {
	const over = `$6::text IS NOT NULL AND failures + 1 >= $8`
	sql, args := Leases.Write(e.Item(), lease.Handover{Next: &pause, Seen: e.Wakes}, `
		    verified_at = CASE WHEN $6::text IS NULL THEN clock_timestamp() END, challenge_error = $6,
		    failures = CASE WHEN $6::text IS NULL THEN 0 ELSE failures + 1 END,
		    failing_since = CASE WHEN $6::text IS NOT NULL THEN coalesce(failing_since, clock_timestamp()) END,
		    paused_until = CASE WHEN $7::float8 > 0 THEN clock_timestamp() + $7 * interval '1 second' END,
		    disabled_at = CASE WHEN `+over+` THEN clock_timestamp() END,
		    disabled_reason = CASE WHEN `+over+` THEN 'unverified' END`,
		` AND verified_at IS NULL AND url = $9 AND disabled_at IS NULL AND deleted_at IS NULL`, failed, pause.Seconds(), maxChallenges, e.URL)
	return writeFenced(ctx, tx, "recordChallenge", e.ID, sql, args)
}

// verify asks the URL of an endpoint once whether it wants events. Its events wait until it has
// echoed the challenge, which only the message has: no API shows it, and no table.
func (d *run) verify(ctx context.Context) error {
	answer := sender.Answer{Status: http.StatusOK} // a URL that the operator has named need not be asked
	if !d.sender.Named(d.endpoint.URL) {
		challenge := sender.NewChallenge()
		message := body(EndpointVerification, time.Now(), fmt.Appendf(nil, `{"id":%q,"challenge":%q}`, d.endpoint.ID, challenge))
		answer = d.sender.Challenge(ctx, d.endpoint.URL, sender.Message{ID: uuidv7.New().String(), Body: message, Secrets: d.secrets}, challenge)
	}
	if answer.Err != nil && ctx.Err() != nil {
		return nil // cut off: as if it was never sent
	}
	var wait time.Duration
	failed := postgres.Nullable(answer.ClientText())
	if failed != nil {
		wait = max(pause(d.endpoint.Failures), asked(answer))
	}
	d.hit("webhooks.challenged")
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), d.settings.lease()) // later it is fenced
	defer cancel()
	var now Endpoint
	err := postgres.RetryLocked(ctx, func() error {
		return postgres.InTx(ctx, d.db, func(tx pgx.Tx) (err error) {
			now, err = recordChallenge(ctx, tx, d.endpoint, failed, wait)
			return err
		})
	})
	switch {
	case errors.Is(err, lease.ErrFenced): // it has another URL, or is disabled
		return nil
	case err != nil:
		return fmt.Errorf("webhook.verify(%s): %w", d.endpoint.ID, err)
	}
	if failed != nil {
		d.logger.Info("a webhook endpoint has not echoed a challenge: no events are sent to it", "endpoint", now.ID, "client", now.Client, "error", answer.Text())
	}
	return nil
}
