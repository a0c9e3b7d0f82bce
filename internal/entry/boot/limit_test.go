package boot

import (
	"strings"
	"syscall"
	"testing"
)

func TestAShutdownKeepsItsLimitWhenARequestDoesNotEnd(t *testing.T) {
	t.Parallel()
	api, _, release, answered := busy(t, "TRIPRIZE_API_SHUTDOWN_TIMEOUT=200ms")
	api.signal(t, syscall.SIGTERM)
	_, status := api.end(t) // before the request, which is held up still
	if status.ExitStatus() != 0 || !strings.Contains(api.stderr.String(), "cut off at shutdown") {
		t.Errorf("status %d, and nobody was told: %s", status.ExitStatus(), api.stderr.String())
	}
	release()
	<-answered
}
