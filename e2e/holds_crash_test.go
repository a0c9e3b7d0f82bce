//go:build soak

package e2e

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"triprize/devkit/devstack"
	"triprize/internal/domain/shape"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"
)

// The lock expires in mid-transaction: its holder is stopped inside of it, past
// the lock's TTL, while another api's client wants the same position, and then
// goes on.
func TestALockThatExpiresInMidTransactionLetsOnlyOneIn(t *testing.T) {
	for name, c := range map[string]struct {
		patience string // of Postgres with the stopped transaction; so long that no slow machine ends it before
		first    bool   // who was stopped has it
	}{"it wakes up in time": {"10m", true}, "Postgres has given it up": {"20s", false}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := fleet.Start(t, fleet.Options{Binaries: true, Workers: -1, Schedulers: -1, Env: []string{"TRIPRIZE_LOCKS_TTL=1m", "TRIPRIZE_LOCKS_TIMEOUT=40s", "TRIPRIZE_HOLDS_TIMEOUT=10m"}})
			stopped := s.RunAPI("TRIPRIZE_LOCKS_TTL=500ms", "TRIPRIZE_LOCKS_TIMEOUT=200ms",
				"TRIPRIZE_TEST_FAILPOINTS=holds.commit@first=stop", "TRIPRIZE_POSTGRES_IDLE_IN_TRANSACTION_TIMEOUT="+c.patience)
			id, at := s.Campaign(4), fixture.At(3, 2)
			mine := fleet.HoldOrder{Campaign: id, User: "first", Key: "k", At: []shape.Position{at}, API: 1}
			first, second := make(chan fleet.Held, 1), make(chan fleet.Held, 1)
			go func() { first <- s.Hold(mine) }()
			servers.Eventually(t, "the api stops inside its transaction", func() bool { return isStopped(stopped) })
			servers.Eventually(t, "its lock is gone", func() bool { return len(locks(s)) == 0 })
			go func() {
				second <- s.Hold(fleet.HoldOrder{Campaign: id, User: "second", At: []shape.Position{at}, API: 0})
			}()
			servers.Eventually(t, "another has the lock", func() bool { return s.Metric(0, `triprize_lock_wait_seconds_count{outcome="acquired"}`) == 1 })
			var one, other fleet.Held
			if c.first {
				servers.AwaitBlocked(t, s.DB, 1)
			} else {
				other = <-second
				fleet.WantOneWinner(t, []fleet.Held{other}, at)
				s.WantHeldOnce(id)
			}
			servers.NoError(t, stopped.Signal(syscall.SIGCONT))
			if one = <-first; c.first {
				other = <-second
			} else { // all it knows is that its connection is dead
				if one.Status != http.StatusServiceUnavailable || one.Refusal() != "unavailable" || one.Header.Get("Retry-After") == "" {
					t.Errorf("who was stopped: %v", one)
				}
				one = s.Hold(mine)
			}
			if winner := fleet.WantOneWinner(t, []fleet.Held{one, other}, at); (winner.ID == one.ID) != c.first {
				t.Errorf("who was stopped: %v; the other: %v", one, other)
			}
			s.WantHeldOnce(id)
			if h := s.Hold(fleet.HoldOrder{Campaign: id, User: "first", At: []shape.Position{fixture.At(4, 1)}, API: 1}); h.Status != http.StatusCreated {
				t.Errorf("who woke up is of no use: %v", h)
			}
		})
	}
}

// locks are the locks of positions in Redis.
func locks(s *fleet.System) []string {
	s.T.Helper()
	return servers.Keys(s.T, s.Redis, s.Settings.Redis.Namespace+":lock:position:*")
}

// holdByMany lets many ask for one position of a new campaign, at all apis.
func holdByMany(s *fleet.System, n int) {
	s.T.Helper()
	id, at := s.Campaign(4), fixture.At(3, 2)
	fleet.WantOneWinner(s.T, fleet.AtOnce(n, func(i int) fleet.Held {
		return s.Hold(fleet.HoldOrder{Campaign: id, User: fmt.Sprint("user-", i), At: []shape.Position{at}, API: i})
	}), at)
	s.WantHeldOnce(id)
}

