package httpapi_test

import (
	"encoding/json"
	"net/http"
	"os"
	"regexp"
	"slices"
	"testing"
	"time"

	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"
)

func TestOperatorsSeeSweepsAndRunThem(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Workers: -1, Schedulers: -1, Env: []string{"TRIPRIZE_SCHEDULER_REPORT_TIMEOUT=1m", "TRIPRIZE_SCHEDULER_SWEEP_TIMEOUT=5m"}})
	var names []string
	for _, sweep := range s.Sweeps() {
		names = append(names, sweep.Name)
		if sweep.LastReport != nil {
			t.Errorf("%s has run: %+v", sweep.Name, sweep.LastReport)
		}
	}
	if !slices.Contains(names, "lost-jobs") || !slices.Contains(names, "old-records") {
		t.Fatalf("there are %v", names)
	}
	page, err := os.ReadFile("../../../docs/architecture.md")
	servers.NoError(t, err)
	var documented []string
	for _, line := range regexp.MustCompile("(?m)^\\| `([a-z-]+)` \\| [0-9]+ (?:s|min|h) \\|").FindAllSubmatch(page, -1) {
		documented = append(documented, string(line[1]))
	}
	if slices.Sort(documented); !slices.Equal(slices.Sorted(slices.Values(names)), documented) {
		t.Errorf("there are %v; the page has %v", names, documented)
	}
	before := time.Now().Add(-time.Minute)
	for _, name := range names {
		a := s.Do(0, s.Operator, http.MethodPost, "/v1/sweeps/"+name, nil, nil)
		var report fleet.SweepReport
		if err := json.Unmarshal(a.Body, &report); err != nil || a.Status != http.StatusOK || report.Sweep != name || report.Error != "" || report.Counts == nil {
			t.Errorf("%s: %v %s, %v", name, a, a.Body, err)
		}
	}
	for _, sweep := range s.Sweeps() {
		if sweep.LastReport == nil || sweep.LastReport.Sweep != sweep.Name || sweep.LastReport.StartedAt.Before(before) {
			t.Errorf("%s: %+v", sweep.Name, sweep.LastReport)
		}
	}
	wantAnswer(t, "a sweep that there is not", s.Do(0, s.Operator, http.MethodPost, "/v1/sweeps/dust", nil, nil), 404)
}
