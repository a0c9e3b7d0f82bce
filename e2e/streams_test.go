//go:build soak

package e2e

import (
	"testing"

	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"
)

func TestAnAPIThatStopsEndsItsStreamsAndAnotherGoesOn(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Binaries: true, APIs: 2, Workers: -1, Env: []string{"TRIPRIZE_API_SHUTDOWN_TIMEOUT=1m"}})
	id := s.Campaign(4)
	queued := s.Buy(fleet.Order{Campaign: id, User: "a"})
	board, follower := s.Listen(0, s.App, fleet.CampaignEvents(id), ""), s.Listen(0, s.App, fleet.JobEvents(queued.ID), "")
	seen := board.WantEvent()
	follower.WantEvent()
	if err := s.APIs[0].Stop(terminate, servers.Patience); err != nil { // an error when it had to be killed
		t.Fatal(err)
	}
	board.WantEnd()
	follower.WantEnd()
	if board.Reason() != "shutdown" || follower.Reason() != "shutdown" {
		t.Errorf("they ended by %s and %s", board.Reason(), follower.Reason())
	}
	if log := s.Log("api-1"); fleet.Contains(log, "cut off") {
		t.Errorf("it did not wait for its streams: %s", fleet.Tail(log, 1000))
	}
	again, same := s.Listen(1, s.App, fleet.CampaignEvents(id), seen.ID), s.Listen(1, s.App, fleet.JobEvents(queued.ID), "queued")
	s.RunWorker()
	if next := again.WantEvent(); next.ID == seen.ID {
		t.Errorf("told twice: %+v", next)
	}
	if end := same.WantEvent(); end.ID != "succeeded" {
		t.Errorf("got %+v", end)
	}
	same.WantEnd()
}
