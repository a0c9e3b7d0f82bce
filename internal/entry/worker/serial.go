package worker

import (
	"context"
	"errors"

	"github.com/google/uuid"

	"triprize/internal/platform/queue"
	"triprize/internal/store/job"
)

// settleOne settles one job in a transaction of its own. job.ErrSettled means that
// somebody else has settled it; an error wrapped by queue.Later, "not now".
type settleOne func(ctx context.Context, ref job.Ref) (job.Outcome, error)

// settleSerially brings jobs of one kind to their end, one after the other. One
// that fails holds up no other.
func (w *Worker) settleSerially(ctx context.Context, kind job.Kind, jobs []job.Ref, again bool, do settleOne) error {
	waiting := make([]job.Attempted, len(jobs))
	for i, ref := range jobs {
		waiting[i].Ref = ref
	}
	if again {
		var err error
		if waiting, err = job.FindQueued(ctx, w.db, jobs); err != nil {
			return queue.Later(err)
		}
	}
	var broken, later error
	for _, one := range waiting {
		err := w.attempt(ctx, kind, one, again, do)
		switch {
		case err == nil:
		case errors.Is(err, queue.ErrLater):
			later = err
		case isTransient(err):
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

// attempt makes one attempt: from the second delivery on it is counted first, and
// from the third on the job is tried alone.
func (w *Worker) attempt(ctx context.Context, kind job.Kind, one job.Attempted, again bool, do settleOne) error {
	switch {
	case !again:
		return w.finish(ctx, kind, one.Ref, do)
	case one.TryAlone():
		return w.alone(ctx, kind, []job.Ref{one.Ref}, func(ctx context.Context) error { return w.finish(ctx, kind, one.Ref, do) })
	}
	if _, err := job.Begin(ctx, w.db, []uuid.UUID{one.ID}); err != nil {
		return queue.Later(err)
	}
	return w.finish(ctx, kind, one.Ref, do)
}

// finish settles a job and sees to what follows. That a job was settled already
// is no failure.
func (w *Worker) finish(ctx context.Context, kind job.Kind, ref job.Ref, do settleOne) error {
	outcome, err := do(ctx, ref)
	switch {
	case errors.Is(err, job.ErrSettled):
		return nil
	case isTransient(err):
		w.metrics.faults.Inc()
		return queue.Later(err)
	case err != nil:
		return err
	}
	outcomes := []job.Outcome{outcome}
	w.metrics.settled(kind, outcomes)
	w.afterCommit.settled(outcomes)
	return nil
}
