package upkeep_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"

	"triprize/internal/entry/upkeep"
	"triprize/internal/inventory"
	"triprize/internal/testkit/fixture"
)

// lapse makes n holds of two positions in a campaign and lets the time of all of them be over.
func (p *setup) lapse(id uuid.UUID, n int) (holds []inventory.Hold) {
	p.t.Helper()
	desk := fixture.Holds(p.t, p.db, nil, nil)
	for i := range n {
		holds = append(holds, fixture.Hold(p.t, desk, fixture.HoldAnyRequest(id, fmt.Sprint("user-", i), 0, 2)))
	}
	for _, h := range holds {
		fixture.EndHold(p.t, p.db, h)
	}
	return holds
}

// batchesOf lets a sweep touch no more than size rows at once, and do that no more than most times.
func (p *setup) batchesOf(size, most int) {
	p.settings.Scheduler.BatchSize, p.settings.Scheduler.MaxBatches = size, most
	p.with(upkeep.Options{})
}

// The broken campaign has more holds that are over than a batch takes, and they
// are over for longest.
func TestABrokenCampaignDoesNotHoldUpTheHoldsOfOthers(t *testing.T) {
	t.Parallel()
	p := newSetup(t)
	p.batchesOf(2, 40)
	broken, also, sound := fixture.Campaign(t, p.db, fixture.Draft(8)), fixture.Campaign(t, p.db, fixture.Draft(8)), fixture.Campaign(t, p.db, fixture.Draft(8))
	for _, id := range []uuid.UUID{broken, also} {
		for _, h := range p.lapse(id, 3) {
			fixture.MoveDeadline(t, p.db, h, -time.Hour)
		}
		if _, err := p.db.Exec(t.Context(), `UPDATE campaigns SET positions_reserved = 1 WHERE id = $1`, id); err != nil { // fewer than are held
			t.Fatal(err)
		}
	}
	holds := p.lapse(sound, 5)
	for range 2 {
		report, err := p.run("expired-holds")
		if err == nil || report.Error == "" || report.Counts["failed"] != 2 {
			t.Errorf("%+v, %v", report, err)
		}
	}
	for _, h := range holds {
		if now := fixture.HoldNow(t, p.db, h.ID); now.EndedAt == nil {
			t.Errorf("of the sound campaign: %+v", now)
		}
	}
}
