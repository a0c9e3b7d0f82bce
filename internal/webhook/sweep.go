package webhook

import (
	"context"
	"errors"
	"time"

	"triprize/internal/platform/postgres"
	"triprize/internal/platform/queue"
	"triprize/internal/platform/sweep"
)

// Due is the part of the sweep due-items for endpoints that have deliveries. It also fails
// what waits for endpoints that are disabled.
func Due(db postgres.Pool, client *queue.Client) sweep.Sweep {
	return sweep.Sweep{Counts: []string{Leases.Name + "_due", Leases.Name + "_enqueued", "deliveries_failed"}, Run: func(ctx context.Context, run sweep.Run) error {
		return errors.Join(Leases.EnqueueDue(ctx, run, db, client, ReenqueueAfter), run.Batches(func(limit int) (int, error) {
			n, err := FailDisabled(ctx, db, limit)
			run.Counts["deliveries_failed"] += n
			return n, err
		}))
	}}
}

// Prunes delete old events, and soon what is left of endpoints that were deleted: their time is over.
func Prunes(db postgres.Pool, retention time.Duration) []sweep.Prune {
	return []sweep.Prune{
		sweep.OlderThan("webhook_events_deleted", db, retention, DeleteEvents),
		{Count: "webhook_endpoints_deleted", Begin: func() sweep.Delete {
			return func(ctx context.Context, limit int) (deleted int, more bool, err error) {
				deleted, err = DeleteEndpoints(ctx, db, limit)
				return deleted, deleted > 0, err
			}
		}},
	}
}
