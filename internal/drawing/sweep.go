package drawing

import (
	"context"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/job"
	"triprize/internal/platform/postgres"
	"triprize/internal/platform/sweep"
)

// StuckAfter is how long a campaign is drawing without a lock and a job until it gets a new job.
const StuckAfter = 30 * time.Second

// StuckDraws is the sweep that makes a new draw job, for every campaign that has
// been drawing for a while without an execution lock and without a queued job: its job was given up.
func StuckDraws(db postgres.Pool, after, retention time.Duration, enqueue job.Enqueuer, logger *slog.Logger) sweep.Sweep {
	return sweep.Sweep{Name: "stuck-draws", Every: time.Minute, Counts: []string{"found", "enqueued"}, Run: func(ctx context.Context, run sweep.Run) error {
		return run.Batches(func(limit int) (int, error) {
			var messages []job.Message
			var looked int
			err := postgres.InTx(ctx, db, func(tx pgx.Tx) error {
				messages = nil
				locked, err := lockStuck(ctx, tx, after, limit)
				if err != nil {
					return err
				}
				stuck, err := withoutJob(ctx, tx, locked)
				if err != nil {
					return err
				}
				looked = len(locked)
				for _, id := range stuck {
					logger.Warn("campaign not drawn; making a new draw job", "campaign", id)
					made, err := job.Insert(ctx, tx, job.DrawRequest(id, job.BySweep, "/"+uuid.NewString(), retention, job.Origin{}))
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
			run.Counts["found"] += len(messages)
			enqueued, err := enqueue(ctx, messages)
			run.Counts["enqueued"] += enqueued
			return looked, err
		})
	}}
}

// noJob is true for a campaign c without a queued draw job. It looks for queued jobs in the
// outbox: every queued job is in a message, and there are few messages for draws.
const noJob = `NOT EXISTS (
	SELECT FROM outbox_messages m CROSS JOIN LATERAL unnest(m.jobs) AS i (id)
	CROSS JOIN LATERAL (SELECT campaign_id, state FROM jobs WHERE id = i.id) j
	WHERE m.kind = 'draw' AND j.state = 'queued' AND j.campaign_id = c.id)`

// lockStuck locks and returns sold-out campaigns that have no lock and no queued job.
func lockStuck(ctx context.Context, tx pgx.Tx, after time.Duration, limit int) ([]uuid.UUID, error) {
	stuck, err := postgres.Collect(ctx, tx, pgx.RowTo[uuid.UUID], `
		SELECT c.id FROM campaigns c
		WHERE c.state = 'drawing' AND c.draw_started_at < clock_timestamp() - $1 * interval '1 second'
		  AND c.execution_lock_id IS NULL AND `+noJob+`
		ORDER BY c.draw_started_at LIMIT $2 FOR NO KEY UPDATE OF c SKIP LOCKED`, after.Seconds(), limit)
	return stuck, fault.At(err, "drawing.lockStuck")
}

// withoutJob returns those of some locked campaigns that have no queued job even now: another
// sweep may have made one, and committed, between the snapshot of lockStuck and its locks.
func withoutJob(ctx context.Context, tx pgx.Tx, locked []uuid.UUID) ([]uuid.UUID, error) {
	stuck, err := postgres.Collect(ctx, tx, pgx.RowTo[uuid.UUID], `
		SELECT c.id FROM unnest($1::uuid[]) AS c (id) WHERE `+noJob, locked)
	return stuck, fault.At(err, "drawing.withoutJob")
}
