package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/google/uuid"

	"triprize/internal/fault"
	"triprize/internal/job"
	"triprize/internal/queue"
)

var (
	errElsewhere = errors.New("another worker is at work on some of these jobs")
	errDraining  = errors.New("this worker is shutting down")
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

// alone makes one attempt at a suspect with everything else in this process held
// back. The attempt is committed first. When the deliveries are used up the job
// is settled as failed instead.
func (w *Worker) alone(ctx context.Context, kind job.Kind, id uuid.UUID, attempt func(ctx context.Context) error) error {
	w.crowd.Lock()
	defer w.crowd.Unlock()
	attempts, err := job.Begin(ctx, w.db, []uuid.UUID{id})
	if err != nil || attempts == 0 {
		return err
	}
	if attempts > w.settings.MaxDeliveries {
		return w.giveUp(ctx, kind, id)
	}
	err = attempt(ctx)
	if waitsOut(err) || errors.Is(err, queue.ErrLater) {
		if uncounted := job.Uncount(ctx, w.db, []uuid.UUID{id}); uncounted != nil {
			w.logger.Warn("an attempt could not be uncounted", "job", id, "error", uncounted)
		}
	}
	return err
}

func (w *Worker) giveUp(ctx context.Context, kind job.Kind, id uuid.UUID) error {
	problem := job.ProblemOf(fault.New(fault.InternalError, "the job could not be done in %d attempts; it has been reported", w.settings.MaxDeliveries))
	given, err := job.GiveUp(ctx, w.db, []uuid.UUID{id}, problem)
	if err != nil || len(given) == 0 {
		return err
	}
	w.logger.Error("job given up: every worker that tried it failed", "job", id, "kind", kind, "attempts", w.settings.MaxDeliveries)
	outcomes := []job.Outcome{{ID: id, Problem: &problem}}
	w.metrics.givenUp.Inc()
	w.metrics.settled(kind, outcomes)
	w.aftermath.settled(outcomes)
	return nil
}

// failed says of how many jobs an attempt failed, and why the first one did.
func failed(n int, err error) error {
	return fmt.Errorf("%d jobs not done: %w", n, err)
}
