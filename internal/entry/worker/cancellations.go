package worker

import (
	"context"

	"triprize/internal/store/job"
)

// settleCancellations settles cancellation jobs, one after the other.
func (w *Worker) settleCancellations(ctx context.Context, jobs []job.Ref, again bool) error {
	return w.settleSerially(ctx, job.KindCancellation, jobs, again, w.cancel)
}

// cancel runs one cancellation job while no batch runs in its campaign's lane.
// Waiting here needs no connection; waiting for the campaign's row would.
func (w *Worker) cancel(ctx context.Context, ref job.Ref) (job.Outcome, error) {
	l := w.laneOf(ref.CampaignID)
	l.turn.Lock()
	defer l.turn.Unlock()
	ctx, stop := context.WithTimeout(ctx, batchTimeout)
	defer stop()
	return w.seller.Cancel(ctx, ref, walletWait)
}
