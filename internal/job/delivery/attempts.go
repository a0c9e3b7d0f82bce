package delivery

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"triprize/internal/domain/fault"
	"triprize/internal/job"
	"triprize/internal/platform/postgres"
	"triprize/internal/platform/queue"
	"triprize/internal/platform/tracing"
)

// One does one job in a transaction of its own, and returns how it ended. job.ErrFinal means that the job was already
// final. An error wrapped by queue.Snooze is no failure.
type One func(ctx context.Context, ref job.Ref) (job.Outcome, error)

// OneByOne returns the consumer of a kind whose jobs do does one after the other, also after one fails.
func (p *Processor) OneByOne(kind job.Kind, of postgres.Transaction, slots int, do One) queue.Consumer {
	p.metrics.expect(kind)
	p.metrics.expectMessages(kind)
	return queue.Consumer{Kind: string(kind), Concurrency: slots, Handle: p.handle(of, p.oneByOne(kind, do))}
}

func (p *Processor) oneByOne(kind job.Kind, do One) complete {
	return func(ctx context.Context, jobs []job.Ref, redelivered bool) error {
		queued, err := job.FindQueued(ctx, p.DB, kind, jobs)
		if err != nil {
			return queue.Snooze(err)
		}
		errs := make([]error, len(queued))
		for i, one := range queued {
			errs[i] = p.attempt(ctx, kind, one, redelivered, do)
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
func (p *Processor) attempt(ctx context.Context, kind job.Kind, one job.Ref, redelivered bool, do One) error {
	try := func(ctx context.Context) error { return p.finish(ctx, kind, one, do) }
	if !redelivered {
		return try(ctx)
	}
	if !p.acquire(ctx, one.ID) { // another attempt is running, which is no failure
		return queue.Snooze(errTaken)
	}
	defer p.release(ctx, one.ID, false)
	if one.TryAlone() {
		return p.counted(ctx, kind, []job.Ref{one}, &p.exclusive, try)
	}
	return p.counted(ctx, kind, []job.Ref{one}, &sync.Mutex{}, try) // concurrently with others
}

// finish does a job and the work after its commit. A job that was already final is no failure.
func (p *Processor) finish(ctx context.Context, kind job.Kind, ref job.Ref, do One) error {
	ctx, span := tracing.Continue(ctx, ref.Trace, string(kind), tracing.JobID, ref.ID.String())
	outcome, err := do(ctx, ref)
	endSpan(span, &outcome, err)
	switch {
	case errors.Is(err, job.ErrFinal):
		return nil
	case IsTransient(err):
		p.metrics.faults.Inc()
		return queue.Snooze(err)
	case err != nil:
		return err
	}
	p.committed(ctx, kind, []job.Outcome{outcome})
	return nil
}

// redelivered completes redelivered jobs: one of them may be what kills its workers. They are tried while
// no batch runs in this process: together, or one by one if that was tried before. Those with the fewest
// attempts come first, so that a job that kills every worker does not delay jobs that were tried less often.
func (b *Batcher) redelivered(ctx context.Context, jobs []job.Ref) error {
	p := b.processor
	queued, err := job.FindQueued(ctx, p.DB, b.kind, jobs)
	if err != nil {
		return queue.Snooze(err)
	}
	var errs []error
	var locked []uuid.UUID // by their wallets
	for len(queued) > 0 {
		group := queued[:groupSize(queued)]
		queued = queued[len(group):]
		err := p.counted(ctx, b.kind, group, &p.exclusive, func(ctx context.Context) error { return b.group(ctx, group) })
		if one, ok := errors.AsType[*blocked](err); ok {
			locked = append(locked, one.byWallets...)
		}
		errs = append(errs, err)
	}
	if err := failureOf(errs); !errors.Is(err, ErrLocked) {
		return err
	}
	return &blocked{ErrLocked, locked}
}

// groupSize returns how many of the queued jobs, sorted by attempts, are tried together next.
func groupSize(queued []job.Ref) int {
	alone := slices.IndexFunc(queued, job.Ref.TryAlone)
	if alone < 0 {
		return len(queued)
	}
	return max(alone, 1)
}

// group completes jobs together. It waits for the lock of their campaign if they have the same one. All
// shards are blocked meanwhile.
func (b *Batcher) group(ctx context.Context, jobs []job.Ref) error {
	wait := job.SkipLocked
	if ofOneCampaign(jobs) && b.processor.shardOf(jobs[0].CampaignID).waits.allowed() {
		wait.Campaign = campaignWait
	}
	result, err := b.run(ctx, jobs, wait)
	if err != nil || len(result.Busy) == 0 {
		return err
	}
	locked := &blocked{error: ErrLocked}
	for _, ref := range result.Busy {
		if !slices.Contains(result.Locked, ref) {
			locked.byWallets = append(locked.byWallets, ref.ID)
		}
	}
	return locked
}

// counted makes one attempt at jobs with a lock held: with that of Processor.exclusive no batch and no other such
// attempt runs in this process, but draws keep running: one may take a minute, and all shards would wait for it.
// It first counts the attempt and commits that. If the count exceeds the setting MaxDeliveries, the jobs fail instead. If the
// attempt ends with a transient error or a snooze, the count is reverted.
func (p *Processor) counted(ctx context.Context, kind job.Kind, jobs []job.Ref, lock sync.Locker, try func(ctx context.Context) error) (err error) {
	begun := false // the attempt may have been counted
	defer func() {
		if IsTransient(err) && !errors.Is(err, queue.ErrSnoozed) {
			err = queue.Snooze(err)
		}
		if begun && errors.Is(err, queue.ErrSnoozed) {
			p.uncount(ctx, jobs) // after the unlock, because it may take long
		}
	}()
	lock.Lock()
	defer lock.Unlock()
	count, err := job.Begin(ctx, p.DB, jobs)
	switch {
	case err != nil:
		begun = !postgres.HadNoEffect(err)
		return err
	case count == 0:
		return nil
	case count > p.settings.MaxDeliveries:
		return p.giveUp(ctx, kind, jobs)
	}
	begun = true
	return try(ctx)
}

// uncount reverts the count of an attempt. It retries until it succeeds, because the cause of the failure
// may persist. Meanwhile the handler holds the task, so no other worker counts the next attempt.
func (p *Processor) uncount(ctx context.Context, jobs []job.Ref) {
	delays := newBackoff()
	for {
		try, cancel := context.WithTimeout(context.WithoutCancel(ctx), uncountTimeout)
		err := job.Uncount(try, p.DB, jobs)
		cancel()
		if err == nil {
			return
		}
		p.Logger.Warn("attempts are not uncounted yet", "jobs", len(jobs), "error", err)
		if p.pause(context.WithoutCancel(ctx), delays.NextBackOff()) != nil { // also after an outage has released the task
			return
		}
	}
}

// uncountTimeout bounds one try to revert counts.
const uncountTimeout = 5 * time.Second

func (p *Processor) giveUp(ctx context.Context, kind job.Kind, jobs []job.Ref) error {
	ids := make([]uuid.UUID, len(jobs))
	for i, one := range jobs {
		ids[i] = one.ID
	}
	problem := job.ProblemOf(fault.New(fault.InternalError, "the job could not be done in %d attempts; it has been reported", p.settings.MaxDeliveries))
	failed, err := job.GiveUp(ctx, p.DB, ids, problem)
	if err != nil || len(failed) == 0 {
		return err
	}
	for _, o := range failed {
		p.Logger.Error("job given up: every worker that tried it failed", "job", o.ID, "kind", kind, "attempts", p.settings.MaxDeliveries)
	}
	p.metrics.givenUp.WithLabelValues(string(kind)).Add(float64(len(failed)))
	p.committed(ctx, kind, failed)
	return nil
}
