package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"triprize/internal/platform/devstack"
	"triprize/internal/testkit/fixture"
)

// quorum starts n servers for locks, and returns the setting that names them.
func quorum(t *testing.T, n int) (servers []*devstack.Redis, setting string) {
	t.Helper()
	var urls []string
	for range n {
		server, _ := fixture.OwnRedis(t)
		servers, urls = append(servers, server), append(urls, server.URL())
	}
	return servers, "TRIPRIZE_LOCKS_REDIS_URLS=" + strings.Join(urls, ",")
}

// holdByMany lets many ask for one position of a new campaign, at all apis.
func (s *system) holdByMany(n int) {
	s.t.Helper()
	id, at := s.campaign(4), place{3, 2}
	wantOneWinner(s.t, atOnce(n, func(i int) held {
		return s.hold(ask{campaign: id, user: fmt.Sprint("user-", i), at: []place{at}, api: i})
	}), at)
	s.wantHeldOnce(id)
}

// ready is what the first api says of itself.
func (s *system) ready(status, locks string) bool {
	a := s.do(0, "", http.MethodGet, "/readyz", nil, nil)
	return a.status == http.StatusOK && contains(a.body, `"status":"`+status+`"`) && contains(a.body, `"locks":"`+locks+`"`)
}

func TestAMinorityOfLockServersIsMissedByNobodyAndAMajorityNotByHolds(t *testing.T) {
	for _, n := range []int{3, 5} {
		t.Run(fmt.Sprint(n, " servers"), func(t *testing.T) {
			t.Parallel()
			servers, setting := quorum(t, n)
			s := start(t, options{apis: 2, workers: -1, schedulers: -1, env: []string{setting}})
			s.holdByMany(20)
			if s.lockWaits("acquired") < 1 || s.lockWaits("no_quorum") > 0 || len(s.locks()) > 0 || !s.ready("ok", "ok") {
				t.Errorf("with all: %.0f locks, %.0f without a majority, %v in the Redis that is not for locks", s.lockWaits("acquired"), s.lockWaits("no_quorum"), s.locks())
			}
			for _, server := range servers[:n/2] {
				server.Kill()
			}
			before := s.lockWaits("acquired")
			s.holdByMany(20)
			if s.lockWaits("acquired") <= before || s.lockWaits("no_quorum") > 0 || !s.ready("ok", "ok") {
				t.Errorf("without a minority: %.0f locks, %.0f without a majority", s.lockWaits("acquired")-before, s.lockWaits("no_quorum"))
			}
			servers[n/2].Kill()
			before = s.lockWaits("acquired")
			s.holdByMany(50)
			if s.lockWaits("acquired") > before || s.lockWaits("no_quorum") < 1 || !s.ready("degraded", "unavailable") {
				t.Errorf("without a majority: %.0f locks, %.0f without a majority", s.lockWaits("acquired")-before, s.lockWaits("no_quorum"))
			}
		})
	}
}

func TestWithoutLocksOneHoldsAllTheSame(t *testing.T) {
	t.Parallel()
	s := start(t, options{apis: 2, workers: 2, schedulers: -1, env: []string{"TRIPRIZE_LOCKS_ENABLED=false"}})
	for range 3 {
		s.holdByMany(50)
	}
	if n := s.lockWaits("acquired") + s.lockWaits("taken") + s.lockWaits("no_quorum"); n != 0 {
		t.Errorf("%.0f locks: the test does not test", n)
	}
}
