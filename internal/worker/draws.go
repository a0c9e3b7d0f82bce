package worker

import (
	"context"
	"errors"

	"triprize/internal/campaign"
	"triprize/internal/draw"
	"triprize/internal/job"
	"triprize/internal/queue"
)

// settleDraws brings draw jobs to their end, one after the other.
func (w *Worker) settleDraws(ctx context.Context, jobs []job.Ref, again bool) error {
	return w.settleSingly(ctx, job.KindDraw, jobs, again, w.draw)
}

// draw runs one draw job. That another worker is at it, or has taken over, is no
// failure.
func (w *Worker) draw(ctx context.Context, ref job.Ref) (job.Outcome, error) {
	outcome, err := w.drawer.Run(ctx, ref)
	if errors.Is(err, draw.ErrBusy) || errors.Is(err, campaign.ErrFenced) {
		return job.Outcome{}, queue.Later(err)
	}
	return outcome, err
}
