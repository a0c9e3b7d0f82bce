package upkeep_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"triprize/internal/campaign"
	"triprize/internal/domain/access"
	"triprize/internal/entry/upkeep"
	"triprize/internal/inventory"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
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

func TestASweepEndsWhatIsOverAndNothingElse(t *testing.T) {
	t.Parallel()
	p := newSetup(t)
	id, other := fixture.Campaign(t, p.db, fixture.Draft(8)), fixture.Campaign(t, p.db, fixture.Draft(8))
	if got := p.sweep("expired-holds"); got["campaigns"] != 0 || got["expired"] != 0 || got["freed"] != 0 || got["failed"] != 0 {
		t.Errorf("with none: %v", got)
	}
	fresh := fixture.Hold(t, fixture.Holds(t, p.db, nil, nil), fixture.HoldAnyRequest(id, "in time", 0, 3))
	over := append(p.lapse(id, 3), p.lapse(other, 1)...)
	if got := p.sweep("expired-holds"); got["campaigns"] != 2 || got["expired"] != 4 || got["freed"] != 8 || got["failed"] != 0 {
		t.Errorf("got %v", got)
	}
	for _, h := range over {
		if now := fixture.HoldNow(t, p.db, h.ID); now.State != inventory.HoldExpired || now.EndedAt == nil {
			t.Errorf("one that is over is %+v", now)
		}
	}
	if now := fixture.HoldNow(t, p.db, fresh.ID); now.State != inventory.HoldActive {
		t.Errorf("one that is not is %+v", now)
	}
	if c, err := campaign.Get(t.Context(), p.db, id); err != nil || c.Counts.Reserved != 3 {
		t.Errorf("counters %+v, %v", c.Counts, err)
	}
	if got := p.sweep("expired-holds"); got["campaigns"] != 0 || got["expired"] != 0 {
		t.Errorf("once more: %v", got)
	}
	fixture.Sound(t, p.db)
}

func TestASweepOfHoldsIsBounded(t *testing.T) {
	t.Parallel()
	p := newSetup(t)
	p.batchesOf(3, 2)
	p.lapse(fixture.Campaign(t, p.db, fixture.Draft(12)), 10)
	for _, want := range []int{6, 4, 0} {
		if got := p.sweep("expired-holds"); got["expired"] != want || got["freed"] != 2*want {
			t.Errorf("got %v, want %d", got, want)
		}
		fixture.Sound(t, p.db)
	}
}

func TestTwoSweepsEndAHoldOnce(t *testing.T) {
	t.Parallel()
	p := newSetup(t)
	p.batchesOf(5, 40)
	const n = 30
	for range 3 {
		p.lapse(fixture.Campaign(t, p.db, fixture.Draft(12)), n/3)
	}
	var mu sync.Mutex
	var sweeps sync.WaitGroup
	expired, freed := 0, 0
	for range 3 {
		sweeps.Go(func() {
			got := p.sweep("expired-holds")
			mu.Lock()
			defer mu.Unlock()
			expired, freed = expired+got["expired"], freed+got["freed"]
		})
	}
	sweeps.Wait()
	got := p.sweep("expired-holds") // one that found another's work done may have stopped early
	if expired, freed = expired+got["expired"], freed+got["freed"]; expired != n || freed != 2*n {
		t.Errorf("%d of %d holds were ended and %d positions freed", expired, n, freed)
	}
	fixture.Sound(t, p.db)
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

func TestOldHoldsGoWhenTheyEndedLongAgo(t *testing.T) {
	t.Parallel()
	p := newSetup(t)
	id := fixture.Campaign(t, p.db, fixture.Draft(8))
	ended := p.lapse(id, 5)
	p.sweep("expired-holds")
	active := fixture.Hold(t, fixture.Holds(t, p.db, nil, nil), fixture.HoldAnyRequest(id, "a", 0, 1))
	due := p.lapse(id, 1)[0]
	if got := p.sweep("old-records"); got["holds_deleted"] != 0 {
		t.Errorf("young ones: %v", got)
	}
	p.batchesOf(2, 2)
	age := 24*time.Hour + time.Minute
	servers.Exec(t, p.db, `UPDATE holds SET created_at = created_at - $1 * interval '1 s', ended_at = ended_at - $1 * interval '1 s'`, age.Seconds())
	for _, want := range []int{5, 0} {
		if got := p.sweep("old-records"); got["holds_deleted"] != want {
			t.Errorf("old ones: %v, want %d", got, want)
		}
	}
	if _, err := inventory.GetHold(t.Context(), p.db, access.Everything(), ended[0].ID); err == nil {
		t.Error("an old one is still there")
	}
	fixture.HoldNow(t, p.db, active.ID)
	fixture.HoldNow(t, p.db, due.ID)
	fixture.Sound(t, p.db)
}
