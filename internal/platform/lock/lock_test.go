package lock_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"triprize/internal/platform/config"
	"triprize/internal/platform/lock"
)

func TestASetOfLocksIsTakenInAscendingOrderAllOrNoneAndGivenBackOnce(t *testing.T) {
	t.Parallel()
	simulate(t, 1, func(t *testing.T, c *cluster) {
		server := c.servers[0]
		ctx, leave := context.WithCancel(t.Context())
		names := []string{"c", "a", "c", "b", "a"}
		release, err := c.locker.Acquire(ctx, names...)
		var taken []string
		for _, one := range server.commands("take") {
			taken = append(taken, one.key)
		}
		if err != nil || !slices.Equal(taken, []string{"ns:lock:a", "ns:lock:b", "ns:lock:c"}) || !slices.Equal(names, []string{"c", "a", "c", "b", "a"}) {
			t.Errorf("%v, taken: %q, the caller's names are now %q", err, taken, names)
		}
		leave() // the request is over
		release()
		theirs := acquire(t, c.other, "b")
		commands, holder := len(server.sent), server.holder("b")
		release()
		if len(server.sent) != commands || server.holder("b") != holder {
			t.Error("another release did something")
		}
		if _, err := c.locker.Acquire(t.Context(), "a", "b", "c"); !errors.Is(err, lock.ErrTaken) {
			t.Errorf("got %v", err)
		}
		if server.holder("a") != "" || server.holder("b") != holder || server.holder("c") != "" {
			t.Errorf("a %q, b %q, c %q", server.holder("a"), server.holder("b"), server.holder("c"))
		}
		theirs()
		acquire(t, c.locker, "a", "b", "c")()
		if n := c.measured("wait_seconds", "acquired"); n != 2 {
			t.Errorf("%d were acquired", n)
		}
		logged := ""
		for _, line := range regexp.MustCompile(`level=DEBUG msg=lock outcome=(\w+) names="?(\[.*?\])"? took_ms=\d`).FindAllStringSubmatch(c.log.String(), -1) {
			logged += line[1] + line[2] + " "
		}
		if logged != "acquired[c a c b a] released[c a c b a] acquired[b] taken[a b c] released[b] acquired[a b c] released[a b c] " {
			t.Errorf("logged: %s", logged)
		}
	})
}

func TestACallerWhoLeavesLeavesNoLockBehindAndSaysNothingOfTheServer(t *testing.T) {
	t.Parallel()
	simulate(t, 1, func(t *testing.T, c *cluster) {
		server := c.servers[0]
		for i := range 10 {
			ctx, leave := context.WithCancel(t.Context())
			server.before, server.forgets = func(string) { leave() }, i%2 == 1 // while it waits for the first answer, which may be an error
			if _, err := c.locker.Acquire(ctx, "a", "b"); !errors.Is(err, context.Canceled) || errors.Is(err, lock.ErrNoQuorum) {
				t.Errorf("got %v", err)
			}
		}
		server.before, server.forgets = nil, false
		acquire(t, c.other, "a", "b")()
		if n := c.measured("wait_seconds", ""); n != 0 {
			t.Error("it is counted as an outcome of the lock")
		}
		for left := range 5 { // it leaves between two looks at its context
			release, err := c.locker.Acquire(&leaving{t.Context(), left}, "a")
			if is := server.holder("a") != ""; is != (err == nil) || is && release == nil {
				t.Errorf("after %d looks: %v, held: %v", left, err, is)
			}
			release()
		}
		acquire(t, c.locker, "a", "b")()
	})
}

// leaving is the context of a caller who leaves after some looks at it.
type leaving struct {
	context.Context

	left int
}

func (l *leaving) Err() error {
	if l.left--; l.left < 0 {
		return context.Canceled
	}
	return nil
}

func TestWhereLocksAreDisabledNobodyLocks(t *testing.T) {
	t.Parallel()
	simulate(t, 1, func(t *testing.T, c *cluster) {
		if c.locker.AcquireFunc() != nil {
			t.Error("holds take locks")
		}
		ran := 0
		err := c.locker.While(t.Context(), "a", ttl, func(ctx context.Context) {
			ran++
			if err := c.locker.While(ctx, "a", ttl, func(context.Context) { ran++ }); err != nil {
				t.Error(err)
			}
		})
		if err != nil || ran != 2 || len(c.servers[0].sent) != 0 {
			t.Errorf("%v, %d ran, %d commands", err, ran, len(c.servers[0].sent))
		}
	}, func(s *config.Locks) { s.Enabled = false })
}

