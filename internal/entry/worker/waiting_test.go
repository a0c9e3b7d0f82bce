package worker

import (
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"triprize/internal/domain/uuidv7"
	"triprize/internal/service/sale"
	"triprize/internal/store/job"
)

// putOff returns items of a campaign that were put off so often.
func putOff(campaignID uuid.UUID, times ...int) []*item {
	items := make([]*item, len(times))
	for i, n := range times {
		items[i] = &item{Ref: job.Ref{ID: uuidv7.New(), CampaignID: campaignID}, putOff: n}
	}
	return items
}

func TestHowLongAJobWaitsDependsOnHowOftenItWasPutOff(t *testing.T) {
	t.Parallel()
	a, b, c := uuid.New(), uuid.New(), uuid.New()
	skip, turn, overdue := []sale.Wait{sale.SkipLocked}, []sale.Wait{sale.WaitForCampaign}, []sale.Wait{sale.WaitForCampaign, waitForWallets}
	type tried struct {
		items []int // indexes
		waits []sale.Wait
	}
	for name, want := range map[string]struct {
		items []*item
		tried []tried
	}{
		"nothing":                        {nil, nil},
		"one job":                        {putOff(a, 0), []tried{{[]int{0}, turn}}},
		"one campaign":                   {putOff(a, 0, 1, turnAfter-1), []tried{{[]int{0, 1, 2}, turn}}},
		"two campaigns":                  {slices.Concat(putOff(a, 0), putOff(b, 0), putOff(a, 0)), []tried{{[]int{0, 1, 2}, skip}}},
		"shortly before its turn":        {slices.Concat(putOff(a, turnAfter-1), putOff(b, 0)), []tried{{[]int{0, 1}, skip}}},
		"one has its turn":               {slices.Concat(putOff(a, turnAfter), putOff(b, 0), putOff(c, 0)), []tried{{[]int{1, 2}, skip}, {[]int{0}, turn}}},
		"shortly before its wallet":      {slices.Concat(putOff(a, walletAfter-1), putOff(b, 0), putOff(c, 0)), []tried{{[]int{1, 2}, skip}, {[]int{0}, turn}}},
		"one waits for its wallet":       {slices.Concat(putOff(a, walletAfter), putOff(b, 0), putOff(c, 0)), []tried{{[]int{1, 2}, skip}, {[]int{0}, overdue}}},
		"one has its turn, one is left":  {slices.Concat(putOff(a, turnAfter), putOff(b, 0, 1)), []tried{{[]int{0}, turn}, {[]int{1, 2}, turn}}},
		"all have their turn":            {slices.Concat(putOff(a, turnAfter, turnAfter), putOff(b, turnAfter)), []tried{{[]int{0, 1}, turn}, {[]int{2}, turn}}},
		"some jobs of it have a turn":    {slices.Concat(putOff(a, turnAfter, 0), putOff(b, 0)), []tried{{[]int{1, 2}, skip}, {[]int{0}, turn}}},
		"of one campaign, one was late":  {putOff(a, 0, turnAfter, 0), []tried{{[]int{1, 0, 2}, turn}}},
		"of one campaign, one is to pay": {putOff(a, 0, walletAfter), []tried{{[]int{0}, turn}, {[]int{1}, overdue}}},
	} {
		plan := attempts(want.items)
		if len(plan) != len(want.tried) {
			t.Errorf("%s: %d attempts: %+v", name, len(plan), plan)
			continue
		}
		for _, w := range want.tried {
			var refs []job.Ref
			for _, i := range w.items {
				refs = append(refs, want.items[i].Ref)
			}
			if !slices.ContainsFunc(plan, func(a attempt) bool { return slices.Equal(a.jobs, refs) && slices.Equal(a.waits, w.waits) }) {
				t.Errorf("%s: %+v is not among %+v", name, w, plan)
			}
		}
		for i, a := range plan {
			if i > 0 && (len(a.waits) < len(plan[i-1].waits) || a.waits[0] == sale.SkipLocked) {
				t.Errorf("%s: who waits comes before those who do not: %+v", name, plan)
			}
		}
	}
}

func TestAJobThatWasPutOffRestsLongerAfterItsWallet(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for _, c := range []struct {
		putOff        int
		backoff       time.Duration
		atLeast, most time.Duration
	}{
		{1, 0, busyDelay, 2 * busyDelay},
		{walletAfter, 0, busyDelay, 2 * busyDelay},
		{walletAfter + 1, 0, walletDelay, walletDelay},
		{1, 7 * time.Second, 7 * time.Second, 7 * time.Second},
		{walletAfter + 1, walletDelay / 2, walletDelay, walletDelay},
	} {
		it := &item{putOff: c.putOff}
		it.rest(now, c.backoff)
		if rests := it.restsUntil.Sub(now); rests < c.atLeast || rests > c.most {
			t.Errorf("%+v: it rests for %s", c, rests)
		}
	}
}

func TestThoseWhoRestAreWokenInOrder(t *testing.T) {
	t.Parallel()
	now := time.Now()
	at := func(d time.Duration) *item { return &item{restsUntil: now.Add(d)} }
	first, second, third, fourth := at(-time.Second), at(0), at(time.Second), at(2*time.Second)
	ready, resting := awake([]*item{fourth, first, third, second}, now)
	if !slices.Equal(ready, []*item{first, second}) || !slices.Equal(resting, []*item{third, fourth}) {
		t.Errorf("ready %v, resting %v", ready, resting)
	}
}
