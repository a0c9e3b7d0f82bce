package worker

import (
	"context"
	"errors"

	"github.com/google/uuid"

	"triprize/internal/campaign"
	"triprize/internal/draw"
	"triprize/internal/job"
	"triprize/internal/postgres"
	"triprize/internal/queue"
)

// settleDraws brings draw jobs to their end, one after the other.
func (w *Worker) settleDraws(ctx context.Context, jobs []job.Ref, again bool) error {
	for _, ref := range jobs {
		if err := w.settleDraw(ctx, ref, again); err != nil {
			return err
		}
	}
	return nil
}

func (w *Worker) settleDraw(ctx context.Context, ref job.Ref, again bool) error {
	if !again {
		return w.draw(ctx, ref)
	}
	suspects, err := job.Suspects(ctx, w.db, []uuid.UUID{ref.ID})
	switch {
	case err != nil:
		return queue.Later(err)
	case len(suspects) > 0:
		return w.alone(ctx, job.KindDraw, ref.ID, func(ctx context.Context) error { return w.draw(ctx, ref) })
	}
	if _, err := job.Begin(ctx, w.db, []uuid.UUID{ref.ID}); err != nil {
		return queue.Later(err)
	}
	return w.draw(ctx, ref)
}

// draw runs one draw job. That another worker is at it, has taken over, or has
// settled the job already is no failure.
func (w *Worker) draw(ctx context.Context, ref job.Ref) error {
	outcome, err := w.drawer.Run(ctx, ref)
	switch {
	case errors.Is(err, job.ErrSettled):
		return nil
	case errors.Is(err, draw.ErrBusy), errors.Is(err, campaign.ErrFenced), postgres.IsSurroundings(err):
		return queue.Later(err)
	case err != nil:
		return err
	}
	outcomes := []job.Outcome{outcome}
	w.metrics.settled(job.KindDraw, outcomes)
	w.aftermath.settled(outcomes)
	return nil
}
