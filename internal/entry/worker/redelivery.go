package worker

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"triprize/internal/domain/fault"
	"triprize/internal/platform/postgres"
	"triprize/internal/platform/queue"
	"triprize/internal/service/sale"
	"triprize/internal/store/job"
)

// redelivered finalizes jobs that were delivered before: one of them may be what
// kills its workers. They are tried while no batch runs in this process: together, or one by one
// if they were tried so already. Those with the fewest attempts come first, so that a job that kills
// every worker does not delay jobs that were tried less often.
func (s *finalizer) redelivered(ctx context.Context, jobs []job.Ref) error {
	w := s.worker
	waiting, err := job.FindQueued(ctx, w.db, s.kind, jobs)
	if err != nil {
		return queue.Later(err)
	}
	var all attempts
	locked := &walletsLocked{error: errLocked}
	for len(waiting) > 0 {
		group := waiting[:groupSize(waiting)]
		waiting = waiting[len(group):]
		err := w.exclusively(ctx, s.kind, group, func(ctx context.Context) error { return s.group(ctx, group) })
		if one, ok := errors.AsType[*walletsLocked](err); ok {
			locked.jobs = append(locked.jobs, one.jobs...)
		}
		all.add(err)
	}
	if err := all.err(); !errors.Is(err, errLocked) {
		return err
	}
	return locked
}

// groupSize returns how many of the waiting jobs, which are sorted by attempts, are
// tried next.
func groupSize(waiting []job.Ref) int {
	n := 0
	for n < len(waiting) && !waiting[n].TryAlone() {
		n++
	}
	return max(n, 1)
}

// group finalizes jobs together. It waits for their campaign, if it is one: all shards
// stand still meanwhile, so there is no wait for a while after one in vain.
func (s *finalizer) group(ctx context.Context, jobs []job.Ref) error {
	wait := sale.SkipLocked
	if ofOneCampaign(jobs) && s.worker.groups.left() {
		wait = sale.Wait{Campaign: lockWait}
	}
	report, err := s.run(ctx, jobs, wait)
	if err != nil {
		return err
	}
	if wait != sale.SkipLocked {
		s.worker.groups.waited(report.GaveUp)
	}
	if len(report.Busy) == 0 {
		return nil
	}
	locked := &walletsLocked{error: errLocked}
	for _, ref := range report.Busy {
		if !slices.Contains(report.Locked, ref) {
			locked.jobs = append(locked.jobs, ref.ID)
		}
	}
	return locked
}

// exclusively makes one attempt at jobs while no batch, and no other such attempt, runs in
// this process. Draws go on: one may take a minute, and all shards would wait for it.
func (w *Worker) exclusively(ctx context.Context, kind job.Kind, jobs []job.Ref, try func(ctx context.Context) error) error {
	return w.counted(ctx, kind, jobs, &w.exclusive, try)
}

// counted makes one attempt at jobs under a lock. The attempt is counted and committed
// first. When the count exceeds job.MaxDeliveries, the jobs are finalized as failed
// instead. When the attempt fails through its surroundings, the count is taken back.
func (w *Worker) counted(ctx context.Context, kind job.Kind, jobs []job.Ref, lock sync.Locker, try func(ctx context.Context) error) (err error) {
	begun := false // it may have been counted
	defer func() {
		if begun && (isTransient(err) || errors.Is(err, queue.ErrLater)) {
			w.uncount(ctx, jobs) // when others may run again: it may take long
		}
	}()
	lock.Lock()
	defer lock.Unlock()
	count, err := job.Begin(ctx, w.db, jobs)
	switch {
	case err != nil:
		begun = !postgres.HadNoEffect(err)
		return err
	case count == 0:
		return nil
	case count > w.settings.MaxDeliveries:
		return w.giveUp(ctx, kind, jobs)
	}
	begun = true
	return try(ctx)
}

// uncount takes back the count of an attempt. The cause of the failure may go on, so
// this is tried until it is done: meanwhile the handler keeps the task, and nobody else
// counts the next attempt.
func (w *Worker) uncount(ctx context.Context, jobs []job.Ref) {
	delays := newBackoff()
	for {
		try, cancel := context.WithTimeout(context.WithoutCancel(ctx), uncountTimeout)
		err := job.Uncount(try, w.db, jobs)
		cancel()
		if err == nil {
			return
		}
		w.logger.Warn("attempts are not uncounted yet", "jobs", len(jobs), "error", err)
		if w.pause(ctx, delays.NextBackOff()) != nil {
			return
		}
	}
}

// uncountTimeout bounds one attempt to take back counts.
const uncountTimeout = 5 * time.Second

func (w *Worker) giveUp(ctx context.Context, kind job.Kind, jobs []job.Ref) error {
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
