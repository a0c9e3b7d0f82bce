package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/google/uuid"

	"triprize/internal/platform/queue"
	"triprize/internal/store/job"
)

var (
	errElsewhere = errors.New("another worker is at work on some of these jobs")
	errDraining  = errors.New("this worker is shutting down")
	errBusy      = errors.New("wallets or campaigns of these jobs are locked by somebody else")
)

// settle brings jobs to their end, or says why it could not. again tells that
// they were delivered before.
type settle func(ctx context.Context, jobs []job.Ref, again bool) error

// handle wraps what every kind of task has in common.
func (w *Worker) handle(settle settle) queue.Handler {
	return func(ctx context.Context, task queue.Task, redelivered bool) error {
		ring, err := job.RingOf(task)
		if err != nil {
			return err
		}
		w.hold(ctx, ring.ID)
		defer w.letGo(ctx, ring.ID)
		jobs, leftOut := w.claims.take(ctx, ring)
		defer w.claims.drop(jobs)
		if len(jobs) > 0 {
			if err := settle(ctx, jobs, redelivered || ring.Number > 1); err != nil {
				return err
			}
		}
		if leftOut {
			return queue.Later(errElsewhere)
		}
		w.aftermath.finished(ring.ID)
		return nil
	}
}

func (w *Worker) hold(ctx context.Context, ring uuid.UUID) {
	ctx, cancel := context.WithTimeout(ctx, redisTimeout)
	defer cancel()
	if err := w.presence.Hold(ctx, ring); err != nil {
		w.logger.Debug("task not noted as held", "ring", ring, "error", err)
	}
}

func (w *Worker) letGo(ctx context.Context, ring uuid.UUID) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), redisTimeout)
	defer cancel()
	if err := w.presence.Drop(ctx, ring); err != nil {
		w.logger.Debug("task not noted as let go", "ring", ring, "error", err)
	}
}

// newDelay returns the delays of attempts against faults of the surroundings:
// 1, 2, 4 … 30 s, each with a jitter.
func newDelay() *backoff.ExponentialBackOff {
	delay := backoff.NewExponentialBackOff()
	delay.InitialInterval, delay.Multiplier, delay.MaxInterval = time.Second, 2, 30*time.Second
	return delay
}

// pause waits, or returns why there is no point in waiting.
func (w *Worker) pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return queue.Later(ctx.Err())
	case <-w.draining:
		return queue.Later(errDraining)
	}
}

// failed says of how many jobs an attempt failed, and why the first one did.
func failed(n int, err error) error {
	return fmt.Errorf("%d jobs not done: %w", n, err)
}
