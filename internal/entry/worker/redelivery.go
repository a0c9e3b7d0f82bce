package worker

import (
	"context"
	"errors"

	"github.com/google/uuid"

	"triprize/internal/domain/fault"
	"triprize/internal/platform/queue"
	"triprize/internal/service/sale"
	"triprize/internal/store/job"
)

// groupMost is how many jobs are tried together when they were delivered before.
// If the worker dies then, each of them is tried alone from then on.
const groupMost = 16

// settleRedelivered settles purchase jobs that were delivered before: one of them
// may be what kills its workers. They are tried in groups while no batch runs in
// this process, or alone if they were in such a group already. Those with the
// fewest attempts come first, so that a job that kills every worker does not delay
// jobs that were tried less often.
func (w *Worker) settleRedelivered(ctx context.Context, jobs []job.Ref) error {
	waiting, err := job.FindQueued(ctx, w.db, jobs)
	if err != nil {
		return queue.Later(err)
	}
	var broken int
	var first, later error
	for len(waiting) > 0 {
		group := waiting[:groupSize(waiting)]
		waiting = waiting[len(group):]
		refs := make([]job.Ref, len(group))
		for i, one := range group {
			refs[i] = one.Ref
		}
		err := w.alone(ctx, job.KindPurchase, refs, func(ctx context.Context) error { return w.sellGroup(ctx, refs) })
		switch {
		case err == nil:
		case errors.Is(err, errBusy): // the next group may have other wallets
			later = err
		case isTransient(err), errors.Is(err, queue.ErrLater):
			return queue.Later(err)
		default: // go on with the other groups
			broken += len(refs)
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

// sellGroup sells jobs together. It then tries those that were put off again,
// campaign by campaign, and waits for campaign and wallets.
func (w *Worker) sellGroup(ctx context.Context, refs []job.Ref) error {
	putOff, err := w.sell(ctx, refs, sale.SkipLocked)
	if err != nil {
		return err
	}
	byCampaign := make(map[uuid.UUID][]job.Ref)
	for _, ref := range putOff {
		byCampaign[ref.CampaignID] = append(byCampaign[ref.CampaignID], ref)
	}
	for _, refs := range byCampaign {
		left, err := w.sell(ctx, refs, waitForWallets)
		if err != nil {
			return err
		}
		if len(left) > 0 {
			return queue.Later(errBusy)
		}
	}
	return nil
}

// alone makes one attempt at jobs while no batch, and no other such attempt, runs
// in this process. The attempt is counted and committed first. When the count
// exceeds worker.max_deliveries, the jobs are settled as failed instead.
func (w *Worker) alone(ctx context.Context, kind job.Kind, refs []job.Ref, try func(ctx context.Context) error) error {
	w.exclusive.Lock()
	defer w.exclusive.Unlock()
	ids := make([]uuid.UUID, len(refs))
	for i, ref := range refs {
		ids[i] = ref.ID
	}
	count, err := job.Begin(ctx, w.db, ids)
	if err != nil || count == 0 {
		return err
	}
	if count > w.settings.MaxDeliveries {
		return w.giveUp(ctx, kind, ids)
	}
	err = try(ctx)
	if isTransient(err) || errors.Is(err, queue.ErrLater) {
		if uncounted := job.Uncount(ctx, w.db, ids); uncounted != nil {
			w.logger.Warn("an attempt could not be uncounted", "jobs", ids, "error", uncounted)
		}
	}
	return err
}

func (w *Worker) giveUp(ctx context.Context, kind job.Kind, ids []uuid.UUID) error {
	problem := job.ProblemOf(fault.New(fault.InternalError, "the job could not be done in %d attempts; it has been reported", w.settings.MaxDeliveries))
	given, err := job.GiveUp(ctx, w.db, ids, problem)
	if err != nil || len(given) == 0 {
		return err
	}
	outcomes := make([]job.Outcome, len(given))
	for i, id := range given {
		w.logger.Error("job given up: every worker that tried it failed", "job", id, "kind", kind, "attempts", w.settings.MaxDeliveries)
		outcomes[i] = job.Outcome{ID: id, Problem: &problem}
	}
	w.metrics.givenUp.Add(float64(len(given)))
	w.metrics.settled(kind, outcomes)
	w.afterCommit.settled(outcomes)
	return nil
}
