package worker

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"triprize/internal/campaign"
	"triprize/internal/domain/fault"
	"triprize/internal/drawing"
	"triprize/internal/job"
	"triprize/internal/lifecycle"
	"triprize/internal/platform/postgres"
	"triprize/internal/platform/queue"
	"triprize/internal/platform/tracing"
	"triprize/internal/sale"
)

// finalizeOne finalizes one job in its own transaction. job.ErrFinal means that the job was already
// final. An error wrapped by queue.Snooze is no failure.
type finalizeOne func(ctx context.Context, ref job.Ref) (job.Outcome, error)

// serially finalizes jobs of one kind one after the other, also after one fails.
func (w *Worker) serially(kind job.Kind, do finalizeOne) finalize {
	return func(ctx context.Context, jobs []job.Ref, redelivered bool) error {
		queued, err := job.FindQueued(ctx, w.db, kind, jobs)
		if err != nil {
			return queue.Snooze(err)
		}
		errs := make([]error, len(queued))
		for i, one := range queued {
			errs[i] = w.attempt(ctx, kind, one, redelivered, do)
		}
		return failureOf(errs)
	}
}

// failureOf returns the failures of jobs that were tried one after the other, or the earliest snooze if there
// are none.
func failureOf(errs []error) error {
	var failed, snoozed []error
	for _, err := range errs {
		if errors.Is(err, queue.ErrSnoozed) {
			snoozed = append(snoozed, err)
		} else {
			failed = append(failed, err)
		}
	}
	if err := errors.Join(failed...); err != nil || len(snoozed) == 0 {
		return err
	}
	return slices.MinFunc(snoozed, queue.CompareSnoozes)
}

// attempt makes one attempt at a job. From the second delivery on it counts the attempt first; from the
// third on no batch runs meanwhile.
func (w *Worker) attempt(ctx context.Context, kind job.Kind, one job.Ref, redelivered bool, do finalizeOne) error {
	try := func(ctx context.Context) error { return w.finish(ctx, kind, one, do) }
	if !redelivered {
		return try(ctx)
	}
	if !w.acquire(ctx, one.ID) { // another attempt is running, which is no failure
		return queue.Snooze(errTaken)
	}
	defer w.release(ctx, one.ID, false)
	if one.TryAlone() {
		return w.exclusively(ctx, kind, []job.Ref{one}, try)
	}
	return w.counted(ctx, kind, []job.Ref{one}, &sync.Mutex{}, try) // concurrently with others
}

// finish finalizes a job and does the work after its commit. A job that was already final is no failure.
func (w *Worker) finish(ctx context.Context, kind job.Kind, ref job.Ref, do finalizeOne) error {
	ctx, span := tracing.Continue(ctx, ref.Trace, string(kind), tracing.JobID, ref.ID.String())
	outcome, err := do(ctx, ref)
	endSpan(span, &outcome, err)
	switch {
	case errors.Is(err, job.ErrFinal):
		return nil
	case isTransient(err):
		w.metrics.faults.Inc()
		return queue.Snooze(err)
	case err != nil:
		return err
	}
	w.committed(ctx, kind, []job.Outcome{outcome})
	return nil
}

// committed does the work after the commit of outcomes.
func (w *Worker) committed(ctx context.Context, kind job.Kind, outcomes []job.Outcome) {
	for _, o := range outcomes {
		w.changed(o.ID)
	}
	w.metrics.finalized(kind, outcomes)
	job.LogFinal(ctx, w.logger, outcomes)
}

// campaignCancellationTasks is how many campaigns a worker cancels at once.
const campaignCancellationTasks = 2

// cancelCampaign advances a job as far as possible. While it waits for refunds its task holds no slot.
func (w *Worker) cancelCampaign(ctx context.Context, ref job.Ref) (job.Outcome, error) {
	outcome, err := w.canceller.Run(ctx, ref)
	if wait, ok := errors.AsType[*lifecycle.CancelWaiting](err); ok {
		return job.Outcome{}, queue.SnoozeFor(err, wait.After)
	}
	if errors.Is(err, lifecycle.ErrWaiting) {
		return job.Outcome{}, queue.Snooze(err)
	}
	return outcome, err
}

// draw advances one draw job as far as possible. It snoozes while another worker runs the draw or has
// taken it over, and while the draw is blocked.
func (w *Worker) draw(ctx context.Context, ref job.Ref) (job.Outcome, error) {
	outcome, err := w.drawer.Run(ctx, ref)
	if wait, ok := errors.AsType[*drawing.Waiting](err); ok {
		w.changed(ref.ID)
		return job.Outcome{}, queue.SnoozeFor(err, wait.After)
	}
	if errors.Is(err, drawing.ErrBusy) || errors.Is(err, campaign.ErrFenced) {
		return job.Outcome{}, queue.Snooze(err)
	}
	return outcome, err
}

// endSale ends the sale of a campaign that is drawn at its end, if the draw is requested before the sweep
// has ended the sale.
func (w *Worker) endSale(ctx context.Context, campaignID uuid.UUID) (ended bool, err error) {
	end, err := w.saleEnder.EndSale(ctx, campaignID)
	w.triggers.Note(end.Messages...)
	job.LogFinal(ctx, w.logger, end.Finalized)
	w.dispatcher.Dispatch(job.Tasks(end.Messages)...)
	return end.Ended, err
}

