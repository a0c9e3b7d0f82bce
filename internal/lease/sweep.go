package lease

import (
	"context"
	"time"

	"triprize/internal/platform/postgres"
	"triprize/internal/platform/queue"
	"triprize/internal/platform/sweep"
)

// EachDue takes the items that are due in batches, and does something with each batch. They are
// due again after again. A sweep that calls it counts TABLE_due and TABLE_enqueued.
func (a Table) EachDue(ctx context.Context, run sweep.Run, db postgres.DB, again time.Duration, do func(due []Item) error) error {
	return run.Batches(func(limit int) (int, error) {
		due, err := a.TakeDue(ctx, db, again, limit)
		if err != nil || len(due) == 0 {
			return 0, err
		}
		run.Counts[a.Name+"_due"] += len(due)
		return len(due), do(due)
	})
}

// EnqueueDue enqueues tasks for items that are due: a task was lost, a worker has died, or the time
// has come that the item waited for. An item is then not due for a while, so that it has one task at
// a time, or few when the queue is long.
func (a Table) EnqueueDue(ctx context.Context, run sweep.Run, db postgres.DB, client *queue.Client, again time.Duration) error {
	return a.EachDue(ctx, run, db, again, func(due []Item) error {
		n, err := a.Enqueue(ctx, db, client, due)
		run.Counts[a.Name+"_enqueued"] += n
		return err
	})
}
