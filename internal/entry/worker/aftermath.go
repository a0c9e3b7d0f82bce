package worker

import (
	"context"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"triprize/internal/platform/batch"
	"triprize/internal/platform/idempotency"
	"triprize/internal/platform/postgres"
	"triprize/internal/store/job"
)

// redisTimeout bounds each conversation with Redis that a worker can do without.
const redisTimeout = time.Second

// aftermath does, in the background, what follows a commit and may fail: it
// announces final jobs in Redis, and takes finished rings out of the outbox.
// What it misses is found by a poll, or by the sweep lost-jobs.
type aftermath struct {
	announce *batch.Coalescer[job.Outcome, struct{}]
	rings    *batch.Coalescer[uuid.UUID, struct{}]
}

const (
	announcedAtOnce = 512
	ringsAtOnce     = 256
	aftermathWaits  = 1 << 16
	ringLinger      = 50 * time.Millisecond // nobody waits for a ring to go
)

func newAftermath(rdb redis.UniversalClient, db postgres.DB, claims *claims, announcements *job.Announcements, logger *slog.Logger) *aftermath {
	whole := func(error) bool { return true }
	return &aftermath{
		announce: batch.New(
			batch.Options{Size: announcedAtOnce, InFlight: 1, Pending: aftermathWaits, Timeout: redisTimeout, Whole: whole},
			func(ctx context.Context, outcomes []job.Outcome) ([]struct{}, error) {
				_, err := rdb.Pipelined(ctx, func(pipe redis.Pipeliner) error {
					ids := make([]uuid.UUID, len(outcomes))
					for i, o := range outcomes {
						ids[i] = o.ID
						state := idempotency.Success
						if o.Problem != nil {
							state = idempotency.Failed
						}
						claims.Settle(ctx, pipe, o.ID, state)
					}
					announcements.Publish(ctx, pipe, ids)
					return nil
				})
				if err != nil {
					logger.Debug("final jobs not announced; waiters poll", "jobs", len(outcomes), "error", err)
				}
				return make([]struct{}, len(outcomes)), err
			}),
		rings: batch.New(
			batch.Options{Size: ringsAtOnce, Linger: ringLinger, InFlight: 1, Pending: aftermathWaits, Timeout: 5 * time.Second, Whole: whole},
			func(ctx context.Context, ids []uuid.UUID) ([]struct{}, error) {
				err := job.DeleteRings(ctx, db, ids)
				if err != nil {
					logger.Warn("finished rings not deleted; lost-jobs will", "rings", len(ids), "error", err)
				}
				return make([]struct{}, len(ids)), err
			}),
	}
}

func (a *aftermath) settled(outcomes []job.Outcome) {
	for _, o := range outcomes {
		_ = a.announce.Submit(o) // full: waiters poll
	}
}

func (a *aftermath) finished(ring uuid.UUID) {
	_ = a.rings.Submit(ring) // full: lost-jobs finds that nothing is left to do
}

func (a *aftermath) close() {
	a.announce.Close()
	a.rings.Close()
}
