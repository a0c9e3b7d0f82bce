//go:build soak

package e2e

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"
	"time"

	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"
)

// sweepOnce runs scheduler --once and returns its reports and status.
func sweepOnce(s *fleet.System, args []string, env ...string) (reports map[string]map[string]int, status int, stderr string) {
	s.T.Helper()
	cmd := s.Command("scheduler", append([]string{"--once"}, args...), env...)
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if exit, ok := err.(*exec.ExitError); ok { //nolint:errorlint // Output returns it bare
		status = exit.ExitCode()
	} else if err != nil {
		s.T.Fatal(err)
	}
	var document struct {
		Sweeps []struct {
			Sweep  string
			Counts map[string]int
			Error  string
		}
	}
	if len(out) > 0 {
		if err := json.Unmarshal(out, &document); err != nil {
			s.T.Fatalf("not JSON: %s", out)
		}
	}
	reports = make(map[string]map[string]int)
	for _, r := range document.Sweeps {
		reports[r.Sweep] = r.Counts
	}
	return reports, status, errs.String()
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
