package recovery

import (
	"cmp"
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/platform/postgres"
	"triprize/internal/service/draw"
	"triprize/internal/store/campaign"
	"triprize/internal/store/job"
)

// staleLocks releases execution locks that were not renewed for longer than the lease.
// The sweep lost-jobs finds the draw jobs of their holders.
func (s *Sweeper) staleLocks(ctx context.Context) (Counts, error) {
	counts := Counts{"released": 0}
	err := s.batches(func(limit int) (int, error) {
		released, err := campaign.ReleaseStale(ctx, s.db, cmp.Or(s.settings.Draw.Lease, draw.Lease), limit)
		for _, id := range released {
			s.logger.Warn("execution lock released: its worker no longer renewed it", "campaign", id)
		}
		counts["released"] += len(released)
		return len(released), err
	})
	return counts, err
}

// stuckDraws makes a new draw job for every campaign that has been drawing for a while
// without an execution lock and without a queued job: its job was given up.
func (s *Sweeper) stuckDraws(ctx context.Context) (Counts, error) {
	counts := Counts{"found": 0, "enqueued": 0}
	err := s.batches(func(limit int) (int, error) {
		var messages []job.Message
		err := postgres.InTx(ctx, s.db, func(tx pgx.Tx) error {
			stuck, err := lockStuck(ctx, tx, cmp.Or(s.settings.Sweeps.StuckDrawsAfter, 30*time.Second), limit)
			if err != nil {
				return err
			}
			for _, id := range stuck {
				s.logger.Warn("campaign not drawn; making a new draw job", "campaign", id)
				made, err := job.Insert(ctx, tx, job.DrawRequest(id, job.BySweep, "/"+uuid.NewString(), s.settings.Retention.Jobs, job.Origin{}))
				if err != nil {
					return err
				}
				messages = append(messages, made...)
			}
			return nil
		})
		if err != nil {
			return 0, err
		}
		s.draws.Note(messages...)
		counts["found"] += len(messages)
		enqueued, err := s.enqueue(ctx, messages)
		counts["enqueued"] += enqueued
		return len(messages), err
	})
	return counts, err
}

// lockStuck locks and returns sold-out campaigns that have no lock and no queued job. It
// looks for queued jobs in the outbox: every queued job is in a message, and there are
// few messages for draws.
func lockStuck(ctx context.Context, tx pgx.Tx, after time.Duration, limit int) ([]uuid.UUID, error) {
	stuck, err := postgres.Collect(ctx, tx, pgx.RowTo[uuid.UUID], `
		SELECT c.id FROM campaigns c
		WHERE c.state = 'drawing' AND c.draw_started_at < clock_timestamp() - $1 * interval '1 second'
		  AND c.execution_lock_id IS NULL
		  AND NOT EXISTS (
			SELECT FROM outbox_messages m CROSS JOIN LATERAL unnest(m.jobs) AS i (id)
			CROSS JOIN LATERAL (SELECT campaign_id, state FROM jobs WHERE id = i.id) j
			WHERE m.kind = 'draw' AND j.state = 'queued' AND j.campaign_id = c.id)
		ORDER BY c.draw_started_at LIMIT $2 FOR NO KEY UPDATE OF c SKIP LOCKED`, after.Seconds(), limit)
	return stuck, fault.At(err, "recovery.lockStuck")
}
