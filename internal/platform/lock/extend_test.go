package lock_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"triprize/internal/platform/config"
	"triprize/internal/platform/lock"
)

func TestALockIsExtendedForAsLongAsItsHolderLives(t *testing.T) {
	t.Parallel()
	for _, servers := range []int{1, 3, 5} {
		t.Run(fmt.Sprintf("on %d servers, a minority away", servers), func(t *testing.T) {
			t.Parallel()
			simulate(t, servers, func(t *testing.T, c *cluster) {
				other := c.other()
				held := acquire(t, c.locker, "a", "b")
				for _, server := range c.servers[:servers/2] {
					server.set(func(s *simulated) { s.away = true })
				}
				for range 30 {
					time.Sleep(ttl / 7)
					for _, name := range []string{"a", "b"} {
						if _, err := other.Acquire(t.Context(), name); !errors.Is(err, lock.ErrTaken) {
							t.Fatalf("%s: %v", name, err)
						}
					}
				}
				kept(t, held)
				held.Release(t.Context())
				acquire(t, other, "a", "b").Release(t.Context())
				if n := measured(t, c.registry, "triprize_lock_lost_total", ""); n != 0 {
					t.Errorf("%d were lost", n)
				}
			}, func(s *config.Locks) { s.Tries = 1 })
		})
	}
}

func TestExtensionsComeAfterAThirdOfWhatIsLeft(t *testing.T) {
	t.Parallel()
	simulate(t, 1, func(t *testing.T, c *cluster) {
		held := acquire(t, c.locker, "a")
		began := time.Now()
		time.Sleep(10 * ttl)
		held.Release(t.Context())
		last := began
		for i, at := range c.servers[0].times("extend") {
			left := ttl - ttl/100
			if pause := at.Sub(last); pause != left/3 {
				t.Errorf("extension %d came after %s", i+1, pause)
			}
			last = at
		}
		if n := c.servers[0].count("extend"); n != 30 {
			t.Errorf("%d extensions", n)
		}
	})
}

func TestALockThatIsGivenBackSoonIsNeverExtended(t *testing.T) {
	t.Parallel()
	simulate(t, 1, func(t *testing.T, c *cluster) {
		held := acquire(t, c.locker, "a")
		held.Release(t.Context())
		held.Extend() // one that became due just before
		time.Sleep(2 * ttl)
		kept(t, held)
		if extended, released := c.servers[0].count("extend"), c.servers[0].count("release"); extended != 0 || released != 1 {
			t.Errorf("%d extensions, %d releases", extended, released)
		}
	})
}

func TestAShortOutageDoesNotLoseALock(t *testing.T) {
	t.Parallel()
	simulate(t, 1, func(t *testing.T, c *cluster) {
		server := c.servers[0]
		err := c.locker.While(t.Context(), "a", ttl, func(ctx context.Context) {
			server.set(func(s *simulated) { s.away = true })
			time.Sleep(ttl / 2)
			server.set(func(s *simulated) { s.away = false })
			if n := server.count("extend"); n != 1 {
				t.Errorf("%d extensions failed: the test does not test", n)
			}
			time.Sleep(3 * ttl)
			if ctx.Err() != nil {
				t.Errorf("lost: %v", context.Cause(ctx))
			}
		})
		if err != nil {
			t.Error(err)
		}
	})
}

func TestALongOutageLosesALockWhenItRunsOut(t *testing.T) {
	t.Parallel()
	for _, servers := range []int{1, 3, 5} {
		t.Run(fmt.Sprintf("on %d servers", servers), func(t *testing.T) {
			t.Parallel()
			simulate(t, servers, func(t *testing.T, c *cluster) {
				began := time.Now()
				err := c.locker.While(t.Context(), "a", ttl, func(ctx context.Context) {
					for _, server := range c.servers[:servers/2+1] {
						server.set(func(s *simulated) { s.away = true })
					}
					<-ctx.Done()
					if cause := context.Cause(ctx); !errors.Is(cause, lock.ErrLost) {
						t.Errorf("the cause is %v", cause)
					}
					if lived := time.Since(began); lived > ttl || lived < ttl*9/10 {
						t.Errorf("it was lost after %s of %s", lived, ttl)
					}
				})
				if !errors.Is(err, lock.ErrLost) {
					t.Errorf("got %v", err)
				}
				if n := c.servers[0].count("extend"); n < 2 {
					t.Errorf("given up after %d attempts", n)
				}
				if n := measured(t, c.registry, "triprize_lock_lost_total", ""); n != 1 {
					t.Errorf("%d losses are counted", n)
				}
			})
		})
	}
}

