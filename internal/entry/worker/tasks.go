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

// finalize makes jobs final, or returns why it could not. again tells that they were
// delivered before.
type finalize func(ctx context.Context, jobs []job.Ref, again bool) error

// handle returns the handler of a kind of task: finalize, and what all kinds have in
// common.
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
		defer w.release(ctx, message.ID)
		if len(message.Jobs) > 0 {
			again := redelivered || message.Delivery > 1
			defer w.metrics.begun(message.Kind, len(message.Jobs), again)()
			err := finalize(ctx, message.Jobs, again)
			if locked, ok := errors.AsType[*walletsLocked](err); ok { // the sweep lost-jobs issues its jobs when their campaigns are free
				return queue.Snooze(job.PutOff(ctx, w.db, message.ID, locked.jobs))
			}
			if err != nil {
				return err
			}
		}
		w.afterCommit.finished(message.ID)
		return nil
	}
}

// acquire reports whether this worker may do a task, or a job that was delivered before. Without Redis it may.
func (w *Worker) acquire(ctx context.Context, id uuid.UUID) bool {
	ctx, cancel := context.WithTimeout(ctx, redisTimeout)
	defer cancel()
	mine, err := w.heartbeat.Acquire(ctx, id)
	if err != nil {
		w.logger.Debug("a task is not claimed in Redis; Postgres decides", "id", id, "error", err)
	}
	return mine || err != nil
}

func (w *Worker) release(ctx context.Context, task uuid.UUID) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), redisTimeout)
	defer cancel()
	if err := w.heartbeat.Release(ctx, task); err != nil {
		w.logger.Debug("the claim on a task was not given back", "task", task, "error", err)
	}
}

// handleItem returns the handler of agenda items, which run leads as far as they go now. Their
// tasks are no messages of the outbox: nothing is claimed in Redis, no delivery is counted,
// and a task is never tried again. After any failure the item is due again at some time, and
// the sweep due-items finds it.
func (w *Worker) handleItem(run func(ctx context.Context, item lease.Item) error) queue.Handler {
	return func(ctx context.Context, task queue.Task, _ bool) error {
		ctx = postgres.As(ctx, transactionsOf(task.Kind))
		item, err := lease.ItemOf(task)
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
func (w *Worker) dispatchDue(items []lease.Item) {
	for _, item := range items {
		if slices.ContainsFunc(w.consumers, func(s queue.Consumer) bool { return s.Kind == item.Kind }) {
			w.dispatcher.Dispatch(item.Task())
		}
	}
}

// transactionsOf tells what the transactions of a kind of tasks are for. The batches of shards say it themselves.
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

// afterCommit does the work that follows a commit, in the background: it announces jobs
// in Redis, and deletes finished messages from the outbox. This work may fail: clients that
// wait for a job also poll, and the sweep lost-jobs finds messages that were not deleted.
type afterCommit struct {
	announcements *batch.Coalescer[uuid.UUID, struct{}] // jobs that say something new
	messages      *batch.Coalescer[uuid.UUID, struct{}]
}

const (
	announceBatch = 512
	deleteBatch   = 256
	maxPending    = 1 << 16
	deleteLinger  = 50 * time.Millisecond // nothing waits for the deletion, so each takes many along
	deleteTimeout = 5 * time.Second       // what a shutdown may wait for it; the sweep lost-jobs deletes the rest
)

func newAfterCommit(db postgres.DB, announcements *job.Announcements, logger *slog.Logger) *afterCommit {
	return &afterCommit{
		announcements: batch.NewQuiet(batch.Options{Size: announceBatch, InFlight: 1, Pending: maxPending, Timeout: redisTimeout},
			func(ctx context.Context, ids []uuid.UUID) error {
				err := announcements.Publish(ctx, ids)
				if err != nil {
					logger.Debug("news of jobs not announced; waiters poll", "jobs", len(ids), "error", err)
				}
				return err
			}),
		messages: batch.NewQuiet(batch.Options{Size: deleteBatch, Linger: deleteLinger, InFlight: 1, Pending: maxPending, Timeout: deleteTimeout},
			func(ctx context.Context, ids []uuid.UUID) error {
				err := job.DeleteMessages(ctx, db, ids)
				if err != nil {
					logger.Warn("finished messages not deleted; the sweep lost-jobs will delete them", "messages", len(ids), "error", err)
				}
				return err
			}),
	}
}

func (a *afterCommit) finalized(outcomes []job.Outcome) {
	for _, o := range outcomes {
		a.changed(o.ID)
	}
}

// changed announces that a job says something new of itself.
func (a *afterCommit) changed(id uuid.UUID) {
	_ = a.announcements.Submit(id) // full: waiters poll
}

func (a *afterCommit) finished(message uuid.UUID) {
	_ = a.messages.Submit(message) // full: the sweep lost-jobs deletes it
}

func (a *afterCommit) close() {
	a.announcements.Close()
	a.messages.Close()
}
