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

func TestWhoIsWaitedForDependsOnHowOftenItWasPutOff(t *testing.T) {
	t.Parallel()
	a, b := uuid.New(), uuid.New()
	for name, c := range map[string]struct {
		items          []*item
		turns, overdue int
		first          sale.Wait
	}{
		"one job":                {putOff(a, 0), 0, 0, waitForCampaign},
		"one campaign":           {putOff(a, 0, 1, turnAfter-1), 0, 0, waitForCampaign},
		"two campaigns":          {slices.Concat(putOff(a, 0), putOff(b, turnAfter-1)), 0, 0, sale.SkipLocked},
		"one has its turn":       {slices.Concat(putOff(a, turnAfter), putOff(b, 0)), 1, 0, sale.SkipLocked},
		"before its wallet":      {slices.Concat(putOff(a, walletAfter-1), putOff(b, 0)), 1, 0, sale.SkipLocked},
		"one waits for a wallet": {slices.Concat(putOff(a, walletAfter, turnAfter, 0), putOff(b, 0)), 2, 1, sale.SkipLocked},
		"two campaigns do":       {slices.Concat(putOff(a, walletAfter), putOff(b, walletAfter+1)), 2, 2, sale.SkipLocked},
	} {
		left := make(map[uuid.UUID]verdict)
		for _, it := range c.items {
			left[it.ID] = busy
		}
		may := &waits{left: 1}
		if got := may.forCampaigns(c.items); got != c.first || may.take() == c.first.Waits() {
			t.Errorf("%s: the first transaction waits %+v", name, got)
		}
		if got := (&waits{}).forCampaigns(c.items); got != sale.SkipLocked {
			t.Errorf("%s: without a wait left it waits %+v", name, got)
		}
		var turn, late []*item
		for id, jobs := range turns(c.items, left) {
			for _, it := range jobs {
				if it.CampaignID != id {
					t.Errorf("%s: a job of another campaign", name)
				}
			}
			turn, late = append(turn, jobs...), append(late, overdue(jobs, left)...)
		}
		if len(turn) != c.turns || len(late) != c.overdue {
			t.Errorf("%s: %d wait for campaigns, %d for wallets", name, len(turn), len(late))
		}
		if got := turns(c.items, nil); len(got) != 0 {
			t.Errorf("%s: jobs that are done are waited for: %v", name, got)
		}
	}
}

func TestAJobThatIsPutOffAgainAndAgainRestsLonger(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for _, c := range []struct {
		putOff        int
		backoff       time.Duration
		atLeast, most time.Duration
	}{
		{1, 0, busyDelay, 2 * busyDelay},
		{walletAfter, 0, busyDelay, 2 * busyDelay},
		{walletAfter + 1, 0, 2 * busyDelay, 4 * busyDelay},
		{walletAfter + 3, 0, 8 * busyDelay, 16 * busyDelay},
		{walletAfter + 1000, 0, longestDelay, 2 * longestDelay},
		{1, 7 * time.Second, 7 * time.Second, 7 * time.Second},
		{walletAfter + 1000, 7 * time.Second, 7 * time.Second, 7 * time.Second},
	} {
		it := &item{putOff: c.putOff}
		it.backOff(now, c.backoff)
		if rests := it.notBefore.Sub(now); rests < c.atLeast || rests > c.most {
			t.Errorf("%+v: it rests for %s", c, rests)
		}
	}
}

func TestThoseWhoRestAreWokenInOrder(t *testing.T) {
	t.Parallel()
	now := time.Now()
	at := func(d time.Duration) *item { return &item{notBefore: now.Add(d)} }
	first, second, third, fourth := at(-time.Second), at(0), at(time.Second), at(2*time.Second)
	ready, backedOff := splitReady([]*item{fourth, first, third, second}, now)
	if !slices.Equal(ready, []*item{first, second}) || !slices.Equal(backedOff, []*item{third, fourth}) {
		t.Errorf("ready %v, backedOff %v", ready, backedOff)
	}
}
