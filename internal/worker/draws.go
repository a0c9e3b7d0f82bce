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

// settleDraws brings draw jobs to their end, one after the other. One that fails
// stands in the way of no other.
func (w *Worker) settleDraws(ctx context.Context, jobs []job.Ref, again bool) error {
	waiting := make([]job.Attempted, len(jobs))
	for i, ref := range jobs {
		waiting[i].Ref = ref
	}
	if again {
		var err error
		if waiting, err = job.Waiting(ctx, w.db, jobs); err != nil {
			return queue.Later(err)
		}
	}
	var broken, later error
	for _, one := range waiting {
		err := w.settleDraw(ctx, one, again)
		switch {
		case err == nil:
		case errors.Is(err, queue.ErrLater):
			later = err
		case waitsOut(err):
			later = queue.Later(err)
		default:
			broken = errors.Join(broken, err)
		}
	}
	if broken != nil { // beside it, what was only put off says nothing
		return broken
	}
	return later
}

func (w *Worker) settleDraw(ctx context.Context, one job.Attempted, again bool) error {
	switch {
	case !again:
		return w.draw(ctx, one.Ref)
	case one.Suspect():
		return w.alone(ctx, job.KindDraw, []job.Ref{one.Ref}, func(ctx context.Context) error { return w.draw(ctx, one.Ref) })
	}
	if _, err := job.Begin(ctx, w.db, []uuid.UUID{one.ID}); err != nil {
		return queue.Later(err)
	}
	return w.draw(ctx, one.Ref)
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
