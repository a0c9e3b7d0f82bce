//go:build soak

package e2e

import (
	"fmt"
	"syscall"
	"testing"

	"github.com/google/uuid"

	"triprize/devkit/devstack"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"
)

// plainSteps are the moments before and after each write of a draw; beaconSteps are those
// of a draw with a beacon: fetches come first, because a round that another campaign has
// stored is not fetched again.
var (
	plainSteps  = []string{"draw.claimed", "draw.freeze", "draw.frozen", "draw.record", "draw.recorded"}
	beaconSteps = []string{"draw.fetch", "draw.fetched", "draw.claimed", "draw.freeze", "draw.frozen", "draw.record", "draw.recorded"}
)

// Each campaign has a worker that is killed, or stopped past its lease, at one moment of
// its draw. Others draw it; a worker that wakes up later writes nothing.
func TestADrawWhoseWorkerIsKilledOrStoppedAtAnyStepIsDoneOnce(t *testing.T) {
	for _, action := range []string{"kill", "stop"} {
		for name, steps := range map[string][]string{"operator": plainSteps, "beacon": beaconSteps} {
			t.Run(action+"/"+name, func(t *testing.T) {
				t.Parallel()
				crashDraws(t, action, steps, name == "beacon")
			})
		}
	}
}

func crashDraws(t *testing.T, action string, steps []string, withBeacon bool) {
	t.Helper()
	options := fleet.Options{Binaries: true, Workers: -1, Env: []string{"TRIPRIZE_DRAW_LEASE=2s", "TRIPRIZE_SWEEPS_STALE_LOCKS_INTERVAL=500ms"}}
	if withBeacon {
		options.Beacon = 2
	}
	s := fleet.Start(t, options)
	var ids []uuid.UUID
	var doomed []*devstack.Child
	for _, step := range steps { // only its own campaign dooms a worker; it may draw those of the workers before
		id := drawable(s, withBeacon)
		worker := s.RunWorker(fmt.Sprintf("TRIPRIZE_TEST_FAILPOINTS=%s@%s=%s", step, id, action))
		fixture.SellOut(t, s.DB, id)
		servers.Eventually(t, "the worker is gone at "+step, func() bool { return worker.PID() == 0 || isStopped(worker) })
		ids, doomed = append(ids, id), append(doomed, worker)
	}
	s.RunWorker()
	s.AwaitDrawn(ids...)
	for _, worker := range doomed {
		if worker.PID() == 0 {
			continue
		}
		if err := worker.Signal(syscall.SIGCONT); err != nil {
			t.Error(err)
		}
	}
	last := drawable(s, withBeacon) // those that woke up take part again
	fixture.SellOut(t, s.DB, last)
	s.AwaitDrawn(append(ids, last)...)
	expectRecordsOnce(s, append(ids, last)...)
}
