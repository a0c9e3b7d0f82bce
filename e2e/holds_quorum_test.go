//go:build soak

package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"triprize/devkit/devstack"
	"triprize/internal/domain/shape"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"
)

// quorum starts n servers for locks, and returns the setting that names them.
func quorum(t *testing.T, n int) (all []*devstack.Redis, setting string) {
	t.Helper()
	var urls []string
	for range n {
		server, _ := servers.OwnRedis(t)
		all, urls = append(all, server), append(urls, server.URL())
	}
	return all, "TRIPRIZE_LOCKS_REDIS_URLS=" + strings.Join(urls, ",")
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

// awaitReady waits until the first api says this of itself: it looks once a second.
func awaitReady(t *testing.T, s *fleet.System, status, locks string) {
	servers.Eventually(t, "the api is "+status+", its locks "+locks, func() bool {
		a := s.Do(0, "", http.MethodGet, "/readyz", nil, nil)
		return a.Status == http.StatusOK && fleet.Contains(a.Body, `"status":"`+status+`"`) && fleet.Contains(a.Body, `"locks":"`+locks+`"`)
	})
}

func TestAMinorityOfLockServersIsMissedByNobodyAndAMajorityNotByHolds(t *testing.T) {
	for _, n := range []int{3, 5} {
		t.Run(fmt.Sprint(n, " servers"), func(t *testing.T) {
			t.Parallel()
			all, setting := quorum(t, n)
			s := fleet.Start(t, fleet.Options{APIs: 2, Env: []string{setting, "TRIPRIZE_LOCKS_TTL=1m", "TRIPRIZE_LOCKS_TIMEOUT=40s"}})
			holdByMany(s, 20)
			awaitReady(t, s, "ok", "ok")
			if s.LockWaits("acquired") < 1 || s.LockWaits("no_quorum") > 0 || len(locks(s)) > 0 {
				t.Errorf("with all: %.0f locks, %.0f without a majority, %v in the Redis that is not for locks", s.LockWaits("acquired"), s.LockWaits("no_quorum"), locks(s))
			}
			for _, server := range all[:n/2] {
				server.Kill()
			}
			before := s.LockWaits("acquired")
			holdByMany(s, 20)
			awaitReady(t, s, "ok", "ok")
			if s.LockWaits("acquired") <= before || s.LockWaits("no_quorum") > 0 {
				t.Errorf("without a minority: %.0f locks, %.0f without a majority", s.LockWaits("acquired")-before, s.LockWaits("no_quorum"))
			}
			all[n/2].Kill()
			before = s.LockWaits("acquired")
			holdByMany(s, 50)
			awaitReady(t, s, "degraded", "unavailable")
			if s.LockWaits("acquired") > before || s.LockWaits("no_quorum") < 1 {
				t.Errorf("without a majority: %.0f locks, %.0f without a majority", s.LockWaits("acquired")-before, s.LockWaits("no_quorum"))
			}
		})
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
