package httpapi

import (
	"context"
	"errors"
	"sync"
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

// workers finish jobs in the order of their arrival, perTick of them each 5 ms, and announce
// them after latency.
type workers struct {
	shares  *shares
	perTick int
	latency time.Duration

	mu    sync.Mutex
	queue []*finishing
}

type finishing struct {
	id    uuid.UUID
	final chan struct{}
}

func (w *workers) run(ctx context.Context) {
	for ctx.Err() == nil {
		time.Sleep(5 * time.Millisecond)
		w.mu.Lock()
		n := min(w.perTick, len(w.queue))
		some := w.queue[:n]
		w.queue = w.queue[n:]
		w.mu.Unlock()
		if n == 0 {
			continue
		}
		time.AfterFunc(w.latency, func() {
			ids := make([]uuid.UUID, n)
			for i, one := range some {
				ids[i] = one.id
				close(one.final)
			}
			w.shares.announced(ids)
		})
	}
}

// do has a job done, from its turn to its announcement.
func (w *workers) do(ctx context.Context, client string) {
	leave, err := w.shares.enter(ctx, w.shares.jobs, call.Caller{Role: resource.App, Client: client})
	if err != nil {
		return
	}
	one := &finishing{uuid.New(), make(chan struct{})}
	w.shares.follow(one.id, leave)
	w.mu.Lock()
	w.queue = append(w.queue, one)
	w.mu.Unlock()
	select {
	case <-one.final:
	case <-ctx.Done():
	}
}

// Beside a crowd of another client a job takes little longer than alone, whatever the workers
// can do; and the crowd has all that they can do, however long each job takes.
func TestACrowdHasWhatTheWorkersCanDoAndAnotherClientDoesNotWaitForIt(t *testing.T) {
	t.Parallel()
	const crowd, settling, measured = 300, 20 * time.Second, 20 * time.Second
	for _, c := range []struct {
		perTick int
		latency time.Duration
	}{{10, 5 * time.Millisecond}, {10, 50 * time.Millisecond}, {1, 10 * time.Millisecond}, {1000, 25 * time.Millisecond}, {1000, 100 * time.Millisecond}} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			w := &workers{shares: sharesOf(10), perTick: c.perTick, latency: c.latency}
			go w.run(ctx)
			var done atomic.Int64
			for range crowd {
				go func() {
					for ctx.Err() == nil {
						w.do(ctx, "crowd")
						done.Add(1)
					}
				}()
			}
			var longest, sum time.Duration
			n := 0
			for began := time.Now(); time.Since(began) < settling+measured; time.Sleep(100 * time.Millisecond) {
				start := time.Now()
				w.do(ctx, "another")
				if took := time.Since(start); time.Since(began) > settling {
					longest, sum, n = max(longest, took), sum+took, n+1
				} else {
					done.Store(0)
				}
			}
			could := min(float64(c.perTick)/0.005, crowd/(c.latency+5*time.Millisecond).Seconds())
			perSecond, mean := float64(done.Load())/measured.Seconds(), sum/time.Duration(n)
			t.Logf("%+v: %.0f of %.0f a second; the other client's jobs take %v, %v at most", c, perSecond, could, mean, longest)
			if perSecond < could*3/4 {
				t.Errorf("%+v: the crowd has %.0f of %.0f a second", c, perSecond, could)
			}
			batches := time.Duration(leastBeside/c.perTick) * 5 * time.Millisecond // a window is not smaller
			if most := c.latency + 5*time.Millisecond + batches + 3*queueing; mean > most {
				t.Errorf("%+v: the other client's jobs take %v, want %v at most", c, mean, most)
			}
			cancel()
			time.Sleep(time.Second) // all end
		})
	}
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

// A refusal that costs its sender nothing would cost the process all the more of them: it comes
// later, at shutdown at once. There are never more that wait than is bounded.
func TestARefusalOfAFloodComesLater(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		draining, drain := context.WithCancel(t.Context())
		s := &Server{intake: &intake{draining: draining}, slowed: semaphore.NewWeighted(1)}
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
