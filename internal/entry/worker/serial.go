package worker

import (
	"context"
	"errors"
	"sync"

	"github.com/google/uuid"

	"triprize/internal/platform/queue"
	"triprize/internal/platform/tracing"
	"triprize/internal/service/campaigncancel"
	"triprize/internal/service/draw"
	"triprize/internal/store/campaign"
	"triprize/internal/store/job"
)

// finalizeOne finalizes one job in a transaction of its own. job.ErrFinal means that
// the job was final already; an error wrapped by queue.Later means "not now".
type finalizeOne func(ctx context.Context, ref job.Ref) (job.Outcome, error)

// serially finalizes jobs of one kind, one after the other. When one fails it goes on with the others.
func (w *Worker) serially(kind job.Kind, do finalizeOne) finalize {
	return func(ctx context.Context, jobs []job.Ref, again bool) error {
		waiting, err := job.FindQueued(ctx, w.db, kind, jobs)
		if err != nil {
			return queue.Later(err)
		}
		var all attempts
		for _, one := range waiting {
			all.add(w.attempt(ctx, kind, one, again, do))
		}
		return all.err()
	}
}

// attempts is what becomes of jobs that are tried one after the other. When one fails the others go on.
type attempts struct{ broken, later error }

func (a *attempts) add(err error) {
	switch {
	case err == nil:
	case errors.Is(err, queue.ErrLater):
		a.later = queue.Sooner(a.later, err)
	case isTransient(err):
		a.later = queue.Sooner(a.later, queue.Later(err))
	default:
		a.broken = errors.Join(a.broken, err)
	}
}

// err returns a failure before what was only put off.
func (a *attempts) err() error {
	if a.broken != nil {
		return a.broken
	}
	return a.later
}

// attempt makes one attempt at a job. From the second delivery on, the attempt is
// counted first; from the third on, no batch runs meanwhile.
func (w *Worker) attempt(ctx context.Context, kind job.Kind, one job.Ref, again bool, do finalizeOne) error {
	try := func(ctx context.Context) error { return w.finish(ctx, kind, one, do) }
	if !again {
		return try(ctx)
	}
	if !w.claim(ctx, one.ID) { // an attempt that is under way is no failure
		return queue.Later(errElsewhere)
	}
	defer w.release(ctx, one.ID)
	if one.TryAlone() {
		return w.exclusively(ctx, kind, []job.Ref{one}, try)
	}
	return w.counted(ctx, kind, []job.Ref{one}, &sync.Mutex{}, try) // others may run beside it
}

// finish finalizes a job and does the work that follows. It is no failure when the
// job was final already.
func (w *Worker) finish(ctx context.Context, kind job.Kind, ref job.Ref, do finalizeOne) error {
	ctx, span := tracing.Continue(ctx, ref.Trace, string(kind), tracing.JobID, ref.ID.String())
	outcome, err := do(ctx, ref)
	endSpan(span, &outcome, err)
	switch {
	case errors.Is(err, job.ErrFinal):
		return nil
	case isTransient(err):
		w.metrics.faults.Inc()
		return queue.Later(err)
	case err != nil:
		return err
	}
	outcomes := []job.Outcome{outcome}
	w.metrics.finalized(kind, outcomes)
	job.LogFinal(ctx, w.logger, outcomes)
	w.afterCommit.finalized(outcomes)
	return nil
}

// campaignCancellationTasks is how many campaigns a worker cancels at once.
const campaignCancellationTasks = 2

// cancelCampaign does a job as far as it goes now. While it waits for money its task holds no
// slot.
func (w *Worker) cancelCampaign(ctx context.Context, ref job.Ref) (job.Outcome, error) {
	outcome, err := w.canceller.Run(ctx, ref)
	if wait, ok := errors.AsType[*campaigncancel.Waiting](err); ok {
		return job.Outcome{}, queue.LaterIn(err, wait.After)
	}
	if errors.Is(err, campaigncancel.ErrWaiting) {
		return job.Outcome{}, queue.Later(err)
	}
	return outcome, err
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
	w.triggers.Note(end.Messages...)
	job.LogFinal(ctx, w.logger, end.Finalized)
	w.dispatcher.Dispatch(job.Tasks(end.Messages)...)
	return end.Ended, err
}

// outcomePutOff is the outcome of an attempt at a job that goes on later.
const outcomePutOff = "put_off"

// endSpan ends the span of an attempt at one job.
func endSpan(span tracing.Span, o *job.Outcome, err error) {
	switch {
	case err == nil:
		span.Set(tracing.Outcome, o.Code())
	case errors.Is(err, queue.ErrLater):
		span.Set(tracing.Outcome, outcomePutOff)
		err = nil
	}
	span.End(err)
}
