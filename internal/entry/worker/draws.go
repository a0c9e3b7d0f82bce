package worker

import (
	"context"
	"errors"

	"github.com/google/uuid"

	"triprize/internal/platform/queue"
	"triprize/internal/service/draw"
	"triprize/internal/store/campaign"
	"triprize/internal/store/job"
	"triprize/internal/store/outbox"
)

// finalizeDraws finalizes draw jobs, one after the other.
func (w *Worker) finalizeDraws(ctx context.Context, jobs []job.Ref, again bool) error {
	return w.finalizeSerially(ctx, job.KindDraw, jobs, again, w.draw)
}

// draw runs one draw job as far as it goes now. It is no failure when another worker runs
// the draw or has taken it over, nor when the draw waits: then it comes back at that time.
func (w *Worker) draw(ctx context.Context, ref job.Ref) (job.Outcome, error) {
	outcome, err := w.drawer.Run(ctx, ref)
	if wait, ok := errors.AsType[*draw.Waiting](err); ok {
		w.afterCommit.changed(ref.ID)
		return job.Outcome{}, queue.LaterIn(err, wait.After)
	}
	if errors.Is(err, draw.ErrBusy) || errors.Is(err, campaign.ErrFenced) {
		return job.Outcome{}, queue.Later(err)
	}
	return outcome, err
}

// endSale ends the sale of a campaign that is drawn at its end, when somebody asks for the
// draw before the sweep has ended it.
func (w *Worker) endSale(ctx context.Context, campaignID uuid.UUID) (ended bool, err error) {
	end, err := w.ender.EndSale(ctx, campaignID)
	w.dispatcher.Dispatch(outbox.Tasks(end.Messages)...)
	return end.Ended, err
}
