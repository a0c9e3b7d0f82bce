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
	errElsewhere = errors.New("another worker has this task or job")
	errDraining  = errors.New("this worker is shutting down")
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
		if !w.claim(ctx, message.ID) {
			return queue.Later(errElsewhere)
		}
		defer w.release(ctx, message.ID)
		if len(message.Jobs) > 0 {
			again := redelivered || message.Delivery > 1
			defer w.metrics.begun(message.Kind, len(message.Jobs), again)()
			err := finalize(ctx, message.Jobs, again)
			if locked, ok := errors.AsType[*walletsLocked](err); ok { // the sweep lost-jobs issues its jobs when their campaigns are free
				return queue.Later(outbox.PutOff(ctx, w.db, message.ID, locked.jobs))
			}
			if err != nil {
				return err
			}
		}
		w.afterCommit.finished(message.ID)
		return nil
	}
}

// claim reports whether this worker may do a task, or a job that was delivered before. Without Redis it may.
func (w *Worker) claim(ctx context.Context, id uuid.UUID) bool {
	ctx, cancel := context.WithTimeout(ctx, redisTimeout)
	defer cancel()
	mine, err := w.heartbeat.Claim(ctx, id)
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

// failed returns the error of an attempt that failed for n jobs; err is that of the
// first one.
func failed(n int, err error) error {
	return fmt.Errorf("%d jobs not done: %w", n, err)
}
