package worker

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/google/uuid"

	"triprize/internal/platform/queue"
	"triprize/internal/service/sale"
	"triprize/internal/store/job"
)

// groupMost is how many jobs are tried together when they were delivered before.
// If the worker dies then, each of them is tried by itself from then on.
const groupMost = 16

// groupPause is how long no group waits after one has waited in vain: all shards stand still
// meanwhile.
const groupPause = 50 * lockWait

// finalizeRedelivered finalizes jobs that were delivered before: one of them may be what
// kills its workers. They are tried in groups while no batch runs in this process, or
// one by one if they were in such a group already. Those with the fewest attempts come first,
// so that a job that kills every worker does not delay jobs that were tried less often.
func (w *Worker) finalizeRedelivered(ctx context.Context, s *finalizer, jobs []job.Ref) error {
	waiting, err := job.FindQueued(ctx, w.db, s.kind, jobs)
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
// campaign by campaign, and waits for the campaign or for wallets, as long as it may. A
// campaign for which it waits in vain counts as locked.
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
	for id, refs := range byCampaign {
		if time.Now().Before(w.noGroupWaitUntil) || !waits.take() {
			break
		}
		wait := waitForWallets
		isLocked := slices.ContainsFunc(report.Locked, func(ref job.Ref) bool { return ref.CampaignID == id })
		if isLocked { // what it waits for in vain is known then
			wait = waitForCampaign
		}
		again, err := w.run(ctx, s, refs, wait)
		if err != nil {
			return err
		}
		left -= len(refs) - len(again.Busy)
		if again.GaveUp {
			w.noGroupWaitUntil = time.Now().Add(groupPause)
		}
		if again.GaveUp && isLocked {
			w.parking.note(id)
		}
	}
	if left > 0 {
		return errParked
	}
	return nil
}
