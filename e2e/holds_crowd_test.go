//go:build soak

package e2e

import (
	"fmt"
	"testing"

	"triprize/internal/domain/shape"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"
)

// What the lock is for: of a crowd that wants one position it keeps off Postgres
// those who cannot have it. That one of them gets it is not its doing.
func TestTheLockSparesPostgresACrowd(t *testing.T) {
	t.Parallel()
	const buyers = 50
	s := fleet.Start(t, fleet.Options{Workers: -1, Schedulers: -1, Env: []string{"TRIPRIZE_HOLDS_BATCH_SIZE=1", "TRIPRIZE_LOCKS_TTL=1m", "TRIPRIZE_LOCKS_TIMEOUT=50s", "TRIPRIZE_LOCKS_TRIES=100", "TRIPRIZE_LOCKS_RETRY_DELAY=400ms"}})
	s.URLs = nil // the one without a tap is not asked
	var taps [2]*fleet.Tap
	for i, enabled := range []string{"true", "false"} {
		taps[i] = fleet.NewTap(t, s.Settings.Postgres.URL)
		s.RunAPI("TRIPRIZE_POSTGRES_URL="+taps[i].URL, "TRIPRIZE_LOCKS_ENABLED="+enabled)
	}
	at, statements, transactions := fixture.At(3, 2), [2]int{}, [2]int{}
	for api, tapped := range taps {
		id := s.Campaign(4)
		ran, began := tapped.Count(""), tapped.Count("begin")
		release := fixture.LockCampaign(t, s.DB, id) // nobody is done before all have come
		answers := make(chan []fleet.Held)
		go func() {
			answers <- fleet.AtOnce(buyers, func(i int) fleet.Held {
				return s.Hold(fleet.HoldOrder{Campaign: id, User: fmt.Sprint("user-", i), At: []shape.Position{at}, API: api})
			})
		}()
		s.AwaitMetric(api, "triprize_http_requests_in_flight", buyers)
		servers.AwaitBlocked(t, s.DB, 1)
		release()
		fleet.WantOneWinner(t, <-answers, at)
		statements[api], transactions[api] = tapped.Count("")-ran, tapped.Count("begin")-began
		s.WantHeldOnce(id)
	}
	t.Logf("%d buyers of one position: with the lock %d statements, %d transactions; without %d, %d", buyers,
		statements[0], transactions[0], statements[1], transactions[1])
	if statements[0] >= statements[1] || transactions[0] >= transactions[1] || transactions[1] < buyers {
		t.Error("the lock spares nothing")
	}
}
