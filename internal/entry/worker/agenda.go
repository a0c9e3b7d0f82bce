package worker

import (
	"context"
	"slices"

	"triprize/internal/platform/queue"
	"triprize/internal/store/agenda"
)

// lead returns the handler of agenda items, which run leads as far as they go now. Their
// tasks are no messages of the outbox: nothing is claimed in Redis, no delivery is counted,
// and a task is never tried again. After any failure the item is due again at some time, and
// the sweep due-items finds it.
func (w *Worker) lead(run func(ctx context.Context, item agenda.Item) error) queue.Handler {
	return func(ctx context.Context, task queue.Task, _ bool) error {
		item, err := agenda.ItemOf(task)
		if err != nil {
			w.logger.Error("a task of no agenda item was dropped", "kind", task.Kind, "error", err)
			return nil
		}
		if w.draining.Err() != nil {
			return nil //nolint:nilerr // other workers have it when it is due
		}
		if err := run(ctx, item); err != nil && w.draining.Err() == nil {
			w.metrics.faults.Inc()
			log := w.logger.Error
			if isTransient(err) {
				log = w.logger.Warn
			}
			log("an agenda item could not be led on; it is due again when its lease is over", "kind", item.Kind, "item", item.ID, "error", err)
		}
		return nil
	}
}

// dispatchDue enqueues items that are due since a commit, if this worker's fleet takes their
// kind: otherwise nobody would take the tasks.
func (w *Worker) dispatchDue(items []agenda.Item) {
	for _, item := range items {
		if slices.ContainsFunc(w.shares, func(s queue.Share) bool { return s.Kind == item.Kind }) {
			w.dispatcher.Dispatch(item.Task())
		}
	}
}
