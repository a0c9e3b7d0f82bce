package webhook

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/platform/postgres"
	"triprize/internal/store/agenda"
)

// MostChallenges is how many challenges an endpoint may leave without an echo, until it is
// disabled. Enabling it begins anew.
const MostChallenges = 5

// mayChallenge bounds the challenges of an endpoint, however often its URL is changed.
const mayChallenge = `(p.verified_at IS NOT NULL OR p.challenged_at IS NULL OR p.challenged_at <= clock_timestamp() - interval '10 seconds')`

// Challenge is what came of a challenge.
type Challenge struct {
	Error *string       // why it was not echoed, as its client may see it; nil: it was
	Pause time.Duration // until the next one
}

// NoteChallenge verifies an endpoint that has echoed a challenge, or disables it after
// [MostChallenges] in vain. The echo counts for the URL and the version of e alone: otherwise,
// or when the endpoint was disabled or deleted, it fails with [agenda.ErrFenced].
func NoteChallenge(ctx context.Context, tx pgx.Tx, e Endpoint, c Challenge) (Endpoint, error) {
	const over = `$6::text IS NOT NULL AND failures + 1 >= $8`
	sql, args := Agenda.Write(e.Item(), agenda.Handover{Next: &c.Pause, Seen: e.Wakes}, `
		    verified_at = CASE WHEN $6::text IS NULL THEN clock_timestamp() END, challenge_error = $6,
		    failures = CASE WHEN $6::text IS NULL THEN 0 ELSE failures + 1 END,
		    failing_since = CASE WHEN $6::text IS NOT NULL THEN coalesce(failing_since, clock_timestamp()) END,
		    paused_until = CASE WHEN $7::float8 > 0 THEN clock_timestamp() + $7 * interval '1 second' END,
		    disabled_at = CASE WHEN `+over+` THEN clock_timestamp() END,
		    disabled_reason = CASE WHEN `+over+` THEN 'unverified' END`,
		` AND verified_at IS NULL AND url = $9 AND disabled_at IS NULL AND deleted_at IS NULL`, c.Error, c.Pause.Seconds(), MostChallenges, e.URL)
	now, err := postgres.CollectOne(ctx, tx, scan, sql+` RETURNING `+columns, args...)
	if errors.Is(err, pgx.ErrNoRows) {
		return Endpoint{}, fmt.Errorf("webhook.NoteChallenge(%s): %w", e.ID, agenda.ErrFenced)
	}
	return now, fault.At(err, "webhook.NoteChallenge(%s)", e.ID)
}
