package worker

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/google/uuid"

	"triprize/internal/domain/fault"
	"triprize/internal/platform/postgres"
	"triprize/internal/platform/queue"
	"triprize/internal/store/job"
)

// exclusively makes one attempt at jobs while no batch, and no other such attempt, runs in
// this process. Draws go on: one may take a minute, and all shards would wait for it.
func (w *Worker) exclusively(ctx context.Context, kind job.Kind, jobs []job.Attempted, try func(ctx context.Context) error) error {
	return w.counted(ctx, kind, jobs, &w.exclusive, try)
}

// counted makes one attempt at jobs under a lock. The attempt is counted and committed
// first. When the count exceeds job.MaxDeliveries, the jobs are finalized as failed
// instead. When the attempt fails through its surroundings, the count is taken back.
func (w *Worker) counted(ctx context.Context, kind job.Kind, jobs []job.Attempted, lock sync.Locker, try func(ctx context.Context) error) error {
	begun, err := w.begin(ctx, kind, jobs, lock, try)
	if begun && (isTransient(err) || errors.Is(err, queue.ErrLater)) {
		w.uncount(ctx, jobs) // when others may run again: it may take long
	}
	return err
}

// begin counts an attempt and makes it. begun tells whether it may have been counted.
func (w *Worker) begin(ctx context.Context, kind job.Kind, jobs []job.Attempted, lock sync.Locker, try func(ctx context.Context) error) (begun bool, err error) {
	lock.Lock()
	defer lock.Unlock()
	count, err := job.Begin(ctx, w.db, jobs)
	if err != nil {
		return !postgres.HadNoEffect(err), err
	}
	if count == 0 {
		return false, nil
	}
	if count > w.settings.MaxDeliveries {
		return false, w.giveUp(ctx, kind, jobs)
	}
	return true, try(ctx)
}

// uncount takes back the count of an attempt. The cause of the failure may go on, so
// this is tried until it is done: meanwhile the handler keeps the task, and nobody else
// counts the next attempt.
func (w *Worker) uncount(ctx context.Context, jobs []job.Attempted) {
	counted := make([]job.Attempted, len(jobs))
	for i, one := range jobs {
		counted[i] = one.Next()
	}
	delays := newBackoff()
	for {
		try, cancel := context.WithTimeout(context.WithoutCancel(ctx), uncountTimeout)
		err := job.Uncount(try, w.db, counted)
		cancel()
		if err == nil {
			return
		}
		w.logger.Warn("attempts are not uncounted yet", "jobs", len(counted), "error", err)
		if w.pause(ctx, delays.NextBackOff()) != nil {
			return
		}
	}
}

// uncountTimeout bounds one attempt to take back counts.
const uncountTimeout = 5 * time.Second

func (w *Worker) giveUp(ctx context.Context, kind job.Kind, jobs []job.Attempted) error {
	ids := make([]uuid.UUID, len(jobs))
	for i, one := range jobs {
		ids[i] = one.ID
	}
	problem := job.ProblemOf(fault.New(fault.InternalError, "the job could not be done in %d attempts; it has been reported", w.settings.MaxDeliveries))
	given, err := job.GiveUp(ctx, w.db, ids, problem)
	if err != nil || len(given) == 0 {
		return err
	}
	for _, o := range given {
		w.logger.Error("job given up: every worker that tried it failed", "job", o.ID, "kind", kind, "attempts", w.settings.MaxDeliveries)
	}
	w.metrics.givenUp.WithLabelValues(string(kind)).Add(float64(len(given)))
	w.metrics.finalized(kind, given)
	job.LogFinal(ctx, w.logger, given)
	w.afterCommit.finalized(given)
	return nil
}