// Of some servers a few are away, and on a few somebody else has the lock.
func TestTakenAndUnknownAreToldApart(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		servers, away, theirs int
		want                  error
	}{
		{servers: 1, theirs: 1, want: lock.ErrTaken},
		{servers: 1, away: 1, want: lock.ErrNoQuorum},
		{servers: 3},
		{servers: 3, away: 1},
		{servers: 3, theirs: 1},
		{servers: 3, away: 1, theirs: 1, want: lock.ErrTaken},
		{servers: 3, theirs: 2, want: lock.ErrTaken},
		{servers: 3, away: 2, want: lock.ErrNoQuorum},
		{servers: 3, away: 2, theirs: 1, want: lock.ErrTaken},
		{servers: 5, away: 2},
		{servers: 5, theirs: 2},
		{servers: 5, away: 2, theirs: 1, want: lock.ErrTaken},
		{servers: 5, away: 1, theirs: 2, want: lock.ErrTaken},
		{servers: 5, away: 3, want: lock.ErrNoQuorum},
	} {
		t.Run(fmt.Sprintf("of %d, %d away and %d theirs", row.servers, row.away, row.theirs), func(t *testing.T) {
			t.Parallel()
			simulate(t, row.servers, func(t *testing.T, c *cluster) {
				for i, server := range c.servers {
					if server.away = i < row.away; !server.away && i < row.away+row.theirs {
						server.put("a", "theirs")
					}
				}
				release, err := c.locker.Acquire(t.Context(), "a")
				for _, other := range []error{lock.ErrTaken, lock.ErrNoQuorum} {
					if errors.Is(err, other) != (other == row.want) || (err == nil) != (row.want == nil) { //nolint:errorlint // which of the two it is
						t.Errorf("got %v", err)
					}
				}
				release()
				for i, server := range c.servers { // nothing of ours stays
					if holder := server.holder("a"); holder != "" && holder != "theirs" {
						t.Errorf("on server %d: %q", i, holder)
					}
				}
			})
		})
	}
}

func TestAnAcquisitionTriesAndWaitsAsTheSettingsSay(t *testing.T) {
	t.Parallel()
	const delay = 40 * time.Millisecond
	for name, row := range map[string]struct {
		tries, most int
		slow        time.Duration // each answer
		delay       time.Duration // 0: as above
		took        time.Duration // at least
		want        error
		names       []string
	}{
		"as often as they say":         {tries: 4, most: 4, took: 3 * delay / 2, want: lock.ErrTaken, names: []string{"a", "b"}},
		"no longer than the timeout":   {tries: 100, most: 100, slow: patience - 1, took: timeout * 2 / 5, want: lock.ErrTaken, names: []string{"a", "b"}},
		"no pause beyond the timeout":  {tries: 4, most: 1, slow: 1, delay: time.Hour, took: timeout * 2 / 5, want: lock.ErrTaken, names: []string{"a", "b"}},
		"a set no longer than for one": {tries: 4, slow: patience - 1, took: timeout * 2 / 5, want: lock.ErrNoQuorum, names: []string{"a", "c", "d", "e", "f", "g"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			simulate(t, 1, func(t *testing.T, c *cluster) {
				server := c.servers[0]
				server.put("b", "another")
				server.before = func(string) { time.Sleep(row.slow) }
				began := time.Now()
				_, err := c.locker.Acquire(t.Context(), row.names...)
				if took := time.Since(began); took < row.took || took > timeout || !errors.Is(err, row.want) {
					t.Errorf("%v after %s", err, took)
				}
				at := slices.DeleteFunc(server.commands("take"), func(c simulatedCommand) bool { return c.key != "ns:lock:b" })
				for i := range len(at) - 1 {
					if pause := at[i+1].at.Sub(at[i].at) - 2*row.slow; pause < delay/2 || pause > delay*3/2+1 { // it is also released
						t.Errorf("%s between two tries", pause)
					}
				}
				if n := c.measured("conflicts_total", ""); len(at) > row.most || row.slow == 0 && len(at) != row.tries || n != len(at) {
					t.Errorf("%d tries, %d conflicts", len(at), n)
				}
				if holder := server.holder("a"); holder != "" || c.measured("wait_seconds", "acquired") != 0 || c.measured("wait_seconds", "") != 1 {
					t.Errorf("a is still held by %q, or the acquisition is not counted", holder)
				}
			}, func(s *config.Locks) { s.Tries, s.RetryDelay = row.tries, cmp.Or(row.delay, delay) })
		})
	}
}

