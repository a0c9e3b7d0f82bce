package e2e

import (
	"fmt"
	"testing"
	"time"
)

// What the lock is for: of a crowd that wants one position it keeps off Postgres
// those who cannot have it. That one of them gets it is not its doing.
func TestTheLockSparesPostgresACrowd(t *testing.T) {
	t.Parallel()
	const buyers, rounds = 500, 3
	s := start(t, options{workers: -1, schedulers: -1})
	s.urls = nil // the one without a tap is not asked
	var taps [2]*tap
	for i, enabled := range []string{"true", "false"} {
		taps[i] = newTap(t, s.settings.Postgres.URL)
		s.startAPI("TRIPRIZE_POSTGRES_URL="+taps[i].url, "TRIPRIZE_LOCKS_ENABLED="+enabled)
	}
	at, statements, transactions, took := place{3, 2}, [2]int{}, [2]int{}, [2]time.Duration{}
	for round := range rounds {
		for api, tapped := range taps { // in turn: both see the same weather
			id := s.campaign(4)
			ran, began, begun := tapped.count(""), tapped.count("begin"), time.Now()
			wantOneWinner(t, atOnce(buyers, func(i int) held {
				return s.hold(ask{campaign: id, user: fmt.Sprint("user-", round, "-", i), at: []place{at}, api: api})
			}), at)
			took[api] += time.Since(begun)
			statements[api] += tapped.count("") - ran
			transactions[api] += tapped.count("begin") - began
			s.wantHeldOnce(id)
		}
	}
	t.Logf("%d times %d buyers of one position: with the lock %d statements, %d transactions, %s; without %d, %d, %s", rounds, buyers,
		statements[0], transactions[0], took[0].Round(time.Millisecond), statements[1], transactions[1], took[1].Round(time.Millisecond))
	if statements[0] >= statements[1] || transactions[0] >= transactions[1] {
		t.Error("the lock spares nothing")
	}
}
