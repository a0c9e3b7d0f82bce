package recovery

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/platform/postgres"
	"triprize/internal/store/campaign"
	"triprize/internal/store/hold"
	"triprize/internal/store/job"
)

// staleLocks takes execution locks away from workers that were silent for longer
// than the lease. Their draw jobs are found by lost-jobs.
func (s *Sweeper) staleLocks(ctx context.Context) (Counts, error) {
	counts := Counts{"released": 0}
	err := s.batches(func(limit int) (int, error) {
		released, err := campaign.ReleaseStale(ctx, s.db, s.settings.Draw.Lease, limit)
		for _, id := range released {
			s.logger.Warn("execution lock taken away from a silent worker", "campaign", id)
		}
		counts["released"] += len(released)
		return len(released), err
	})
	return counts, err
}

// stuckDraws gives a new draw job to every campaign that has been drawing for a
// while with nobody at it and no job on its way: the job was given up.
func (s *Sweeper) stuckDraws(ctx context.Context) (Counts, error) {
	counts := Counts{"found": 0, "rung": 0}
	err := s.batches(func(limit int) (int, error) {
		var rings []job.Ring
		err := postgres.InTx(ctx, s.db, func(tx pgx.Tx) error {
			stuck, err := lockStuck(ctx, tx, s.settings.Sweeps.StuckDrawsAfter.Seconds(), limit)
			if err != nil {
				return err
			}
			for _, id := range stuck {
				s.logger.Warn("a campaign was not drawn; it gets a new draw job", "campaign", id)
				made, err := job.Insert(ctx, tx, job.DrawRequest(id, "/"+uuid.NewString(), s.settings.Retention.Jobs))
				if err != nil {
					return err
				}
				rings = append(rings, made...)
			}
			return nil
		})
		if err != nil {
			return 0, err
		}
		counts["found"] += len(rings)
		rung, err := s.enqueue(ctx, rings)
		counts["rung"] += rung
		return len(rings), err
	})
	return counts, err
}

// lockStuck locks and returns sold-out campaigns that nobody draws. Every
// queued job is in a ring of the outbox, and there are few rings for draws, so
// that is where to look for a job on its way.
func lockStuck(ctx context.Context, tx pgx.Tx, afterSeconds float64, limit int) ([]uuid.UUID, error) {
	rows, err := tx.Query(ctx, `
		SELECT c.id FROM campaigns c
		WHERE c.state = 'drawing' AND c.draw_started_at < clock_timestamp() - $1 * interval '1 second'
		  AND c.execution_lock_id IS NULL
		  AND NOT EXISTS (
			SELECT FROM rings r CROSS JOIN LATERAL unnest(r.jobs) AS i (id)
			CROSS JOIN LATERAL (SELECT campaign_id, state FROM jobs WHERE id = i.id) j
			WHERE r.kind = 'draw' AND j.state = 'queued' AND j.campaign_id = c.id)
		ORDER BY c.id LIMIT $2 FOR NO KEY UPDATE OF c SKIP LOCKED`, afterSeconds, limit)
	if err != nil {
		return nil, fmt.Errorf("recovery.lockStuck: %w", err)
	}
	stuck, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
	if err != nil {
		return nil, fmt.Errorf("recovery.lockStuck: %w", err)
	}
	return stuck, nil
}

// oldRecords deletes final jobs whose retention is over.
func (s *Sweeper) oldRecords(ctx context.Context) (Counts, error) {
	counts := Counts{"jobs_deleted": 0, "holds_deleted": 0}
	jobs := s.batches(func(limit int) (int, error) {
		deleted, err := job.DeleteExpired(ctx, s.db, limit)
		counts["jobs_deleted"] += deleted
		return deleted, err
	})
	holds := s.batches(func(limit int) (int, error) {
		deleted, err := hold.DeleteEnded(ctx, s.db, s.settings.Retention.Holds, limit)
		counts["holds_deleted"] += deleted
		return deleted, err
	})
	return counts, errors.Join(jobs, holds)
}
