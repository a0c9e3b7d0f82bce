package e2e

import (
	"context"
	"testing"
	"time"

	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"
)

func TestRedisEmptiedInTheMiddleOfASale(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Private: true, Workers: 2})
	id := s.Campaign(10)
	run := queueUp(s, id, 10, 8)
	run.let(10)
	for _, sold := range []int{5, 15, 30} {
		servers.Eventually(t, "the sale goes on", func() bool { return s.CampaignNow(id).Counts.Sold > sold })
		run.let(20)
		if err := s.Redis.FlushAll(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
	}
	run.let(10)
	run.wg.Wait()
	servers.Eventually(t, "every job is final", run.final)
	run.expectSoldOut(55)
}

func TestPostgresRestartedInTheMiddleOfASale(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Private: true, Workers: 2})
	id := s.Campaign(10)
	run := queueUp(s, id, 10, 8)
	run.underWay()
	if err := s.Stack.Postgres.RestartAfter(context.Background(), 2*time.Second); err != nil {
		t.Fatal(err)
	}
	run.wg.Wait()
	servers.Eventually(t, "every job is final", run.final)
	run.expectSoldOut(55)
}
