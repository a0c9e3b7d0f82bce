package worker

import (
	"context"
	"errors"

	"triprize/internal/platform/queue"
	"triprize/internal/service/campaigncancel"
	"triprize/internal/store/job"
)

// campaignCancellationTasks is how many campaigns a worker cancels at once.
const campaignCancellationTasks = 2

// finalizeCampaignCancellations finalizes the jobs that cancel campaigns, one after the other.
func (w *Worker) finalizeCampaignCancellations(ctx context.Context, jobs []job.Ref, again bool) error {
	return w.finalizeSerially(ctx, job.KindCampaignCancellation, jobs, again, w.cancelCampaign)
}

// cancelCampaign does a job as far as it goes now. While it waits for money its task holds no
// slot.
func (w *Worker) cancelCampaign(ctx context.Context, ref job.Ref) (job.Outcome, error) {
	outcome, err := w.canceller.Run(ctx, ref)
	if errors.Is(err, campaigncancel.ErrWaiting) {
		return job.Outcome{}, queue.Later(err)
	}
	return outcome, err
}
