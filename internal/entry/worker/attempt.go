package worker

import (
	"context"
	"errors"
	"log/slog"
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
// first. When the count exceeds worker.max_deliveries, the jobs are finalized as failed
// instead. When the attempt fails through its surroundings, the count is taken back.
func (w *Worker) counted(ctx context.Context, kind job.Kind, jobs []job.Attempted, lock sync.Locker, try func(ctx context.Context) error) error {
	if err := w.uncounts.flush(ctx, w.db); err != nil {
		return queue.Later(err)
	}
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
// counts the next attempt. A count that is not taken back when the task ends goes to uncounts.
func (w *Worker) uncount(ctx context.Context, jobs []job.Attempted) {
	counted := make([]job.Attempted, len(jobs))
	for i, one := range jobs {
		counted[i] = one.Next()
	}
	w.uncounts.add(counted)
	delays := newBackoff()
	for {
		try, cancel := context.WithTimeout(context.WithoutCancel(ctx), uncountTimeout)
		err := w.uncounts.flush(try, w.db)
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

// uncounts are counts of attempts that are still to be taken back. No attempt begins
// before they are, so there are no more of them than jobs of tasks in hand.
type uncounts struct {
	mu   sync.Mutex
	jobs map[uuid.UUID]job.Attempted
}

func (d *uncounts) add(counted []job.Attempted) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.jobs == nil {
		d.jobs = make(map[uuid.UUID]job.Attempted)
	}
	for _, one := range counted {
		d.jobs[one.ID] = one
	}
}

// flush takes the counts back.
func (d *uncounts) flush(ctx context.Context, db postgres.DB) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.jobs) == 0 {
		return nil
	}
	counted := make([]job.Attempted, 0, len(d.jobs))
	for _, one := range d.jobs {
		counted = append(counted, one)
	}
	if err := job.Uncount(ctx, db, counted); err != nil {
		return err
	}
	clear(d.jobs)
	return nil
}

// close takes the counts back a last time.
func (d *uncounts) close(ctx context.Context, db postgres.DB, logger *slog.Logger) {
	ctx, cancel := context.WithTimeout(ctx, uncountTimeout)
	defer cancel()
	if err := d.flush(ctx, db); err != nil {
		logger.Warn("attempts that failed through their surroundings are still counted", "jobs", len(d.jobs), "error", err)
	}
}

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
