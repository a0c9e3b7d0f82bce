package outbox

import (
	"context"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/domain/uuidv7"
	"triprize/internal/platform/postgres"
	"triprize/internal/store/job"
)

// PutOff replaces a message by one for each campaign, for those of its jobs that are still queued. They
// have no task: they wait until [Resume] finds their campaign free. Those whose wallet is locked, and not their
// campaign, also wait for about a quarter of their age, 10 s at most: they would be tried in vain every second.
// It is one statement, so each job is in a message at any time. When the message is gone, others have its jobs,
// and nothing changes.
func PutOff(ctx context.Context, db postgres.DB, id uuid.UUID, wallets []uuid.UUID) error {
	_, err := db.Exec(ctx, `
		WITH gone AS (DELETE FROM outbox_messages WHERE id = $1 RETURNING kind, delivery, jobs)
		INSERT INTO outbox_messages (id, kind, delivery, jobs, waits_for, seen_at)
		SELECT gen_random_uuid(), g.kind, g.delivery, array_agg(j.id ORDER BY j.id), j.campaign_id, clock_timestamp() + b.backoff * interval '1 second'
		FROM gone g
		CROSS JOIN LATERAL unnest(g.jobs) AS i (id)
		CROSS JOIN LATERAL (SELECT id, campaign_id, state, purchase_id, accepted_at FROM jobs WHERE id = i.id OFFSET 0) j
		CROSS JOIN LATERAL (SELECT CASE WHEN j.id = ANY($2) -- in steps, so that jobs of about an age share a message
			THEN least(2 ^ floor(log(2, greatest(extract(epoch FROM clock_timestamp() - j.accepted_at), 1))) / 4, 10) ELSE 0 END AS backoff) b
		WHERE j.state = 'queued' AND j.purchase_id IS NULL
		GROUP BY g.kind, g.delivery, j.campaign_id, b.backoff`, id, wallets)
	return fault.At(err, "outbox.PutOff")
}

// FindAwaited returns the campaigns that messages wait for, at most limit, and the time
// by the database's clock. It reads one entry of the index for each.
func FindAwaited(ctx context.Context, db postgres.DB, limit int) (ids []uuid.UUID, now time.Time, err error) {
	if err := db.QueryRow(ctx, `SELECT clock_timestamp()`).Scan(&now); err != nil {
		return nil, now, fault.At(err, "outbox.FindAwaited")
	}
	ids, err = postgres.Collect(ctx, db, pgx.RowTo[uuid.UUID], `
		WITH RECURSIVE awaited (id) AS (
			(SELECT waits_for FROM outbox_messages WHERE waits_for IS NOT NULL ORDER BY waits_for LIMIT 1)
			UNION ALL
			SELECT (SELECT m.waits_for FROM outbox_messages m WHERE m.waits_for > a.id ORDER BY m.waits_for LIMIT 1)
			FROM awaited a WHERE a.id IS NOT NULL)
		SELECT id FROM awaited WHERE id IS NOT NULL LIMIT $1`, limit)
	return ids, now, fault.At(err, "outbox.FindAwaited")
}

// countMost bounds how many messages are counted.
const countMost = 10_000

// CountAwaiting returns how many jobs wait for a campaign, of its countMost oldest messages.
func CountAwaiting(ctx context.Context, db postgres.DB, campaignID uuid.UUID) (jobs int, err error) {
	err = db.QueryRow(ctx, `
		SELECT coalesce(sum(cardinality(jobs)), 0) FROM (SELECT jobs FROM outbox_messages WHERE waits_for = $1 ORDER BY jobs[1] LIMIT $2) m`, campaignID, countMost).Scan(&jobs)
	return jobs, fault.At(err, "outbox.CountAwaiting")
}

// Resume replaces messages that wait for campaigns by new ones that do not, each for jobs of one
// campaign, and returns these, the oldest first. It replaces the limit oldest messages of those that were put
// off before a time, and says how many: one that is put off meanwhile waits for the next run. The caller
// enqueues the new ones after the commit.
func Resume(ctx context.Context, tx pgx.Tx, campaigns []uuid.UUID, before time.Time, limit int) (messages []job.Message, replaced int, err error) {
	ids, err := postgres.Collect(ctx, tx, pgx.RowTo[uuid.UUID], `
		SELECT m.id FROM unnest($1::uuid[]) AS c (id)
		CROSS JOIN LATERAL (SELECT id, jobs[1] AS oldest FROM outbox_messages WHERE waits_for = c.id AND seen_at < $3 ORDER BY jobs[1] LIMIT $2) m
		ORDER BY m.oldest LIMIT $2`, campaigns, limit, before)
	if err == nil && len(ids) > 0 {
		messages, err = replace(ctx, tx, ids, nil, true)
	}
	slices.SortFunc(messages, func(a, b job.Message) int { return uuidv7.Compare(a.Jobs[0].ID, b.Jobs[0].ID) })
	return messages, len(ids), fault.At(err, "outbox.Resume")
}
