package worker

import (
	"context"
	"errors"
	"slices"

	"triprize/internal/platform/queue"
	"triprize/internal/service/sale"
	"triprize/internal/store/job"
)

// finalizeRedelivered finalizes jobs that were delivered before: one of them may be what
// kills its workers. They are tried while no batch runs in this process: together, or one by one
// if they were tried so already. Those with the fewest attempts come first, so that a job that kills
// every worker does not delay jobs that were tried less often.
func (w *Worker) finalizeRedelivered(ctx context.Context, s *finalizer, jobs []job.Ref) error {
	waiting, err := job.FindQueued(ctx, w.db, s.kind, jobs)
	if err != nil {
		return queue.Later(err)
	}
	var all attempts
	locked := &walletsLocked{error: errLocked}
	for len(waiting) > 0 {
		group := waiting[:groupSize(waiting)]
		waiting = waiting[len(group):]
		err := w.exclusively(ctx, s.kind, group, func(ctx context.Context) error { return w.finalizeGroup(ctx, s, group) })
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
func groupSize(waiting []job.Attempted) int {
	n := 0
	for n < len(waiting) && !waiting[n].TryAlone() {
		n++
	}
	return max(n, 1)
}

// finalizeGroup finalizes jobs together. It waits for their campaign, if it is one: all shards
// stand still meanwhile, so there is no wait for a while after one in vain.
func (w *Worker) finalizeGroup(ctx context.Context, s *finalizer, jobs []job.Attempted) error {
	refs := make([]job.Ref, len(jobs))
	for i, one := range jobs {
		refs[i] = one.Ref
	}
	wait := sale.SkipLocked
	if ofOneCampaign(refs) && w.groups.left() {
		wait = sale.Wait{Campaign: lockWait}
	}
	report, err := w.run(ctx, s, refs, wait)
	if err != nil {
		return err
	}
	if report.GaveUp {
		w.groups.end()
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
