package worker

import (
	"context"

	"triprize/internal/store/job"
)

// settleCancellations brings cancellation jobs to their end, one after the other.
func (w *Worker) settleCancellations(ctx context.Context, jobs []job.Ref, again bool) error {
	return w.settleSerially(ctx, job.KindCancellation, jobs, again, w.cancel)
}

// cancel runs one cancellation job when it has the turn of its campaign's
// lane: many of them wait here, and not with a connection each for the campaign's row.
func (w *Worker) cancel(ctx context.Context, ref job.Ref) (job.Outcome, error) {
	l := w.laneOf(ref.CampaignID)
	l.turn.Lock()
	defer l.turn.Unlock()
	ctx, stop := context.WithTimeout(ctx, batchTimeout)
	defer stop()
	return w.seller.Cancel(ctx, ref, walletWait)
}
