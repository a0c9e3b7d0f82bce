package drawing_test

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"triprize/internal/drawing"
	"triprize/internal/job"
	"triprize/internal/platform/postgres"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

// A worker has few slots for draws: one whose campaign is locked must not keep its slot.
func TestADrawDoesNotWaitLongForItsCampaign(t *testing.T) {
	t.Parallel()
	settings := servers.Patient(servers.Settings(t)) // no wait ends by itself but the draw's
	db := servers.Pool(t, settings)
	id := fixture.Campaign(t, db, fixture.Draft(3))
	ref := fixture.SellOut(t, db, id)
	unlock := fixture.LockCampaign(t, db, id)
	gate := postgres.NewGate(db, prometheus.NewRegistry())
	drawer := drawing.NewDrawer(gate.Retry(drawing.RowWait), fixture.Key(t), settings.Draw, drawing.DrawerOptions{}, servers.Logger(t)) // as a worker has it
	if _, err := drawer.Run(t.Context(), ref); !postgres.IsLockTimeout(err) {
		t.Errorf("got %v", err)
	}
	unlock()
	if _, err := drawer.Run(t.Context(), ref); err != nil {
		t.Error(err)
	}
	if j := fixture.Job(t, db, ref.ID); j.State != job.Succeeded {
		t.Errorf("it is %s, %+v", j.State, j.Problem)
	}
	fixture.Sound(t, db)
}
