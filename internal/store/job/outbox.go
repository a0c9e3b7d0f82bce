package job

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/platform/postgres"
)

// Insert makes one job with its ring inside the caller's transaction: work that
// Triprize gives itself. A job with the same key is left as it is, and then
// there is no ring to enqueue.
func Insert(ctx context.Context, tx pgx.Tx, r Request) ([]Ring, error) {
	_, rings, err := insert(ctx, tx, []Request{r}, []int{0})
	if err != nil {
		return nil, fmt.Errorf("job.Insert: %w", err)
	}
	return rings, nil
}

// DeleteRings takes rings out of the outbox whose jobs are all final.
func DeleteRings(ctx context.Context, db postgres.DB, ids []uuid.UUID) error {
	if _, err := db.Exec(ctx, `DELETE FROM rings WHERE id = ANY($1)`, ids); err != nil {
		return fmt.Errorf("job.DeleteRings: %w", err)
	}
	return nil
}

// Seen notes that rings were found waiting in the queue just now.
func Seen(ctx context.Context, db postgres.DB, ids []uuid.UUID) error {
	if _, err := db.Exec(ctx, `UPDATE rings SET seen_at = clock_timestamp() WHERE id = ANY($1)`, ids); err != nil {
		return fmt.Errorf("job.Seen: %w", err)
	}
	return nil
}

// RingAgain replaces lost rings by new ones for those of their jobs that are
// still queued, in bundles, and returns the new ones, which are to be enqueued
// after the commit. Two that run at once do no harm: a ring can be deleted once.
//
// The number grows only for those that were abandoned, a subset of lost: whose
// jobs a worker has had. A task that was never enqueued, or that Redis forgot,
// says nothing about its jobs.
func RingAgain(ctx context.Context, tx pgx.Tx, lost, abandoned []uuid.UUID) ([]Ring, error) {
	rows, err := tx.Query(ctx, `
		WITH gone AS (DELETE FROM rings WHERE id = ANY($1) RETURNING kind, number + (id = ANY(coalesce($2::uuid[], '{}')))::int AS number, jobs)
		SELECT g.kind, g.number, j.id, coalesce(j.campaign_id, '00000000-0000-0000-0000-000000000000')
		FROM gone g
		CROSS JOIN LATERAL unnest(g.jobs) AS i (id)
		CROSS JOIN LATERAL (SELECT id, campaign_id, state FROM jobs WHERE id = i.id) j
		WHERE j.state = 'queued'
		ORDER BY g.kind, g.number, j.id`, lost, abandoned)
	if err != nil {
		return nil, fmt.Errorf("job.RingAgain: %w", err)
	}
	var bundles []Ring
	var kind Kind
	var number int
	var ref Ref
	_, err = pgx.ForEachRow(rows, []any{&kind, &number, &ref.ID, &ref.CampaignID}, func() error {
		last := len(bundles) - 1
		if last < 0 || bundles[last].Kind != kind || bundles[last].Number != number || len(bundles[last].Jobs) == MaxRing {
			bundles = append(bundles, Ring{ID: NewID(), Kind: kind, Number: number})
			last++
		}
		bundles[last].Jobs = append(bundles[last].Jobs, ref)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("job.RingAgain: %w", err)
	}
	var b pgx.Batch
	for _, r := range bundles {
		ids := make([]uuid.UUID, len(r.Jobs))
		for i, j := range r.Jobs {
			ids[i] = j.ID
		}
		b.Queue(`INSERT INTO rings (id, kind, number, jobs) VALUES ($1, $2, $3, $4)`, r.ID, r.Kind, r.Number, ids)
	}
	if b.Len() == 0 {
		return nil, nil
	}
	if err := tx.SendBatch(ctx, &b).Close(); err != nil {
		return nil, fmt.Errorf("job.RingAgain: %w", err)
	}
	return bundles, nil
}

// DeleteExpired deletes up to limit final jobs whose time is over, and returns how many.
func DeleteExpired(ctx context.Context, db postgres.DB, limit int) (int, error) {
	tag, err := db.Exec(ctx, `
		DELETE FROM jobs WHERE id IN (
			SELECT id FROM jobs
			WHERE expires_at < clock_timestamp() AND state IN ('succeeded', 'failed')
			ORDER BY expires_at LIMIT $1 FOR UPDATE SKIP LOCKED)`, limit)
	if err != nil {
		return 0, fmt.Errorf("job.DeleteExpired: %w", err)
	}
	return int(tag.RowsAffected()), nil
}
