package httpapi

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"triprize/internal/job"
	"triprize/internal/platform/queue"
	"triprize/internal/testkit/servers"
)

// A wait that nobody has told is no wait of 0.
func TestAWaitThatIsNotKnownIsMissing(t *testing.T) {
	t.Parallel()
	settings, registry := servers.Settings(t), prometheus.NewRegistry()
	rdb := servers.Redis(t, settings)
	b := newBacklog(queue.NewFinder(rdb, settings.Redis.Namespace), settings, nil, registry)
	told := func() int {
		t.Helper()
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		if len(families) == 0 {
			return 0
		}
		return len(families[0].GetMetric())
	}
	if n := told(); n != 0 {
		t.Errorf("before the first look %d waits are told", n)
	}
	b.read(t.Context(), servers.Logger(t))
	if n := told(); n != len(job.QueueKinds) {
		t.Errorf("of queues that were never used %d waits are told", n)
	}
	if err := rdb.Close(); err != nil {
		t.Fatal(err)
	}
	b.read(t.Context(), servers.Logger(t))
	if n := told(); n != 0 || b.wait(job.KindPurchase) != 0 {
		t.Errorf("without Redis %d waits are told", n)
	}
}
