package telemetry_test

import (
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"triprize/internal/platform/telemetry"
	"triprize/internal/testkit/servers"
)

// A cause degrades, and is never a reason for 503; what is not known is not fine, and has no
// gauge. The log has a line when a cause begins and when it ends, however many looks find it.
func TestCausesDegradeAndAreLoggedOnce(t *testing.T) {
	t.Parallel()
	var log servers.Journal
	registry := prometheus.NewRegistry()
	causes := telemetry.NewCauses(slog.New(slog.NewTextHandler(&log, nil)), registry, "a", "b")
	h := started(fine("postgres", true))
	h.Degrade(causes)
	expect := func(status string, hold, unknown []string, gauges int) {
		t.Helper()
		got := h.Ready()
		if got.Status != status || got.HTTPStatus() != http.StatusOK || !slices.Equal(got.Causes, hold) || !slices.Equal(got.Unknown, unknown) {
			t.Errorf("got %+v, want %s because of %v, %v unknown", got, status, hold, unknown)
		}
		families, err := registry.Gather()
		shown := 0
		for _, f := range families {
			shown += len(f.GetMetric())
		}
		if err != nil || shown != gauges {
			t.Errorf("%d gauges, %v, want %d", shown, err, gauges)
		}
	}
	expect(telemetry.StatusDegraded, nil, []string{"a", "b"}, 0)
	for range 2 {
		causes.Set(telemetry.Cause{Name: "a"}, telemetry.Cause{Name: "b", Holds: true, Details: []any{"which", "7"}})
		expect(telemetry.StatusDegraded, []string{"b"}, nil, 2)
	}
	causes.Set(telemetry.Cause{Name: "a"}) // b holds or not
	expect(telemetry.StatusDegraded, nil, []string{"b"}, 1)
	for range 2 {
		causes.Set(telemetry.Cause{Name: "a"}, telemetry.Cause{Name: "b"})
		expect(telemetry.StatusOK, nil, nil, 2)
	}
	if begun, ended := strings.Count(log.String(), "msg=degraded cause=b which=7"), strings.Count(log.String(), `msg="no longer degraded" cause=b`); begun != 1 || ended != 1 || strings.Count(log.String(), "\n") != 2 {
		t.Errorf("the log:\n%s", log.String())
	}
}