func TestASetIsLostWhenTheFirstOfItsLocksRunsOut(t *testing.T) {
	t.Parallel()
	simulate(t, 1, func(t *testing.T, c *cluster) {
		c.servers[0].set(func(s *simulated) {
			s.before = func(kind, name string) error {
				if kind == "extend" && name == "b" {
					return errAway
				}
				return nil
			}
		})
		began := time.Now()
		held := acquire(t, c.locker, "a", "b", "c")
		<-held.Lost()
		if lived := time.Since(began); lived > ttl || lived < ttl*9/10 {
			t.Errorf("it was lost after %s of %s", lived, ttl)
		}
		held.Release(t.Context())
	})
}

func TestAnExpiredLockIsNeverExtended(t *testing.T) {
	t.Parallel()
	simulate(t, 1, func(t *testing.T, c *cluster) {
		server := c.servers[0]
		held := acquire(t, c.locker, "a")
		server.set(func(s *simulated) { s.away = true })
		<-held.Lost()
		time.Sleep(ttl) // it runs out on the server too
		server.set(func(s *simulated) { s.away = false })
		before := server.count("extend")
		time.Sleep(3 * ttl)
		if n := server.count("extend") - before; n != 0 || server.holder("a") != "" {
			t.Errorf("%d more extensions, and %q holds it", n, server.holder("a"))
		}
		theirs := acquire(t, c.other(), "a")
		holder := server.holder("a")
		held.Release(t.Context())
		if now := server.holder("a"); now != holder || holder == "" {
			t.Errorf("the former holder released what is another's: %q, now %q", holder, now)
		}
		theirs.Release(t.Context())
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
		held := acquire(t, c.locker, "a")
		server.put("a", server.holder("a"), 0)
		<-held.Lost()
		server.mu.Lock()
		if value := server.values["ns:lock:a"]; !value.expires.IsZero() {
			t.Errorf("it was extended to %s", value.expires)
		}
		server.mu.Unlock()
		held.Release(t.Context())
		if server.holder("a") != "" {
			t.Error("it was not given back")
		}
	})
}

func TestALockThatIsTakenAwayIsLostWithTheNextExtension(t *testing.T) {
	t.Parallel()
	for what, take := range map[string]func(s *simulated){
		"deleted":          func(s *simulated) { s.remove("b") },
		"taken by another": func(s *simulated) { s.put("b", "another", 0) },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			simulate(t, 1, func(t *testing.T, c *cluster) {
				server := c.servers[0]
				held := acquire(t, c.locker, "a", "b")
				take(server)
				<-held.Lost()
				if n := server.count("extend"); n != 2 { // one of each lock
					t.Errorf("it took %d extensions to see that", n)
				}
				theirs := server.holder("b")
				held.Release(t.Context())
				if server.holder("a") != "" || server.holder("b") != theirs {
					t.Errorf("a %q, b %q", server.holder("a"), server.holder("b"))
				}
			})
		})
	}
}

func TestALossEndsTheWorkAndWhileWaitsForIt(t *testing.T) {
	t.Parallel()
	simulate(t, 1, func(t *testing.T, c *cluster) {
		work, over := make(chan struct{}), make(chan error, 1)
		go func() {
			over <- c.locker.While(t.Context(), "a", ttl, func(ctx context.Context) {
				<-ctx.Done()
				<-work
			})
		}()
		synctest.Wait()
		c.servers[0].remove("a")
		time.Sleep(2 * ttl)
		synctest.Wait()
		select {
		case err := <-over:
			t.Fatalf("it returned %v and the work goes on", err)
		default:
		}
		close(work)
		if err := <-over; !errors.Is(err, lock.ErrLost) {
			t.Errorf("got %v", err)
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
		held := acquire(t, c.locker, "a")
		<-entered
		released := make(chan struct{})
		go func() {
			defer close(released)
			held.Release(t.Context())
		}()
		synctest.Wait()
		select {
		case <-released:
			t.Error("it did not wait")
		default:
		}
		close(out)
		<-released
		time.Sleep(3 * ttl)
		if n := server.count("extend"); n != 1 || server.holder("a") != "" {
			t.Errorf("%d extensions; %q holds it", n, server.holder("a"))
		}
		kept(t, held) // a lock that was given back is not lost
	})
}

// A holder that lost its lock need not release it.
func TestLocksLeaveNoGoroutineBehind(t *testing.T) {
	t.Parallel()
	simulate(t, 3, func(t *testing.T, c *cluster) { // which looks for goroutines at the end
		held := acquire(t, c.locker, "a", "b", "c")
		time.Sleep(2 * ttl)
		held.Release(t.Context())
		gone := acquire(t, c.locker, "d")
		for _, server := range c.servers {
			server.remove("d")
		}
		<-gone.Lost()
	})
}
