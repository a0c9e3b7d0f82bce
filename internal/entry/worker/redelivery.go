package worker

import (
	"context"
	"errors"

	"github.com/google/uuid"

	"triprize/internal/platform/queue"
	"triprize/internal/service/sale"
	"triprize/internal/store/job"
)

// groupMost is how many jobs are tried together when they were delivered before.
// If the worker dies then, each of them is tried by itself from then on.
const groupMost = 16

// finalizeRedelivered finalizes jobs that were delivered before: one of them may be what
// kills its workers. They are tried in groups while no batch runs in this process, or
// one by one if they were in such a group already. Those with the fewest attempts come first,
// so that a job that kills every worker does not delay jobs that were tried less often.
func (w *Worker) finalizeRedelivered(ctx context.Context, s *finalizer, jobs []job.Ref) error {
	waiting, err := job.FindQueued(ctx, w.db, jobs)
	if err != nil {
		return queue.Later(err)
	}
	var broken int
	var first, later error
	waits := &waits{left: mostWaits} // of all groups together: all shards stand still meanwhile
	for len(waiting) > 0 {
		group := waiting[:groupSize(waiting)]
		waiting = waiting[len(group):]
		err := w.exclusively(ctx, s.kind, group, func(ctx context.Context) error { return w.finalizeGroup(ctx, s, refsOf(group), waits) })
		switch {
		case err == nil:
		case errors.Is(err, errBusy): // the next group may have other wallets
			later = err
		case isTransient(err), errors.Is(err, queue.ErrLater):
			return queue.Later(err)
		default: // go on with the other groups
			broken += len(group)
			if first == nil {
				first = err
			}
		}
	}
	if broken > 0 {
		return failed(broken, first)
	}
	return later
}

// groupSize returns how many of the waiting jobs, which are sorted by attempts, are
// tried next.
func groupSize(waiting []job.Attempted) int {
	n := 0
	for n < len(waiting) && n < groupMost && !waiting[n].TryAlone() {
		n++
	}
	return max(n, 1)
}

func refsOf(jobs []job.Attempted) []job.Ref {
	refs := make([]job.Ref, len(jobs))
	for i, one := range jobs {
		refs[i] = one.Ref
	}
	return refs
}

// finalizeGroup finalizes jobs together. It then tries those that were put off again,
// campaign by campaign, and waits for campaign and wallets, as long as it may.
func (w *Worker) finalizeGroup(ctx context.Context, s *finalizer, refs []job.Ref, waits *waits) error {
	report, err := w.run(ctx, s, refs, sale.SkipLocked)
	if err != nil {
		return err
	}
	byCampaign := make(map[uuid.UUID][]job.Ref)
	for _, ref := range report.Busy {
		byCampaign[ref.CampaignID] = append(byCampaign[ref.CampaignID], ref)
	}
	left := len(report.Busy)
	for _, refs := range byCampaign {
		if !waits.take() {
			break
		}
		again, err := w.run(ctx, s, refs, waitForWallets)
		if err != nil {
			return err
		}
		left -= len(refs) - len(again.Busy)
	}
	if left > 0 {
		return queue.Later(errBusy)
	}
	return nil
}
