package worker

import (
	"context"
	"errors"

	"triprize/internal/platform/queue"
	"triprize/internal/service/campaigncancel"
	"triprize/internal/store/job"
)

// calloffTasks is how many campaigns a worker calls off at once.
const calloffTasks = 2

// settleCalloffs settles the jobs that cancel campaigns, one after the other.
func (w *Worker) settleCalloffs(ctx context.Context, jobs []job.Ref, again bool) error {
	return w.settleSerially(ctx, job.KindCampaignCancellation, jobs, again, w.callOff)
}

// callOff does a job as far as it goes now. While it waits for money its task holds no
// slot.
func (w *Worker) callOff(ctx context.Context, ref job.Ref) (job.Outcome, error) {
	outcome, err := w.canceller.Run(ctx, ref)
	if errors.Is(err, campaigncancel.ErrWaiting) {
		return job.Outcome{}, queue.Later(err)
	}
	return outcome, err
}
