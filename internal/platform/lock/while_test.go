package lock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"triprize/internal/platform/lock"
)

// What happens to the servers while the work runs decides whether its lock is lost, and when.
func TestALockIsExtendedForAsLongAsAMajorityMayHaveIt(t *testing.T) {
	t.Parallel()
	const next = (ttl - ttl/100) / 3 // when the first extension comes
	type row struct {
		name     string
		servers  int
		fault    func(c *cluster)
		mend     func(c *cluster) // after half the time of the lock
		least    time.Duration    // until it is lost; 0: it is kept
		most     time.Duration
		attempts int // at least, on the last of the servers
	}
	away := func(n int) func(*cluster) {
		return func(c *cluster) {
			for i, server := range c.servers {
				server.set(func(s *simulated) { s.away = i < n })
			}
		}
	}
	rows := []row{
		{name: "a short outage", servers: 1, fault: away(1), mend: away(0), attempts: 9},
		{name: "deleted", servers: 1, fault: func(c *cluster) { c.servers[0].remove("a") }, least: next, most: next, attempts: 1},
		{name: "taken by another", servers: 1, fault: func(c *cluster) { c.servers[0].put("a", "another", 0) }, least: next, most: next, attempts: 1},
		{name: "one has it, one says no, and one does not answer", servers: 3,
			fault: func(c *cluster) {
				c.servers[0].remove("a")
				c.servers[1].set(func(s *simulated) { s.away = true })
			},
			mend: away(0), attempts: 9},
	}
	for _, n := range []int{1, 3, 5} {
		rows = append(rows,
			row{name: fmt.Sprintf("a minority of %d away", n), servers: n, fault: away(n / 2), attempts: 9},
			row{name: fmt.Sprintf("a majority of %d away", n), servers: n, fault: away(n/2 + 1), least: ttl * 9 / 10, most: ttl, attempts: 2})
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			simulate(t, row.servers, func(t *testing.T, c *cluster) {
				other, began := c.other(), time.Now()
				var theirs string
				done := false
				err := c.locker.While(t.Context(), "a", ttl, func(ctx context.Context) {
					row.fault(c)
					theirs = c.servers[0].holder("a")
					sleep(ctx, ttl/2)
					if row.mend != nil {
						row.mend(c)
					}
					for range 20 {
						sleep(ctx, ttl/7)
						if row.least > 0 {
							continue
						}
						if _, err := other.Acquire(t.Context(), "a"); !errors.Is(err, lock.ErrTaken) {
							t.Fatal(err)
						}
					}
					lived, cause := time.Since(began), context.Cause(ctx)
					if kept := row.least == 0; kept && cause != nil || !kept && (!errors.Is(cause, lock.ErrLost) || lived < row.least || lived > row.most) {
						t.Errorf("after %s: %v", lived, cause)
					}
					time.Sleep(ttl) // the work goes on for some time
					done = true
				})
				if errors.Is(err, lock.ErrLost) != (row.least > 0) || (err == nil) != (row.least == 0) || !done {
					t.Errorf("got %v, the work is done: %v", err, done)
				}
				lost, attempts := c.measured("lost_total", ""), c.servers[row.servers-1].count("extend")
				if lost != map[bool]int{true: 1}[row.least > 0] || strings.Count(c.log.String(), `msg=lock outcome=lost names=[a] took_ms=`) != lost || attempts < row.attempts || row.least == next && attempts > 1 {
					t.Errorf("%d losses are counted, after %d extensions", lost, attempts)
				}
				for _, one := range c.servers[row.servers-1].commands("extend") {
					if row.least > 0 && one.at.Sub(began) >= ttl-ttl/100 {
						t.Errorf("after %s it had expired, and was to be extended", one.at.Sub(began))
					}
				}
				if row.least > 0 && c.servers[0].holder("a") != "" && c.servers[0].holder("a") != theirs {
					t.Errorf("%q has it instead of %q", c.servers[0].holder("a"), theirs)
				}
				if row.least == 0 {
					acquire(t, other, "a")()
				}
			}, once)
		})
	}
}

// sleep returns at once when the context has ended.
func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

