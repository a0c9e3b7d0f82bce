package lock_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
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
		other := c.other()
		theirs := acquire(t, other, "b")
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
	for what, fail := range map[string]error{"between two locks": nil, "before the answer": errors.New("the connection broke")} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			simulate(t, 1, func(t *testing.T, c *cluster) {
				ctx, leave := context.WithCancel(t.Context())
				server := c.servers[0]
				server.after = func(kind, _ string) error {
					if kind != "take" || server.count("take") > 1 {
						return nil
					}
					leave()
					return fail
				}
				for range 10 {
					if _, err := c.locker.Acquire(ctx, "a", "b"); !errors.Is(err, context.Canceled) || errors.Is(err, lock.ErrNoQuorum) {
						t.Errorf("got %v", err)
					}
				}
				acquire(t, c.other(), "a", "b")()
				if n := c.measured("wait_seconds", ""); n != 0 {
					t.Error("it is counted as an outcome of the lock")
				}
				acquire(t, c.locker, "a", "b")()
			})
		})
	}
}

func TestWhereLocksAreDisabledNobodyLocks(t *testing.T) {
	t.Parallel()
	simulate(t, 1, func(t *testing.T, c *cluster) {
		if c.locker.AcquireFunc() != nil {
			t.Error("holds take locks")
		}
		ran := 0
		err := c.locker.While(t.Context(), "a", long, func(ctx context.Context) {
			ran++
			if err := c.locker.While(ctx, "a", long, func(context.Context) { ran++ }); err != nil {
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
		{servers: 3, away: 2, theirs: 1, want: lock.ErrNoQuorum},
		{servers: 5, away: 2},
		{servers: 5, theirs: 2},
		{servers: 5, away: 2, theirs: 1, want: lock.ErrTaken},
		{servers: 5, away: 1, theirs: 2, want: lock.ErrTaken},
		{servers: 5, away: 3, want: lock.ErrNoQuorum},
		{servers: 5, away: 3, theirs: 2, want: lock.ErrNoQuorum},
	} {
		t.Run(fmt.Sprintf("of %d, %d away and %d theirs", row.servers, row.away, row.theirs), func(t *testing.T) {
			t.Parallel()
			simulate(t, row.servers, func(t *testing.T, c *cluster) {
				for i, server := range c.servers {
					if server.away = i < row.away; !server.away && i < row.away+row.theirs {
						server.put("a", "theirs", 0)
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
	const tries, delay = 4, 40 * time.Millisecond
	for name, row := range map[string]struct {
		settings config.Locks
		prepare  func(s *simulated)
		want     error
		tries    int // 0: any number
		least    time.Duration
		most     time.Duration
	}{
		"as often as they say": {
			settings: config.Locks{TTL: ttl, Tries: tries, RetryDelay: delay},
			want:     lock.ErrTaken, tries: tries, least: (tries - 1) * delay / 2, most: (tries-1)*delay*3/2 + tries,
		},
		"no longer than the timeout": {
			settings: config.Locks{TTL: ttl, Tries: 100, RetryDelay: 100 * time.Millisecond},
			want:     lock.ErrTaken, least: timeout - patience, most: timeout - patience,
		},
		"the try before the one that the timeout ends knew that it is taken": {
			settings: config.Locks{TTL: ttl, Tries: tries, RetryDelay: delay},
			prepare: func(s *simulated) {
				s.before = func(kind, _ string) error {
					if kind == "take" && s.count("take") == 4 { // a, b, b, b
						time.Sleep(timeout)
					}
					return nil
				}
			},
			want: lock.ErrTaken, tries: 3, least: timeout, most: timeout + 2*delay*3/2,
		},
		"of a set one lock expired meanwhile": { // which settings would not allow
			settings: config.Locks{TTL: 200 * time.Millisecond, Tries: 1_000_000, RetryDelay: 2 * time.Millisecond},
			prepare:  func(s *simulated) { s.put("b", "another", 500*time.Millisecond) },
			want:     lock.ErrNoQuorum, least: 500 * time.Millisecond, most: 503 * time.Millisecond,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			simulate(t, 1, func(t *testing.T, c *cluster) {
				server := c.servers[0]
				server.put("b", "another", 0)
				if row.prepare != nil {
					row.prepare(server)
				}
				began := time.Now()
				_, err := c.locker.Acquire(t.Context(), "a", "b")
				if took := time.Since(began); took < row.least || took > row.most || !errors.Is(err, row.want) {
					t.Errorf("%v after %s", err, took)
				}
				at := server.commands("take")[1:] // of b
				for i := range len(at) - 1 {
					if pause := at[i+1].at.Sub(at[i].at); pause < row.settings.RetryDelay/2 || pause > row.settings.RetryDelay*3/2+1 {
						t.Errorf("%s between two tries", pause)
					}
				}
				if row.tries > 0 && len(at) != row.tries {
					t.Errorf("%d tries", len(at))
				}
				if row.want == lock.ErrTaken { //nolint:errorlint // which of the two it is
					if errors.Is(err, lock.ErrNoQuorum) || row.tries == tries && c.measured("conflicts_total", "") != tries || c.measured("wait_seconds", "taken") != 1 {
						t.Errorf("%v: %d conflicts, %d acquisitions given up", err, c.measured("conflicts_total", ""), c.measured("wait_seconds", "taken"))
					}
				}
				if holder := server.holder("a"); holder != "" {
					t.Errorf("a is still held by %q", holder)
				}
			}, func(s *config.Locks) {
				s.TTL, s.Tries, s.RetryDelay = row.settings.TTL, row.settings.Tries, row.settings.RetryDelay
			})
		})
	}
}

// rest is how long a server is not asked that did not answer three times.
const rest = time.Second

func TestAServerThatHangsSlowsDownAFewAcquisitionsAndNotEach(t *testing.T) {
	t.Parallel()
	simulate(t, 3, func(t *testing.T, c *cluster) {
		first, asked := c.servers[0], 0
		// pass takes a lock and gives it back within some time, and asks the server some times.
		pass := func(what string, most time.Duration, asks int) {
			t.Helper()
			began := time.Now()
			acquire(t, c.locker, "a")()
			asked += asks
			if took, n := time.Since(began), first.count("take"); took > most || n != asked {
				t.Fatalf("%s it took %s, and the server was asked %d times instead of %d", what, took, n, asked)
			}
		}
		pass("in health", 0, 1)
		first.set(func(s *simulated) { s.hangs = true })
		for range 3 {
			pass("at first", 2*patience, 1) // one for the lock, one for giving it back
		}
		for began := time.Now(); time.Since(began) < rest/2; {
			pass("while the server rests", patience/10, 0) // to give the lock back is tried
		}
		if released := first.count("release"); released < 4 {
			t.Errorf("it was told %d times that a lock is given back", released)
		}
		time.Sleep(rest)
		pass("after its rest", 2*patience, 1)
		pass("after one more", patience/10, 0)
		first.set(func(s *simulated) { s.hangs = false })
		time.Sleep(rest)
		for range 3 {
			pass("after it is back", 0, 1)
		}
		c.servers[1].set(func(s *simulated) { s.hangs = true })
		c.servers[2].set(func(s *simulated) { s.hangs = true })
		for i := range 6 {
			began := time.Now()
			if _, err := c.locker.Acquire(t.Context(), "a"); !errors.Is(err, lock.ErrNoQuorum) {
				t.Errorf("got %v", err)
			}
			if took := time.Since(began); took > timeout || i >= 3 && took > patience/2 {
				t.Errorf("without a majority, acquisition %d took %s", i+1, took)
			}
		}
	})
}