// Of three servers for locks all live, then two, then one.
func TestAMinorityOfLockServersIsMissedByNobodyAndAMajorityNotByHolds(t *testing.T) {
	t.Parallel()
	var all []*devstack.Redis
	var urls []string
	for range 3 {
		server := servers.OwnRedis(t)
		all, urls = append(all, server), append(urls, server.URL())
	}
	s := fleet.Start(t, fleet.Options{APIs: 2, Env: []string{"TRIPRIZE_LOCKS_REDIS_URLS=" + strings.Join(urls, ","), "TRIPRIZE_LOCKS_TTL=1m", "TRIPRIZE_LOCKS_TIMEOUT=40s"}})
	for dead := range 3 {
		before := s.LockWaits("acquired")
		holdByMany(s, 30)
		ready, majority := `"status":"ok"`, dead < 2
		if !majority {
			ready = `"locks":"unavailable"`
		}
		servers.Eventually(t, "the api says "+ready, func() bool {
			a := s.Do(0, "", http.MethodGet, "/readyz", nil, nil)
			return a.Status == http.StatusOK && fleet.Contains(a.Body, ready) && fleet.Contains(a.Body, `"locks":"ok"`) == majority
		})
		if acquired, without := s.LockWaits("acquired") > before, s.LockWaits("no_quorum") > 0; acquired != majority || without == majority {
			t.Errorf("with %d of 3 servers dead: locked: %t, without a majority: %t", dead, acquired, without)
		}
		all[dead].Kill()
	}
	if kept := locks(s); len(kept) > 0 {
		t.Errorf("the Redis that is not for locks has %v", kept)
	}
}

// A Redis that runs a fifth of the time, and one that does not run while somebody waits.
func TestARedisThatIsSlowSlowsHoldsWithinABoundAndOneWins(t *testing.T) {
	t.Parallel()
	redis := servers.OwnRedis(t)
	s := fleet.Start(t, fleet.Options{APIs: 2, Workers: -1, Schedulers: -1, Env: []string{
		"TRIPRIZE_REDIS_URL=" + redis.URL(), "TRIPRIZE_REDIS_TIMEOUT=1m", "TRIPRIZE_LOCKS_TTL=1m", "TRIPRIZE_LOCKS_TIMEOUT=8s"}})
	for _, stands := range []time.Duration{20 * time.Millisecond, time.Hour} {
		acquired, without := s.LockWaits("acquired"), s.LockWaits("no_quorum")
		ctx, end := context.WithCancel(t.Context())
		var slow sync.WaitGroup
		slow.Go(func() {
			for ; ctx.Err() == nil; time.Sleep(5 * time.Millisecond) {
				servers.NoError(t, redis.Signal(syscall.SIGSTOP))
				select {
				case <-ctx.Done():
				case <-time.After(stands):
				}
				servers.NoError(t, redis.Signal(syscall.SIGCONT))
			}
		})
		holdByMany(s, 30) // each is answered
		end()
		slow.Wait()
		if locked := s.LockWaits("acquired") > acquired; locked != (stands < time.Hour) || !locked && s.LockWaits("no_quorum") == without {
			t.Errorf("a Redis that stands still for %s: locked: %t", stands, locked)
		}
	}
}

func TestWithoutLocksOneHoldsAllTheSame(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{APIs: 2, Workers: 2, Schedulers: -1, Env: []string{"TRIPRIZE_LOCKS_ENABLED=false"}})
	for range 3 {
		holdByMany(s, 50)
	}
	if n := s.LockWaits("acquired") + s.LockWaits("taken") + s.LockWaits("no_quorum"); n != 0 {
		t.Errorf("%.0f locks: the test does not test", n)
	}
}