func TestExtensionsComeAfterAThirdOfWhatIsLeftAndNoneAfterTheWork(t *testing.T) {
	t.Parallel()
	simulate(t, 1, func(t *testing.T, c *cluster) {
		server, last := c.servers[0], time.Now()
		if err := c.locker.While(t.Context(), "a", ttl, func(context.Context) { time.Sleep(10 * ttl) }); err != nil {
			t.Error(err)
		}
		for i, one := range server.commands("extend") {
			if pause := one.at.Sub(last); pause != (ttl-ttl/100)/3 {
				t.Errorf("extension %d came after %s", i+1, pause)
			}
			last = one.at
		}
		if err := c.locker.While(t.Context(), "a", ttl, func(context.Context) {}); err != nil {
			t.Error(err)
		}
		time.Sleep(2 * ttl)
		if extended, released := server.count("extend"), server.count("release"); extended != 30 || released != 2 {
			t.Errorf("%d extensions, %d releases", extended, released)
		}
	})
}

// A server whose clock is slow still has a lock that has run out for its holder.
func TestALockThatRanOutForItsHolderIsNotExtendedThoughTheServerHasIt(t *testing.T) {
	t.Parallel()
	simulate(t, 1, func(t *testing.T, c *cluster) {
		server := c.servers[0]
		server.set(func(s *simulated) { // the holder's process is paused before its first extension
			s.before = func(kind, _ string) error {
				if kind == "extend" {
					time.Sleep(ttl)
				}
				return nil
			}
		})
		err := c.locker.While(t.Context(), "a", ttl, func(ctx context.Context) {
			server.put("a", server.holder("a"), 0)
			<-ctx.Done()
			server.mu.Lock()
			defer server.mu.Unlock()
			if value := server.values["ns:lock:a"]; !value.expires.IsZero() {
				t.Errorf("it was extended to %s", value.expires)
			}
		})
		if !errors.Is(err, lock.ErrLost) || server.holder("a") != "" {
			t.Errorf("%v, or it was not given back", err)
		}
	})
}

// A scheduler that shuts down finishes its sweeps: no other one leads meanwhile.
func TestTheEndOfTheCallerIsNoLossAndTheLockIsHeldUntilTheWorkEnds(t *testing.T) {
	t.Parallel()
	simulate(t, 1, func(t *testing.T, c *cluster) {
		reason := errors.New("shutting down")
		ctx, end := context.WithCancelCause(t.Context())
		err := c.locker.While(ctx, "a", ttl, func(held context.Context) {
			end(reason)
			<-held.Done()
			time.Sleep(3 * ttl)
			if _, err := c.other().Acquire(t.Context(), "a"); !errors.Is(err, lock.ErrTaken) || !errors.Is(context.Cause(held), reason) {
				t.Errorf("got %v, the cause is %v", err, context.Cause(held))
			}
		})
		if err != nil {
			t.Error(err)
		}
		acquire(t, c.other(), "a")()
		err = c.locker.While(ctx, "a", ttl, func(context.Context) { t.Error("it ran for a caller who is gone") })
		if !errors.Is(err, context.Canceled) || errors.Is(err, lock.ErrTaken) || errors.Is(err, lock.ErrNoQuorum) {
			t.Errorf("for a caller who is gone: %v", err)
		}
	}, once)
}

func TestWhoFindsALockTakenDoesNotTryAgain(t *testing.T) {
	t.Parallel()
	simulate(t, 1, func(t *testing.T, c *cluster) {
		c.servers[0].put("a", "somebody", 0)
		err := c.locker.While(t.Context(), "a", ttl, func(context.Context) { t.Error("it ran") })
		if n := c.servers[0].count("take"); !errors.Is(err, lock.ErrTaken) || n != 1 || c.servers[0].holder("a") != "somebody" {
			t.Errorf("%v after %d attempts; now %q holds it", err, n, c.servers[0].holder("a"))
		}
	})
}

func TestReleaseWaitsForTheExtensionUnderWay(t *testing.T) {
	t.Parallel()
	simulate(t, 1, func(t *testing.T, c *cluster) {
		server := c.servers[0]
		entered, out := make(chan struct{}), make(chan struct{})
		server.set(func(s *simulated) {
			s.before = func(kind, _ string) error {
				if kind == "extend" { // also when its context has ended
					close(entered)
					<-out
				}
				return nil
			}
		})
		released := make(chan error, 1)
		go func() { released <- c.locker.While(t.Context(), "a", ttl, func(context.Context) { <-entered }) }()
		<-entered
		synctest.Wait()
		if len(released) > 0 {
			t.Error("it did not wait")
		}
		close(out)
		if err := <-released; err != nil { // a lock that was given back is not lost
			t.Error(err)
		}
		time.Sleep(3 * ttl)
		if n := server.count("extend"); n != 1 || server.holder("a") != "" {
			t.Errorf("%d extensions; %q holds it", n, server.holder("a"))
		}
	})
}
