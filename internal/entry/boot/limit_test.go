package boot

import (
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestAShutdownKeepsItsLimitWhenARequestDoesNotEnd(t *testing.T) {
	t.Parallel()
	api, _, release, answered := busy(t, "TRIPRIZE_API_SHUTDOWN_TIMEOUT=200ms")
	began := time.Now()
	api.signal(t, syscall.SIGTERM)
	_, status := api.end(t)
	if took := time.Since(began); took > 8*time.Second { // the request's own limit is 10 s
		t.Errorf("it took %s", took)
	}
	if status.ExitStatus() != 0 || !strings.Contains(api.stderr.String(), "cut off at shutdown") {
		t.Errorf("status %d, and nobody was told: %s", status.ExitStatus(), api.stderr.String())
	}
	release()
	<-answered
}
