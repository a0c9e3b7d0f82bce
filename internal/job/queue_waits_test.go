package job_test

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"triprize/internal/job"
	"triprize/internal/platform/queue"
	"triprize/internal/testkit/servers"
)

// A wait that nobody has told is no wait of 0.
func TestAWaitThatIsNotKnownIsMissing(t *testing.T) {
	t.Parallel()
	settings, registry := servers.Patient(servers.Settings(t)), prometheus.NewRegistry()
	rdb := servers.Redis(t, settings)
	w := job.NewQueueWaits(queue.NewFinder(rdb, settings.Redis.Namespace), map[job.Kind]time.Duration{job.KindDraw: time.Minute, job.KindPurchase: time.Minute}, nil, registry)
	told := func() int {
		t.Helper()
		families, err := registry.Gather()
		servers.NoError(t, err)
		if len(families) == 0 {
			return 0
		}
		return len(families[0].GetMetric())
	}
	if n := told(); n != 0 {
		t.Errorf("before the first look %d waits are told", n)
	}
	job.ReadWaits(t.Context(), w, servers.Logger(t))
	if n := told(); n != 2 {
		t.Errorf("of queues that were never used %d waits are told", n)
	}
	servers.NoError(t, rdb.Close())
	if wait, n := job.ReadWaits(t.Context(), w, servers.Logger(t)), told(); n != 0 || wait != 0 {
		t.Errorf("without Redis %d waits are told", n)
	}
}
