package worker

import (
	"context"
	"math/rand/v2"
	"time"

	"triprize/internal/job"
)

// busyDelay is about how long a batch of another worker takes.
const busyDelay = 2 * time.Millisecond

// settlePurchases brings purchase jobs to their end through the lanes.
func (w *Worker) settlePurchases(ctx context.Context, jobs []job.Ref, again bool) error {
	if again {
		return w.settleWarily(ctx, jobs)
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
