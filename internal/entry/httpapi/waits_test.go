package httpapi

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"triprize/internal/domain/fault"
	"triprize/internal/entry/httpapi/call"
	"triprize/internal/entry/httpapi/response"
	"triprize/internal/inventory"
	"triprize/internal/job"
)

func TestAWaitEndsAtItsTimeAndBeforeItWithItsProcessAndWithItsKey(t *testing.T) {
	t.Parallel()
	const early, late = unwatched / 5, 3 * unwatched
	for name, c := range map[string]struct {
		longest, drained, revoked time.Duration // 0: never
		ends                      time.Duration
		watches                   int
	}{
		"a short one":            {longest: early, ends: early},
		"one that just ends":     {longest: unwatched, ends: unwatched},
		"a long one":             {longest: 2 * late, ends: 2 * late, watches: 1},
		"a shutdown":             {longest: 2 * late, drained: early, ends: early},
		"a later shutdown":       {longest: 2 * late, drained: late, ends: late, watches: 1},
		"a key that was revoked": {longest: 2 * late, revoked: late, ends: late, watches: 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			draining, drain := context.WithCancel(t.Context())
			defer drain()
			watches, left := 0, 0
			who := &call.Call{Caller: call.Caller{KeyPrefix: "a key"}, Watch: func(_ string, revoked func()) (stop func()) {
				watches++
				if c.revoked > 0 {
					time.AfterFunc(c.revoked-time.Since(began), revoked)
				}
				return func() { left++ }
			}}
			if c.drained > 0 {
				time.AfterFunc(c.drained, drain)
			}
			s := &server{draining: draining}
			waiter := job.NewJobs(nil, nil, 0, nil, nil).Waiter(uuid.New())
			j, err := s.await(call.With(t.Context(), who), job.Job{State: job.Queued}, response.Wait{Longest: c.longest}, waiter)
			if took := time.Since(began); err != nil || j.State != job.Queued || took != c.ends {
				t.Errorf("%s: it is %s after %s, %v; want %s", name, j.State, took, err, c.ends)
			}
			if watches != c.watches || left != watches {
				t.Errorf("%s: watched %d times, want %d; %d have ended", name, watches, c.watches, left)
			}
		})
	}
}

func TestTheSmallestQuantityThatFoundNoRunIsRememberedForASecond(t *testing.T) {
	t.Parallel()
	n, now := newNoRuns(), time.Now()
	n.now = func() time.Time { return now }
	one, other := uuid.New(), uuid.New()
	none := &job.Problem{Code: fault.NoneAvailable, ForAll: true}
	beside := func(layer, quantity int) inventory.Selection {
		return inventory.Selection{Layer: layer, Quantity: quantity, Adjacent: true}
	}
	n.learn(one, beside(2, 4), none)
	n.learn(one, beside(2, 3), none)
	n.learn(one, beside(2, 5), none)                                    // says no more
	n.learn(one, beside(3, 2), &job.Problem{Code: fault.NoneAvailable}) // what its user must avoid
	n.learn(one, beside(3, 2), nil)
	n.learn(one, inventory.Selection{Layer: 3, Quantity: 2}, none)
	n.learn(other, beside(0, 6), none)
	for _, c := range []struct {
		campaign uuid.UUID
		sel      inventory.Selection
		refused  bool
	}{
		{one, beside(2, 2), false}, {one, beside(2, 3), true}, {one, beside(2, 9), true}, {one, beside(3, 3), false}, {one, beside(0, 3), false},
		{one, inventory.Selection{Layer: 2, Quantity: 3}, false}, {other, beside(2, 3), false},
		{other, beside(0, 5), false}, {other, beside(0, 6), true}, {other, beside(7, 6), true}, {other, beside(7, 5), false},
	} {
		if err := n.refusal(c.campaign, c.sel); (err != nil) != c.refused || c.refused && fault.CodeOf(err) != fault.NoneAvailable {
			t.Errorf("%+v: %v", c, err)
		}
	}
	now = now.Add(time.Second)
	if err := n.refusal(one, beside(2, 3)); err != nil {
		t.Errorf("a second later: %v", err)
	}
	n.learn(one, beside(2, 5), none)
	if n.refusal(one, beside(2, 4)) != nil || n.refusal(one, beside(2, 5)) == nil {
		t.Error("what is over still counts")
	}
	for range 2 * mostRefused {
		n.learn(uuid.New(), beside(1, 2), none)
	}
	if n.known.Len() != mostRefused {
		t.Errorf("%d pools are remembered", n.known.Len())
	}
}
