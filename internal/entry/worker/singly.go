package worker

import (
	"context"
	"errors"

	"github.com/google/uuid"

	"triprize/internal/platform/queue"
	"triprize/internal/store/job"
)

// deed settles one job in a transaction of its own. job.ErrSettled means that
// somebody else has settled it; an error wrapped by queue.Later, "not now".
type deed func(ctx context.Context, ref job.Ref) (job.Outcome, error)

// settleSingly brings jobs of one kind to their end, one after the other. One
// that fails stands in the way of no other.
func (w *Worker) settleSingly(ctx context.Context, kind job.Kind, jobs []job.Ref, again bool, do deed) error {
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
		err := w.settleOne(ctx, kind, one, again, do)
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

// settleOne makes one attempt: the second delivery is counted first, and a
// suspect is tried alone.
func (w *Worker) settleOne(ctx context.Context, kind job.Kind, one job.Attempted, again bool, do deed) error {
	switch {
	case !again:
		return w.finish(ctx, kind, one.Ref, do)
	case one.Suspect():
		return w.alone(ctx, kind, []job.Ref{one.Ref}, func(ctx context.Context) error { return w.finish(ctx, kind, one.Ref, do) })
	}
	if _, err := job.Begin(ctx, w.db, []uuid.UUID{one.ID}); err != nil {
		return queue.Later(err)
	}
	return w.finish(ctx, kind, one.Ref, do)
}

// finish does the deed and sees to what follows. That a job was settled already
// is no failure.
func (w *Worker) finish(ctx context.Context, kind job.Kind, ref job.Ref, do deed) error {
	outcome, err := do(ctx, ref)
	switch {
	case errors.Is(err, job.ErrSettled):
		return nil
	case waitsOut(err):
		w.metrics.faults.Inc()
		return queue.Later(err)
	case err != nil:
		return err
	}
	outcomes := []job.Outcome{outcome}
	w.metrics.settled(kind, outcomes)
	w.aftermath.settled(outcomes)
	return nil
}
