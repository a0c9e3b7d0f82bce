package worker

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"triprize/internal/store/job"
)

// busyDelay is about how long a batch of another worker takes.
const busyDelay = 2 * time.Millisecond

// walletDelay is how long a job that has waited for its wallet in vain leaves its
// campaign to the others: the campaign stands still while it waits.
const walletDelay = time.Second

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
		ready, resting := awake(items, time.Now())
		if len(ready) == 0 {
			if err := w.pause(ctx, time.Until(resting[0].restsUntil)); err != nil {
				return err
			}
			continue
		}
		left, wait, err := w.pass(ctx, ready)
		if err != nil {
			return err
		}
		d := busyDelay + rand.N(busyDelay) //nolint:gosec // a jitter is no secret
		if wait {
			d = delay.NextBackOff()
		}
		now := time.Now()
		for _, it := range left {
			it.restsUntil = now.Add(d)
			if it.passedOver > 2*patience {
				it.restsUntil = now.Add(max(d, walletDelay))
			}
		}
		items = append(left, resting...)
	}
	return nil
}

// awake tells the items that may be tried now from those that rest, of which the
// first to wake comes first.
func awake(items []*item, now time.Time) (ready, resting []*item) {
	for _, it := range items {
		if it.restsUntil.After(now) {
			resting = append(resting, it)
		} else {
			ready = append(ready, it)
		}
	}
	slices.SortFunc(resting, func(a, b *item) int { return a.restsUntil.Compare(b.restsUntil) })
	return ready, resting
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
