package webhook

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/platform/postgres"
	"triprize/internal/store/agenda"
)

// A listener has no URL: its events are fetched. A fetch is noted as an attempt,
// whose number says up to where its client has seen them when it comes back: until then
// nobody knows whether they have arrived.

// fetched is an event that a listener has fetched, and the number of its attempt.
type fetched struct {
	EventID uuid.UUID
	Number  int64
}

// notAgain is when a fetched event is due: never, unless its client comes back without it.
const notAgain = `clock_timestamp() + interval '100 years'`

// fetchedFor is until when somebody is known to fetch for a listener that does so now. It is
// more than the longest streams.interval.
const fetchedFor = `clock_timestamp() + interval '90 seconds'`

// Resume takes over a listener for a client that has seen everything up to the attempt with a
// number. Events that were fetched after that are due again. An earlier fetch for it is fenced. It
// lasts for the given time from now on, and is of the key (its prefix) that comes back; one that
// is revoked is an unauthenticated Error. A listener that is over is a not-found Error.
func Resume(ctx context.Context, tx pgx.Tx, id uuid.UUID, key string, seen int64, lasts time.Duration) (Endpoint, error) {
	if err := keyLives(ctx, tx, key); err != nil {
		return Endpoint{}, err
	}
	e, err := one(ctx, tx, "Resume", id, `
		UPDATE webhook_endpoints p SET version = version + 1, lease_until = `+fetchedFor+`, expires_at = clock_timestamp() + $2 * interval '1 second', made_by = nullif($3, '')
		WHERE id = $1 AND url IS NULL AND `+lives+` RETURNING `+columns, id, lasts.Seconds(), key)
	if err != nil {
		return Endpoint{}, err
	}
	var b pgx.Batch
	b.Queue(`
		UPDATE webhook_deliveries d SET state = 'delivered', next_at = NULL, finished_at = clock_timestamp(), attempts = 1
		WHERE endpoint_id = $1 AND state = 'pending'
		  AND (SELECT max(number) FROM webhook_attempts a WHERE a.event_id = d.event_id AND a.endpoint_id = $1) <= $2`, id, seen) // fetched again later: perhaps never seen
	b.Queue(`UPDATE webhook_deliveries SET next_at = clock_timestamp() WHERE endpoint_id = $1 AND state = 'pending' AND next_at > clock_timestamp()`, id)
	if err := tx.SendBatch(ctx, &b).Close(); err != nil {
		return Endpoint{}, fmt.Errorf("webhook.Resume(%s): %w", id, err)
	}
	return e, nil
}

// NoteFetched notes that events of a listener are about to be sent, and returns the numbers of
// their attempts, by event. It fails with agenda.ErrFenced when somebody else fetches for
// the listener by now, or it is over.
func NoteFetched(ctx context.Context, tx pgx.Tx, e Endpoint, ids []uuid.UUID, lasts time.Duration) (map[uuid.UUID]int64, error) {
	_, err := postgres.CollectOne(ctx, tx, scan, `
		UPDATE webhook_endpoints p SET lease_until = `+fetchedFor+`, expires_at = greatest(expires_at, clock_timestamp() + $3 * interval '1 second')
		WHERE id = $1 AND version = $2 AND `+lives+` RETURNING `+columns, e.ID, e.Version, lasts.Seconds())
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, agenda.ErrFenced
	}
	if err != nil {
		return nil, fmt.Errorf("webhook.NoteFetched(%s): %w", e.ID, err)
	}
	if len(ids) == 0 {
		return nil, nil
	}
	rows, err := postgres.Collect(ctx, tx, pgx.RowToStructByPos[fetched], `
		WITH fetched AS (
			UPDATE webhook_deliveries d SET next_at = `+notAgain+` FROM unnest($2::uuid[]) AS f (id)
			WHERE d.endpoint_id = $1 AND d.event_id = f.id)
		INSERT INTO webhook_attempts (event_id, endpoint_id, at, duration_ms)
		SELECT f.id, $1, clock_timestamp(), 0 FROM unnest($2::uuid[]) WITH ORDINALITY AS f (id, place) ORDER BY f.place
		RETURNING event_id, number`, e.ID, ids)
	if err != nil {
		return nil, fmt.Errorf("webhook.NoteFetched(%s): %w", e.ID, err)
	}
	numbers := make(map[uuid.UUID]int64, len(rows))
	for _, row := range rows {
		numbers[row.EventID] = row.Number
	}
	return numbers, nil
}
