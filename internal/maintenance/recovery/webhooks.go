package recovery

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/platform/postgres"
	"triprize/internal/service/webhooks"
	"triprize/internal/store/webhook"
)

// dueWebhooks enqueues tasks for endpoints of apps that something is due for and that no
// worker has: each has one task at a time, however often the sweep runs. It fails what waits
// for endpoints that are disabled.
func (s *Sweeper) dueWebhooks(ctx context.Context) (Counts, error) {
	counts := Counts{"endpoints_enqueued": 0, "deliveries_failed": 0}
	after := uuid.Nil
	err := s.batches(func(limit int) (int, error) {
		tasks, last, err := webhooks.Due(ctx, s.db, after, limit)
		if err != nil {
			return 0, err
		}
		for _, task := range tasks {
			if err := s.client.Enqueue(ctx, task); err != nil {
				return 0, err
			}
			counts["endpoints_enqueued"]++
		}
		after = last
		return len(tasks), nil
	})
	if err != nil {
		return counts, err
	}
	return counts, s.batches(func(limit int) (int, error) {
		n, err := webhook.FailDisabled(ctx, s.db, limit)
		counts["deliveries_failed"] += n
		return n, err
	})
}

// webhookEndpoints deletes what is left of endpoints that were deleted, and of listeners
// whose time is over.
func (s *Sweeper) webhookEndpoints() prune {
	return func(ctx context.Context, limit int) (deleted int, more bool, err error) {
		err = postgres.InTx(ctx, s.db, func(tx pgx.Tx) (err error) {
			deleted, err = webhook.DeleteEndpoints(ctx, tx, limit)
			return err
		})
		return deleted, deleted > 0, err
	}
}
