package httpapi

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/semaphore"

	"triprize/internal/domain/fault"
	"triprize/internal/entry/httpapi/call"
	"triprize/internal/entry/httpapi/resource"
	"triprize/internal/platform/config"
)

func sharesOf(connections int32) *shares {
	var settings config.Settings
	settings.Postgres.MaxConnections, settings.API.MaxConnections, settings.Limits.AddressRate = connections, 10_000, 1
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
		anonymousFlood(ctx, t, s, true)
		anonymousFlood(ctx, t, s, false) // readers leave those a way that bring a round
	})
}

// anonymousFlood sends more requests of one address than are served, and looks at others.
func anonymousFlood(ctx context.Context, t *testing.T, s *shares, isRead bool) {
	t.Helper()
	of := s.reads
	if !isRead {
		of = s.commands
	}
	served := 0
	for range anonymousServed + anonymousOfAddress {
		go func() {
			if leave, err := s.enterRequest(ctx, isRead, call.Caller{Role: resource.Anonymous, Client: "a"}); err == nil {
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
	if _, err := s.enterRequest(ctx, isRead, call.Caller{Role: resource.Anonymous, Client: "a"}); fault.CodeOf(err) != fault.RateLimited {
		t.Errorf("one more of the address: %v", err)
	}
	if _, err := s.enter(ctx, of, call.Caller{Role: resource.App, Client: "a"}); err != nil {
		t.Errorf("a client: %v", err)
	}
	late, end := context.WithTimeout(ctx, time.Second)
	defer end()
	if _, err := s.enter(late, of, call.Caller{Role: resource.Anonymous, Client: "b"}); fault.CodeOf(err) != fault.Overloaded {
		t.Errorf("another address, until its time is over: %v", err)
	}
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

// A lone client has a window of its own, and waits for itself: none of as many requests as one
// batch after the other can take is refused. Clients beside each other have little together, so
// that each waits for few jobs of the others. Without workers there is no window.
func TestClientsBesideEachOtherHaveFewUnfinishedJobs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := sharesOf(10)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var crowd, another, third, refused atomic.Int64 // that are in
		enter := func(client string, in *atomic.Int64, times int) {
			for range times {
				go func() {
					switch leave, err := s.enter(ctx, s.jobs, call.Caller{Role: resource.App, Client: client}); {
					case err == nil:
						in.Add(1)
						s.follow(uuid.New(), func() { in.Add(-1); leave() })
					case ctx.Err() == nil:
						refused.Add(1)
					}
				}()
			}
			synctest.Wait()
		}
		finish := func() { // all that count, as a worker announces them
			s.announced(slices.Collect(maps.Keys(s.unfinished)))
			synctest.Wait()
		}
		s.announced(nil) // there are workers, and they are slow
		enter("crowd", &crowd, alone+8192)
		if crowd.Load() != alone || refused.Load() != 0 || s.jobs.Waiting() != 8192 {
			t.Errorf("alone: %d are in, %d wait, %d were refused", crowd.Load(), s.jobs.Waiting(), refused.Load())
		}
		if _, err := s.enter(ctx, s.jobs, call.Caller{Role: resource.App, Client: "crowd"}); fault.CodeOf(err) != fault.RateLimited {
			t.Errorf("one more: %v", err)
		}
		if enter("another", &another, 1); another.Load() != 1 {
			t.Error("another client is not in at once")
		}
		if finish(); crowd.Load() != beside {
			t.Errorf("beside another client %d of the crowd are in, want %d", crowd.Load(), beside)
		}
		enter("another", &another, 2*beside)
		enter("third", &third, beside)
		if finish(); crowd.Load() != beside/2 || another.Load() != beside/2 || third.Load() != beside/2 {
			t.Errorf("beside two others %d, %d and %d are in", crowd.Load(), another.Load(), third.Load())
		}
		waiting := s.jobs.Waiting()
		time.Sleep(unfinishedFor - time.Millisecond)
		if synctest.Wait(); s.jobs.Waiting() != waiting {
			t.Errorf("%d wait for unfinished jobs, want %d", s.jobs.Waiting(), waiting)
		}
		time.Sleep(time.Millisecond)
		if synctest.Wait(); s.jobs.Waiting() >= waiting {
			t.Error("what waits for a lock holds the next one up")
		}
		time.Sleep(stalledAfter)
		if synctest.Wait(); s.jobs.Waiting() != 0 {
			t.Errorf("without workers %d wait", s.jobs.Waiting())
		}
	})
}

// A refusal that costs its sender nothing would cost the process all the more of them: it comes
// later, at shutdown at once. There are never more that wait than is bounded.
func TestARefusalOfAFloodComesLater(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		draining, drain := context.WithCancel(t.Context())
		s := &server{draining: draining, slowed: semaphore.NewWeighted(1)}
		refusal := fault.New(fault.RateLimited, "too many requests")
		took := func(err error) time.Duration {
			began := time.Now()
			if got := s.slowDown(t.Context(), err); !errors.Is(got, err) {
				t.Errorf("got %v, want %v", got, err)
			}
			return time.Since(began)
		}
		if d := took(nil); d != 0 {
			t.Errorf("what is not refused waits %v", d)
		}
		go func() {
			if d := took(refusal); d != slowedDown {
				t.Errorf("a refusal waits %v", d)
			}
		}()
		synctest.Wait()
		if d := took(refusal); d != 0 {
			t.Errorf("one more than may wait waits %v", d)
		}
		time.Sleep(slowedDown)
		synctest.Wait()
		drain()
		if d := took(refusal); d != 0 {
			t.Errorf("at shutdown a refusal waits %v", d)
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

// However many anonymous callers read proofs slowly or follow draws, from however many
// addresses, half of the slots are left to callers with a key.
func TestAnonymousCallersLeaveHalfOfThePlacesToThoseWithAKey(t *testing.T) {
	t.Parallel()
	p := newSlots("proofs", 4)
	var leave []func()
	for _, address := range []string{"a", "b", "c", "d"} {
		release, err := p.enter(call.Caller{Role: resource.Anonymous, Client: address}, 2)
		if len(leave) < 2 {
			if err != nil {
				t.Fatal(address, err)
			}
			leave = append(leave, release)
		} else if fault.CodeOf(err) != fault.RateLimited {
			t.Errorf("a further anonymous caller: %v", err)
		}
	}
	for range 2 {
		if _, err := p.enter(call.Caller{Role: resource.Operator, Client: "ops"}, 2); err != nil {
			t.Errorf("a caller with a key: %v", err)
		}
	}
	leave[0]()
	if _, err := p.enter(call.Caller{Role: resource.Anonymous, Client: "e"}, 2); err != nil {
		t.Errorf("when one is gone: %v", err)
	}
}
