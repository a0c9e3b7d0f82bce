package httpapi

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"triprize/internal/entry/httpapi/call"
	"triprize/internal/entry/httpapi/response"
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
			j, err := s.await(call.With(t.Context(), who), job.Job{Status: job.Status{State: job.Queued}}, response.Prefer{Longest: c.longest}, waiter)
			if took := time.Since(began); err != nil || j.State != job.Queued || took != c.ends {
				t.Errorf("%s: it is %s after %s, %v; want %s", name, j.State, took, err, c.ends)
			}
			if watches != c.watches || left != watches {
				t.Errorf("%s: watched %d times, want %d; %d have ended", name, watches, c.watches, left)
			}
		})
	}
}
