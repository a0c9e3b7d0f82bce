package worker

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"triprize/internal/platform/queue"
	"triprize/internal/store/job"
	"triprize/internal/store/outbox"
)

var (
	errElsewhere = errors.New("another worker works on some of these jobs")
	errDraining  = errors.New("this worker is shutting down")
	errBusy      = errors.New("wallets or campaigns of these jobs are locked by another transaction")
)

// finalize makes jobs final, or returns why it could not. again tells that they were
// delivered before.
type finalize func(ctx context.Context, jobs []job.Ref, again bool) error

// handle returns the handler of a kind of task: finalize, and what all kinds have in
// common.
func (w *Worker) handle(finalize finalize) queue.Handler {
	return func(ctx context.Context, task queue.Task, redelivered bool) error {
		message, err := outbox.MessageOf(task)
		if err != nil { // the sweep lost-jobs issues its jobs again
			w.logger.Error("a task that names no jobs was dropped", "kind", task.Kind, "task", task.ID, "error", err)
			return nil
		}
		w.started(ctx, message.ID)
		defer w.finished(ctx, message.ID)
		jobs, leftOut := w.claims.take(ctx, message)
		defer w.claims.drop(jobs)
		if len(jobs) > 0 {
			again := redelivered || message.Delivery > 1
			defer w.metrics.begun(message.Kind, len(jobs), again)()
			err := finalize(ctx, jobs, again)
			if errors.Is(err, errParked) && !leftOut {
				w.parkMessage(ctx, message)
				return nil
			}
			if err != nil {
				return err
			}
		}
		if leftOut {
			return queue.Later(errElsewhere)
		}
		w.afterCommit.finished(message.ID)
		return nil
	}
}

// started records in Redis that this worker works on a task.
func (w *Worker) started(ctx context.Context, task uuid.UUID) {
	ctx, cancel := context.WithTimeout(ctx, redisTimeout)
	defer cancel()
	if err := w.heartbeat.Started(ctx, task); err != nil {
		w.logger.Debug("the start of a task was not recorded", "task", task, "error", err)
	}
}

func (w *Worker) finished(ctx context.Context, task uuid.UUID) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), redisTimeout)
	defer cancel()
	if err := w.heartbeat.Finished(ctx, task); err != nil {
		w.logger.Debug("the end of a task was not recorded", "task", task, "error", err)
	}
}

// failed returns the error of an attempt that failed for n jobs; err is that of the
// first one.
func failed(n int, err error) error {
	return fmt.Errorf("%d jobs not done: %w", n, err)
}
