package httpapi

import (
	"context"
	"math"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"triprize/internal/domain/fault"
	"triprize/internal/entry/httpapi/call"
	"triprize/internal/entry/httpapi/resource"
	"triprize/internal/platform/config"
)

func sharesOf(connections int32) *shares {
	var settings config.Settings
	settings.Postgres.MaxConnections, settings.API.MaxConnections, settings.Accept.MaxPending, settings.Limits.AddressRate = connections, 10_000, 8192, 1
	return newShares(settings, prometheus.NewRegistry())
}

// However many anonymous callers come, few are served at once; the others wait, those of one
// address leave room for others, and clients go past.
func TestFewAnonymousRequestsAreServedAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := sharesOf(10)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		served := 0
		for range anonymousServed + anonymousOfAddress {
			go func() {
				if leave, err := s.enter(ctx, s.reads, call.Caller{Role: resource.Anonymous, Client: "a"}); err == nil {
					served++
					<-ctx.Done()
					leave()
				}
			}()
			synctest.Wait()
		}
		if served != anonymousServed {
			t.Errorf("%d are served", served)
		}
		if _, err := s.enter(ctx, s.reads, call.Caller{Role: resource.Anonymous, Client: "a"}); fault.CodeOf(err) != fault.RateLimited {
			t.Errorf("one more of the address: %v", err)
		}
		if _, err := s.enter(ctx, s.reads, call.Caller{Role: resource.App, Client: "a"}); err != nil {
			t.Errorf("a client: %v", err)
		}
		late, end := context.WithTimeout(ctx, time.Second)
		defer end()
		if _, err := s.enter(late, s.reads, call.Caller{Role: resource.Anonymous, Client: "b"}); fault.CodeOf(err) != fault.Overloaded {
			t.Errorf("another address, until its time is over: %v", err)
		}
	})
}

// Reads have half of the connections, and the one that waits for nobody is served next.
func TestReadsOfOneClientLetAnotherOneIn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := sharesOf(10)
		flood := call.Caller{Role: resource.App, Client: "flood"}
		var leave func()
		for range 5 {
			leave, _ = s.enter(t.Context(), s.reads, flood)
		}
		order := make(chan string, 9)
		enter := func(who call.Caller) {
			if l, err := s.enter(t.Context(), s.reads, who); err == nil {
				order <- who.Client
				defer l()
			}
		}
		for range 8 {
			go enter(flood)
			synctest.Wait()
		}
		go enter(call.Caller{Role: resource.App, Client: "quiet"})
		synctest.Wait()
		if len(order) > 0 {
			t.Error("more than half of the connections read")
		}
		leave()
		synctest.Wait()
		if first, second := <-order, <-order; first != "quiet" && second != "quiet" {
			t.Errorf("first %s and %s were served", first, second)
		}
	})
}

func TestTheUnfinishedJobsOfAClientHaveAWindow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := sharesOf(10)
		const perSecond = 2000
		work := func(d time.Duration) {
			for range int(d / (10 * time.Millisecond)) {
				time.Sleep(10 * time.Millisecond)
				s.announced(make([]uuid.UUID, perSecond/100))
			}
		}
		want := func(when string, others, window int) {
			t.Helper()
			if got := s.window("a", others); math.Abs(float64(got-window)) > float64(window)/10 {
				t.Errorf("%s: %d, want %d", when, got, window)
			}
		}
		want("nothing is known", 1, math.MaxInt)
		work(time.Second)
		want("alone", 0, perSecond)
		want("beside another one", 1, perSecond/50)
		want("beside three", 3, perSecond/150)
		time.Sleep(2 * stalledAfter)
		want("nothing becomes final", 1, math.MaxInt)
	})
}

// As many requests of a lone client wait as one batch after the other can take: none is refused.
// Another client is let in at once.
func TestALoneCrowdWaitsForItselfAndIsNotRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := sharesOf(10)
		s.announced([]uuid.UUID{uuid.New()}) // there are workers, and they are slow
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		crowd := call.Caller{Role: resource.App, Client: "crowd"}
		const most = leastAlone + 8192
		var in, refused atomic.Int64
		for range most {
			go func() {
				switch _, err := s.enter(ctx, s.jobs, crowd); {
				case err == nil:
					in.Add(1)
				case ctx.Err() == nil:
					refused.Add(1)
				}
			}()
		}
		synctest.Wait()
		if in.Load() != leastAlone || refused.Load() != 0 || s.jobs.Waiting() != most-leastAlone {
			t.Errorf("%d are in, %d wait, %d were refused", in.Load(), s.jobs.Waiting(), refused.Load())
		}
		if _, err := s.enter(ctx, s.jobs, crowd); fault.CodeOf(err) != fault.RateLimited {
			t.Errorf("one more: %v", err)
		}
		if _, err := s.enter(ctx, s.jobs, call.Caller{Role: resource.App, Client: "another"}); err != nil {
			t.Errorf("another client: %v", err)
		}
	})
}

// A job counts until it is announced, and not for long.
func TestAJobIsUnfinishedUntilItIsAnnounced(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := sharesOf(10)
		first, second, third := uuid.New(), uuid.New(), uuid.New()
		var left atomic.Int64
		leave := func() { left.Add(1) }
		s.follow(first, leave)
		s.follow(second, leave)
		end := s.follow(third, leave)
		s.announced([]uuid.UUID{first, uuid.New()})
		if left.Load() != 1 {
			t.Errorf("%d of 1 announced job have left", left.Load())
		}
		end()
		end()
		if left.Load() != 2 {
			t.Errorf("%d have left with the one that was ended", left.Load())
		}
		time.Sleep(2 * unfinishedFor)
		if synctest.Wait(); left.Load() != 3 || len(s.unfinished) != 0 {
			t.Errorf("%d have left, %d are left", left.Load(), len(s.unfinished))
		}
	})
}
