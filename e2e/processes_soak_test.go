//go:build soak

package e2e

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"
)

// sweepOnce runs scheduler --once and returns the counts of each sweep, and its status.
func sweepOnce(s *fleet.System, args []string, env ...string) (reports map[string]map[string]int, status int, stderr string) {
	s.T.Helper()
	stdout, stderr, status := runCommand(s.T, s.Command("scheduler", append([]string{"--once"}, args...)), env)
	var document struct {
		Sweeps []struct {
			Sweep  string
			Counts map[string]int
		}
	}
	if err := json.Unmarshal([]byte(stdout), &document); err != nil && stdout != "" {
		s.T.Fatalf("not JSON: %s", stdout)
	}
	reports = make(map[string]map[string]int)
	for _, r := range document.Sweeps {
		reports[r.Sweep] = r.Counts
	}
	return reports, status, stderr
}

func TestTheSchedulerSweepsOnceForCron(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Binaries: true, Workers: -1, Schedulers: -1, Env: []string{"TRIPRIZE_SWEEPS_LOST_JOBS_INTERVAL=1h"}})
	id := s.Campaign(4)
	fixture.Reserve(t, s.DB, id, "late", 2, -time.Second)
	reports, status, _ := sweepOnce(s, nil)
	for _, name := range []string{"lost-jobs", "expired-holds", "expired-authorizations", "expired-reservations", "due-items", "missed-events", "missing-permissions", "stale-locks", "stuck-draws", "old-records", "audit"} {
		if reports[name] == nil {
			t.Errorf("no report of %s: %v", name, reports)
		}
	}
	if status != 0 {
		t.Errorf("status %d", status)
	}
	if got := reports["expired-reservations"]; got["expired"] != 1 {
		t.Errorf("the reservation is not given up: %v", got)
	}
	s.RunScheduler() // leads meanwhile, and does no harm; but it is not to find first what was looked for above, or is below
	if reports, status, _ := sweepOnce(s, []string{"--sweep", "stale-locks"}); status != 0 || len(reports) != 1 || reports["stale-locks"] == nil {
		t.Errorf("one sweep: %v, status %d", reports, status)
	}
	if _, status, stderr := sweepOnce(s, []string{"--sweep", "dust"}); status != 1 || !strings.Contains(stderr, "lost-jobs") {
		t.Errorf("an unknown sweep: status %d, %s", status, stderr)
	}
	// Without Redis nobody can say what is lost; the other sweeps run all the same.
	s.Buy(fleet.Order{Campaign: id, User: "a"})
	servers.Exec(t, s.DB, `UPDATE outbox_messages SET seen_at = clock_timestamp() - interval '1 minute'`)
	reports, status, _ = sweepOnce(s, nil, "TRIPRIZE_REDIS_URL=redis://127.0.0.1:1/0")
	if status != 1 || reports["old-records"] == nil || reports["lost-jobs"]["lost"] != 0 {
		t.Errorf("without Redis: %v, status %d", reports, status)
	}
	s.RunWorker()
	servers.Eventually(t, "the job is done in the end", func() bool { return s.Purchases(id) > 0 })
}

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