func TestAServerThatHangsSlowsDownAFewAcquisitionsAndNotEach(t *testing.T) {
	t.Parallel()
	const rest = time.Second // how long a server is not asked that did not answer three times
	simulate(t, 3, func(t *testing.T, c *cluster) {
		first, asked := c.servers[0], 0
		// pass takes a lock and gives it back within some time, and the server gets some commands.
		pass := func(what string, most time.Duration, commands int) {
			t.Helper()
			began := time.Now()
			acquire(t, c.locker, "a")()
			asked += commands
			if took, n := time.Since(began), len(first.sent); took > most || n != asked {
				t.Fatalf("%s it took %s, and the server got %d commands instead of %d", what, took, n, asked)
			}
		}
		pass("in health", 0, 2)
		first.hangs = true
		pass("at first", 2*patience, 2) // one for the lock, one for giving it back
		pass("then", patience, 1)
		for range 10 {
			pass("while the server rests", 0, 0)
		}
		time.Sleep(rest + 1)
		pass("after its rest", patience, 1)
		pass("after one more", 0, 0)
		first.hangs = false
		time.Sleep(rest + 1)
		for range 3 {
			pass("after it is back", 0, 2)
		}
		c.servers[1].hangs, c.servers[2].hangs = true, true
		for i := range 6 {
			began := time.Now()
			if _, err := c.locker.Acquire(t.Context(), "a"); !errors.Is(err, lock.ErrNoQuorum) {
				t.Errorf("got %v", err)
			}
			if took := time.Since(began); took > timeout || i >= 2 && took > 0 {
				t.Errorf("without a majority, acquisition %d took %s", i+1, took)
			}
		}
	})
}

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
		{name: "deleted", servers: 1, fault: func(c *cluster) { c.servers[0].put("a", "") }, least: next, most: next, attempts: 1},
		{name: "taken by another", servers: 1, fault: func(c *cluster) { c.servers[0].put("a", "another") }, least: next, most: next, attempts: 1},
		{name: "one has it, one says no, and one does not answer", servers: 3, fault: func(c *cluster) {
			c.servers[0].put("a", "")
			c.servers[1].set(func(s *simulated) { s.away = true })
		}, mend: away(0), attempts: 9},
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
				last, began, theirs, done := c.servers[row.servers-1], time.Now(), "", false
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
						if _, err := c.other.Acquire(t.Context(), "a"); !errors.Is(err, lock.ErrTaken) {
							t.Errorf("another gets %v", err)
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
				lost, attempts := c.measured("lost_total", ""), last.commands("extend")
				if lost != map[bool]int{true: 1}[row.least > 0] || strings.Count(c.log.String(), `msg=lock outcome=lost names=[a] took_ms=`) != lost || len(attempts) < row.attempts || row.least == next && len(attempts) > 1 {
					t.Errorf("%d losses are counted, after %d extensions", lost, len(attempts))
				}
				for _, one := range attempts {
					if row.least > 0 && one.at.Sub(began) >= ttl-ttl/100 {
						t.Errorf("after %s it had expired, and was to be extended", one.at.Sub(began))
					}
				}
				if holder := c.servers[0].holder("a"); row.least > 0 && holder != "" && holder != theirs {
					t.Errorf("%q has it instead of %q", holder, theirs)
				}
				if row.least == 0 {
					acquire(t, c.other, "a")()
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
		for _, work := range []time.Duration{10 * ttl, 0} {
			if err := c.locker.While(t.Context(), "a", ttl, func(context.Context) { time.Sleep(work) }); err != nil {
				t.Error(err)
			}
		}
		for i, one := range server.commands("extend") {
			if pause := one.at.Sub(last); pause != (ttl-ttl/100)/3 {
				t.Errorf("extension %d came after %s", i+1, pause)
			}
			last = one.at
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
		server.before = func(kind string) { // the holder's process is paused before its first extension
			if kind == "extend" {
				time.Sleep(ttl)
			}
		}
		err := c.locker.While(t.Context(), "a", ttl, func(ctx context.Context) {
			server.put("a", server.holder("a"))
			began := time.Now()
			<-ctx.Done()
			if value := server.values["ns:lock:a"]; !value.expires.Equal(began.Add(time.Hour)) {
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
			taken := c.servers[0].count("take")
			err := c.other.While(t.Context(), "a", ttl, func(context.Context) { t.Error("two run") }) // does not try again
			if n := c.servers[0].count("take") - taken; !errors.Is(err, lock.ErrTaken) || n != 1 || !errors.Is(context.Cause(held), reason) {
				t.Errorf("got %v after %d tries, the cause is %v", err, n, context.Cause(held))
			}
		})
		if err != nil {
			t.Error(err)
		}
		acquire(t, c.other, "a")()
		err = c.locker.While(ctx, "a", ttl, func(context.Context) { t.Error("it ran for a caller who is gone") })
		if !errors.Is(err, context.Canceled) || errors.Is(err, lock.ErrTaken) || errors.Is(err, lock.ErrNoQuorum) {
			t.Errorf("for a caller who is gone: %v", err)
		}
	})
}
