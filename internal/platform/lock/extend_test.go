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

func TestALockIsExtendedForAsLongAsItsHolderLives(t *testing.T) {
	t.Parallel()
	for _, servers := range []int{1, 3, 5} {
		t.Run(fmt.Sprintf("on %d servers, a minority away", servers), func(t *testing.T) {
			t.Parallel()
			simulate(t, servers, func(t *testing.T, c *cluster) {
				other := c.other()
				err := c.locker.While(t.Context(), "a", ttl, func(ctx context.Context) {
					for _, server := range c.servers[:servers/2] {
						server.set(func(s *simulated) { s.away = true })
					}
					for range 30 {
						time.Sleep(ttl / 7)
						if _, err := other.Acquire(t.Context(), "a"); !errors.Is(err, lock.ErrTaken) {
							t.Fatal(err)
						}
					}
					if ctx.Err() != nil {
						t.Errorf("lost: %v", context.Cause(ctx))
					}
				})
				if err != nil {
					t.Error(err)
				}
				acquire(t, other, "a")()
				if n := measured(t, c.registry, "triprize_lock_lost_total", ""); n != 0 {
					t.Errorf("%d were lost", n)
				}
			}, func(s *config.Locks) { s.Tries = 1 })
		})
	}
}

// A scheduler that shuts down finishes its sweeps: no other one leads meanwhile.
func TestALockIsHeldUntilTheWorkEndsThoughItsCallerHasEnded(t *testing.T) {
	t.Parallel()
	simulate(t, 1, func(t *testing.T, c *cluster) {
		ctx, end := context.WithCancel(t.Context())
		err := c.locker.While(ctx, "a", ttl, func(context.Context) {
			end()
			time.Sleep(3 * ttl)
			if _, err := c.other().Acquire(t.Context(), "a"); !errors.Is(err, lock.ErrTaken) {
				t.Errorf("got %v", err)
			}
		})
		if err != nil {
			t.Error(err)
		}
		acquire(t, c.other(), "a")()
	}, func(s *config.Locks) { s.Tries = 1 })
}

func TestExtensionsComeAfterAThirdOfWhatIsLeft(t *testing.T) {
	t.Parallel()
	simulate(t, 1, func(t *testing.T, c *cluster) {
		last := time.Now()
		if err := c.locker.While(t.Context(), "a", ttl, func(context.Context) { time.Sleep(10 * ttl) }); err != nil {
			t.Error(err)
		}
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
		if err := c.locker.While(t.Context(), "a", ttl, func(context.Context) {}); err != nil {
			t.Error(err)
		}
		time.Sleep(2 * ttl)
		if extended, released := c.servers[0].count("extend"), c.servers[0].count("release"); extended != 0 || released != 1 {
			t.Errorf("%d extensions, %d releases", extended, released)
		}
	})
}

func TestAnExpiredLockIsNeverExtended(t *testing.T) {
	t.Parallel()
	simulate(t, 1, func(t *testing.T, c *cluster) {
		server, holder := c.servers[0], ""
		theirs := func() {}
		err := c.locker.While(t.Context(), "a", ttl, func(ctx context.Context) {
			server.set(func(s *simulated) { s.away = true })
			<-ctx.Done()
			time.Sleep(ttl) // it runs out on the server too
			server.set(func(s *simulated) { s.away = false })
			before := server.count("extend")
			time.Sleep(3 * ttl)
			if n := server.count("extend") - before; n != 0 || server.holder("a") != "" {
				t.Errorf("%d more extensions, and %q holds it", n, server.holder("a"))
			}
			theirs = acquire(t, c.other(), "a")
			holder = server.holder("a")
		})
		if now := server.holder("a"); !errors.Is(err, lock.ErrLost) || now != holder || holder == "" {
			t.Errorf("%v; the former holder released what is another's: %q, now %q", err, holder, now)
		}
		theirs()
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

func TestALockThatIsTakenAwayIsLostWithTheNextExtension(t *testing.T) {
	t.Parallel()
	for what, take := range map[string]func(s *simulated){
		"deleted":          func(s *simulated) { s.remove("a") },
		"taken by another": func(s *simulated) { s.put("a", "another", 0) },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			simulate(t, 1, func(t *testing.T, c *cluster) {
				server, theirs := c.servers[0], ""
				err := c.locker.While(t.Context(), "a", ttl, func(ctx context.Context) {
					take(server)
					<-ctx.Done()
					if n := server.count("extend"); n != 1 {
						t.Errorf("it took %d extensions to see that", n)
					}
					theirs = server.holder("a")
				})
				if !errors.Is(err, lock.ErrLost) || server.holder("a") != theirs {
					t.Errorf("%v; a %q", err, server.holder("a"))
				}
			})
		})
	}
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
		select {
		case err := <-released:
			t.Errorf("it did not wait: %v", err)
		default:
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
