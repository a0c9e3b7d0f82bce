package worker

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/google/uuid"

	"triprize/internal/job"
	"triprize/internal/queue"
)

// busyDelay is about how long a batch of another worker takes.
const busyDelay = 2 * time.Millisecond

// settlePurchases brings purchase jobs to their end through the lanes.
func (w *Worker) settlePurchases(ctx context.Context, jobs []job.Ref, again bool) error {
	if again {
		var err error
		if jobs, err = w.settleSuspects(ctx, jobs); err != nil {
			return err
		}
	}
	items := make([]*item, len(jobs))
	for i, ref := range jobs {
		items[i] = &item{Ref: ref}
	}
	delay := newDelay()
	for len(items) > 0 {
		left, wait, err := w.pass(ctx, items)
		if err != nil {
			return err
		}
		items = left
		if len(items) == 0 {
			break
		}
		d := busyDelay + rand.N(busyDelay) //nolint:gosec // a jitter is no secret
		if wait {
			d = delay.NextBackOff()
		}
		if err := w.pause(ctx, d); err != nil {
			return err
		}
	}
	return nil
}

// pass sends items through their lanes once and returns those that are not
// final, and whether a fault of the surroundings is to be waited out. A job that
// failed by itself is an error, after the others of the pass have had their turn.
func (w *Worker) pass(ctx context.Context, items []*item) (left []*item, wait bool, err error) {
	byLane := make(map[*lane][]*item)
	for _, it := range items {
		l := w.laneOf(it.CampaignID)
		byLane[l] = append(byLane[l], it)
	}
	type answer struct {
		items    []*item
		verdicts []verdict
		errs     []error
	}
	answers := make(chan answer, len(byLane))
	for l, mine := range byLane {
		go func() {
			verdicts, errs := l.items.DoAll(ctx, mine)
			answers <- answer{mine, verdicts, errs}
		}()
	}
	var broken int
	var first error
	for range byLane {
		a := <-answers
		for i, it := range a.items {
			switch {
			case a.errs[i] == nil && a.verdicts[i] == done:
			case a.errs[i] == nil:
				left = append(left, it)
			case waitsOut(a.errs[i]):
				left, wait = append(left, it), true
			default:
				broken++
				first = a.errs[i]
			}
		}
	}
	if broken > 0 {
		return nil, false, failed(broken, first)
	}
	return left, wait, ctx.Err()
}

// settleSuspects tries alone the jobs that were delivered twice already, counts
// the second delivery of the others, and returns those.
func (w *Worker) settleSuspects(ctx context.Context, jobs []job.Ref) ([]job.Ref, error) {
	ids := make([]uuid.UUID, len(jobs))
	for i, ref := range jobs {
		ids[i] = ref.ID
	}
	suspects, err := job.Suspects(ctx, w.db, ids)
	if err != nil {
		return nil, queue.Later(err)
	}
	var others []job.Ref
	ids = ids[:0]
	for _, ref := range jobs {
		if !slices.Contains(suspects, ref.ID) {
			others, ids = append(others, ref), append(ids, ref.ID)
			continue
		}
		err := w.alone(ctx, job.KindPurchase, ref.ID, func(ctx context.Context) error {
			_, err := w.sell(ctx, []job.Ref{ref}, true)
			return err
		})
		if waitsOut(err) {
			return nil, queue.Later(err)
		}
		if err != nil {
			return nil, failed(1, err)
		}
	}
	if len(ids) > 0 {
		if _, err := job.Begin(ctx, w.db, ids); err != nil {
			return nil, queue.Later(err)
		}
	}
	return others, nil
}