// outcomeRequeued is the outcome, in traces, of an attempt at a job that was snoozed or requeued.
const outcomeRequeued = "snoozed"

// endSpan ends the span of an attempt at one job.
func endSpan(span tracing.Span, o *job.Outcome, err error) {
	switch {
	case err == nil:
		span.Set(tracing.Outcome, o.Code())
	case errors.Is(err, queue.ErrSnoozed):
		span.Set(tracing.Outcome, outcomeRequeued)
		err = nil
	}
	span.End(err)
}

// redelivered finalizes redelivered jobs: one of them may be what kills its workers. They are tried while
// no batch runs in this process: together, or one by one if that was tried before. Those with the fewest
// attempts come first, so that a job that kills every worker does not delay jobs that were tried less often.
func (s *finalizer) redelivered(ctx context.Context, jobs []job.Ref) error {
	w := s.worker
	queued, err := job.FindQueued(ctx, w.db, s.kind, jobs)
	if err != nil {
		return queue.Snooze(err)
	}
	var errs []error
	var locked []uuid.UUID // by their wallets
	for len(queued) > 0 {
		group := queued[:groupSize(queued)]
		queued = queued[len(group):]
		err := w.exclusively(ctx, s.kind, group, func(ctx context.Context) error { return s.group(ctx, group) })
		if one, ok := errors.AsType[*walletsLocked](err); ok {
			locked = append(locked, one.jobs...)
		}
		errs = append(errs, err)
	}
	if err := failureOf(errs); !errors.Is(err, errLocked) {
		return err
	}
	return &walletsLocked{errLocked, locked}
}

// groupSize returns how many of the queued jobs, sorted by attempts, are tried together next.
func groupSize(queued []job.Ref) int {
	alone := slices.IndexFunc(queued, job.Ref.TryAlone)
	if alone < 0 {
		return len(queued)
	}
	return max(alone, 1)
}

// group finalizes jobs together. It waits for the lock of their campaign if they have the same one. All
// shards are blocked meanwhile, so after a timeout it does not wait for a while.
func (s *finalizer) group(ctx context.Context, jobs []job.Ref) error {
	wait := sale.SkipLocked
	if ofOneCampaign(jobs) && s.worker.groupWaits.allowed() {
		wait = sale.LockWait{Campaign: lockWait}
	}
	report, err := s.run(ctx, jobs, wait)
	if err != nil {
		return err
	}
	if wait != sale.SkipLocked {
		s.worker.groupWaits.record(report.TimedOut)
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

// exclusively makes one attempt at jobs while no batch and no other such attempt runs in this process.
// Draws keep running: one may take a minute, and all shards would wait for it.
func (w *Worker) exclusively(ctx context.Context, kind job.Kind, jobs []job.Ref, try func(ctx context.Context) error) error {
	return w.counted(ctx, kind, jobs, &w.exclusive, try)
}

// counted makes one attempt at jobs with a lock held. It first counts the attempt and commits that. If the
// count exceeds job.MaxDeliveries, the jobs are finalized as failed instead. If the attempt ends with a
// transient error or a snooze, the count is reverted.
func (w *Worker) counted(ctx context.Context, kind job.Kind, jobs []job.Ref, lock sync.Locker, try func(ctx context.Context) error) (err error) {
	begun := false // the attempt may have been counted
	defer func() {
		if isTransient(err) && !errors.Is(err, queue.ErrSnoozed) {
			err = queue.Snooze(err)
		}
		if begun && errors.Is(err, queue.ErrSnoozed) {
			w.uncount(ctx, jobs) // after the unlock, because it may take long
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

// uncount reverts the count of an attempt. It retries until it succeeds, because the cause of the failure
// may persist. Meanwhile the handler holds the task, so no other worker counts the next attempt.
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
		if w.pause(context.WithoutCancel(ctx), delays.NextBackOff()) != nil { // also after an outage has released the task
			return
		}
	}
}

// uncountTimeout bounds one try to revert counts.
const uncountTimeout = 5 * time.Second

func (w *Worker) giveUp(ctx context.Context, kind job.Kind, jobs []job.Ref) error {
	ids := make([]uuid.UUID, len(jobs))
	for i, one := range jobs {
		ids[i] = one.ID
	}
	problem := job.ProblemOf(fault.New(fault.InternalError, "the job could not be done in %d attempts; it has been reported", w.settings.MaxDeliveries))
	failed, err := job.GiveUp(ctx, w.db, ids, problem)
	if err != nil || len(failed) == 0 {
		return err
	}
	for _, o := range failed {
		w.logger.Error("job given up: every worker that tried it failed", "job", o.ID, "kind", kind, "attempts", w.settings.MaxDeliveries)
	}
	w.metrics.givenUp.WithLabelValues(string(kind)).Add(float64(len(failed)))
	w.committed(ctx, kind, failed)
	return nil
}
