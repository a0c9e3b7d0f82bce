package worker

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/google/uuid"

	"triprize/internal/job"
	"triprize/internal/lease"
	"triprize/internal/platform/batch"
	"triprize/internal/platform/postgres"
	"triprize/internal/platform/queue"
	"triprize/internal/webhook"
)

var (
	errTaken    = errors.New("another worker has this task or job")
	errDraining = errors.New("this worker is shutting down")
)

// finalize makes jobs final, or returns why it could not.
type finalize func(ctx context.Context, jobs []job.Ref, redelivered bool) error

// handle returns the handler of a kind of task, which calls finalize.
func (w *Worker) handle(finalize finalize) queue.Handler {
	return func(ctx context.Context, task queue.Task, redelivered bool) error {
		ctx = postgres.As(ctx, transactionsOf(task.Kind))
		message, err := job.MessageOf(task)
		if err != nil { // the sweep lost-jobs issues its jobs again
			w.logger.Error("a task that names no jobs was dropped", "kind", task.Kind, "task", task.ID, "error", err)
			return nil
		}
		if !w.acquire(ctx, message.ID) {
			return queue.Snooze(errTaken)
		}
		done := false // also after a panic
		defer func() { w.release(ctx, message.ID, !done) }()
		if len(message.Jobs) > 0 {
			redelivered := redelivered || message.Delivery > 1
			defer w.metrics.begun(message.Kind, len(message.Jobs), redelivered)()
			err := finalize(ctx, message.Jobs, redelivered)
			if locked, ok := errors.AsType[*walletsLocked](err); ok { // the sweep lost-jobs issues its jobs once their campaigns are unlocked
				err := queue.Snooze(job.Snooze(ctx, w.db, message.ID, locked.jobs))
				done = err == nil
				return err
			}
			if err != nil {
				return err
			}
		}
		done = true
		_ = w.deletions.Submit(message.ID) // full: the sweep lost-jobs deletes it
		return nil
	}
}

// acquire reports whether this worker may run a task or a redelivered job. Without Redis it may.
func (w *Worker) acquire(ctx context.Context, id uuid.UUID) bool {
	ctx, cancel := context.WithTimeout(ctx, w.redisTimeout)
	defer cancel()
	mine, err := w.heartbeat.Acquire(ctx, id)
	if err != nil {
		w.logger.Debug("a task is not locked in Redis; Postgres decides", "id", id, "error", err)
	}
	return mine || err != nil
}

func (w *Worker) release(ctx context.Context, task uuid.UUID, goesBack bool) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), w.redisTimeout)
	defer cancel()
	if err := w.heartbeat.Release(ctx, task, goesBack); err != nil {
		w.logger.Debug("the lock of a task was not released", "task", task, "error", err)
	}
}

// handleItem returns the handler of leased items. Their tasks are not messages of the outbox: nothing is
// locked in Redis, no delivery is counted, and no task is retried. After any failure the item becomes due
// again, and the sweep due-items finds it.
func (w *Worker) handleItem(run func(ctx context.Context, item lease.Item) error) queue.Handler {
	return func(ctx context.Context, task queue.Task, _ bool) error {
		ctx = postgres.As(ctx, transactionsOf(task.Kind))
		item, err := lease.ItemOf(task)
		if err != nil {
			w.logger.Error("a task that names no item was dropped", "kind", task.Kind, "error", err)
			return nil
		}
		if w.draining.Err() != nil {
			return nil //nolint:nilerr // the item stays due for other workers
		}
		if err := run(ctx, item); err != nil && w.draining.Err() == nil {
			w.metrics.faults.Inc()
			log := w.logger.Error
			if isTransient(err) {
				log = w.logger.Warn
			}
			log("an item failed; it is due again when its lease expires", "kind", item.Kind, "item", item.ID, "error", err)
		}
		return nil
	}
}

// dispatchDue enqueues items that a commit made due, if this worker consumes their kind.
func (w *Worker) dispatchDue(items []lease.Item) {
	for _, item := range items {
		if slices.ContainsFunc(w.consumers, func(s queue.Consumer) bool { return s.Kind == item.Kind }) {
			w.dispatcher.Dispatch(item.Task())
		}
	}
}

// transactionsOf returns the purpose of the transactions of a kind of tasks. Batches set their own.
func transactionsOf(kind string) postgres.Transaction {
	switch kind {
	case string(job.KindCampaignCancellation):
		return postgres.TxCampaign
	case string(job.KindEvent):
		return postgres.TxPayment
	case webhook.Kind, webhook.KindSlow:
		return postgres.TxWebhook
	}
	return postgres.Transaction(kind)
}

const (
	announceBatch = 512
	deleteBatch   = 256
	maxPending    = 1 << 16
	deleteLinger  = 50 * time.Millisecond // no caller waits for a deletion, so each deletes many
	deleteTimeout = 5 * time.Second       // of a deletion; after a shutdown the sweep lost-jobs deletes the rest
)

// newAnnouncements announces jobs that changed, in Redis.
func newAnnouncements(announcements *job.Announcements, timeout time.Duration, logger *slog.Logger) *batch.Coalescer[uuid.UUID, struct{}] {
	return batch.NewQuiet(batch.Options{Size: announceBatch, InFlight: 1, Pending: maxPending, Timeout: timeout}, func(ctx context.Context, ids []uuid.UUID) error {
		err := announcements.Publish(ctx, ids)
		if err != nil {
			logger.Debug("changes of jobs not announced; waiters poll", "jobs", len(ids), "error", err)
		}
		return err
	})
}

// newDeletions deletes finished messages from the outbox.
func newDeletions(db postgres.DB, timeout time.Duration, logger *slog.Logger) *batch.Coalescer[uuid.UUID, struct{}] {
	return batch.NewQuiet(batch.Options{Size: deleteBatch, Linger: deleteLinger, InFlight: 1, Pending: maxPending, Timeout: timeout}, func(ctx context.Context, ids []uuid.UUID) error {
		err := job.DeleteMessages(ctx, db, ids)
		if err != nil {
			logger.Warn("finished messages not deleted; the sweep lost-jobs will delete them", "messages", len(ids), "error", err)
		}
		return err
	})
}

// changed announces that a job changed.
func (w *Worker) changed(id uuid.UUID) {
	_ = w.announcements.Submit(id) // full: waiters poll
}
