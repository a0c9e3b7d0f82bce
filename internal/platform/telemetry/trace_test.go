package telemetry_test

import (
	"strings"
	"testing"

	"triprize/internal/platform/telemetry"
)

func TestATraceIsKeptAndABadHeaderIsIgnored(t *testing.T) {
	t.Parallel()
	const trace, parent = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
	for header, want := range map[string]string{
		"00-" + trace + "-" + parent + "-01":                              "00-" + trace + "-" + parent + "-01",
		"00-" + trace + "-" + parent + "-00":                              "00-" + trace + "-" + parent + "-00",
		"cc-" + trace + "-" + parent + "-01-what-the-future-will-be-like": "00-" + trace + "-" + parent + "-01",
		"": "",
		"00-" + trace + "-" + parent + "-01-more":                         "",
		"ff-" + trace + "-" + parent + "-01":                              "",
		"00-" + strings.Repeat("0", 32) + "-" + parent + "-01":            "",
		"00-" + trace + "-" + strings.Repeat("0", 16) + "-01":             "",
		"00-" + strings.ToUpper(trace) + "-" + parent + "-01":             "",
		"00-" + trace[1:] + "-" + parent + "-01":                          "",
		"01-" + trace + "-" + parent + "-01-" + strings.Repeat("a", 1000): "",
		"00-" + trace + "-" + parent + "-01\n":                            "",
	} {
		got := telemetry.Traceparent(header)
		if got != want {
			t.Errorf("%q: %q, want %q", header, got, want)
		}
		if id := telemetry.TraceID(got); want != "" && id != trace || want == "" && id != "" {
			t.Errorf("%q is in trace %q", header, id)
		}
	}
}
