//go:build soak

package e2e

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"triprize/internal/domain/shape"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"
)

// Only locks.timeout can end the waits here: the line is slow or dead for as long
// as anybody waits.
func TestARedisThatIsSlowOrDeadSlowsHoldsWithinABoundAndOneWins(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{APIs: 1, Workers: -1, Schedulers: -1})
	line := newRedisLine(t, s.Settings.Redis.URL)
	patient := []string{"TRIPRIZE_REDIS_URL=" + line.url, "TRIPRIZE_REDIS_TIMEOUT=1m",
		"TRIPRIZE_LOCKS_TTL=1m", "TRIPRIZE_LOCKS_TIMEOUT=8s"} // a server may take a quarter of that for an answer
	s.URLs = nil // the one that is near Redis is not asked
	for range 2 {
		s.RunAPI(patient...)
	}
	at := fixture.At(3, 2)
	known := make(map[string]float64)
	for _, c := range []struct {
		what  string
		delay time.Duration
		dead  bool
	}{{"near", 0, false}, {"slow", 20 * time.Millisecond, false}, {"slower than anybody waits", time.Hour, false}, {"dead", 0, true}} {
		line.set(c.delay, c.dead)
		id := s.Campaign(4)
		winner := fleet.WantOneWinner(t, fleet.AtOnce(30, func(i int) fleet.Held {
			return s.Hold(fleet.HoldOrder{Campaign: id, User: fmt.Sprint("user-", i), At: []shape.Position{at}, API: i})
		}), at)
		s.WantHeldOnce(id)
		if a := s.Release(s.App, winner.ID); a.Status != http.StatusNoContent {
			t.Errorf("%s: %v", c.what, a)
		}
		line.set(0, false) // the metrics ask Redis too
		before := known
		known = map[string]float64{"acquired": s.LockWaits("acquired"), "taken": s.LockWaits("taken"), "no_quorum": s.LockWaits("no_quorum")}
		if isGood := known["acquired"] > before["acquired"]; isGood != (c.delay < time.Second && !c.dead) || !isGood && known["no_quorum"] == before["no_quorum"] {
			t.Errorf("%s: locks were %v, and then %v: the test does not test", c.what, before, known)
		}
	}
}

func TestACommitThatTakesLongerThanTheLockLastsLetsOneIn(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{APIs: 2, Workers: -1, Schedulers: -1, Env: []string{"TRIPRIZE_LOCKS_TTL=500ms", "TRIPRIZE_LOCKS_TIMEOUT=200ms"}})
	id := s.Campaign(4)
	unlock := fixture.LockCampaign(t, s.DB, id) // who got the lock cannot commit
	at, answers := fixture.At(3, 2), make(chan []fleet.Held)
	go func() {
		answers <- fleet.AtOnce(20, func(i int) fleet.Held {
			return s.Hold(fleet.HoldOrder{Campaign: id, User: fmt.Sprint("user-", i), At: []shape.Position{at}, API: i})
		})
	}()
	servers.AwaitBlocked(t, s.DB, 1)
	servers.Eventually(t, "its lock is over", func() bool { return len(locks(s)) == 0 })
	unlock()
	fleet.WantOneWinner(t, <-answers, at)
	s.WantHeldOnce(id)
}
