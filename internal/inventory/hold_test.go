package inventory_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"triprize/internal/domain/access"
	"triprize/internal/domain/fault"
	"triprize/internal/inventory"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

// holdsFor makes holds of one position each in a new campaign, that end so much from now.
func holdsFor(t *testing.T, db *pgxpool.Pool, in ...time.Duration) (holds []inventory.Hold) {
	t.Helper()
	free := ranked(t, db, fill(t, db, 4), 0)
	for i, d := range in {
		holds = append(holds, kept(t, db, d, free[i]))
	}
	return holds
}

func findOver(t *testing.T, db *pgxpool.Pool, campaigns ...uuid.UUID) (found []inventory.Over) {
	t.Helper()
	var b pgx.Batch
	inventory.QueueFindOver(&b, campaigns, &found)
	if err := db.SendBatch(t.Context(), &b).Close(); err != nil {
		t.Fatal(err)
	}
	return found
}

func TestAHoldIsOverAtItsDeadlineByTheDatabasesClock(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	holds := holdsFor(t, db, -time.Second, time.Hour)
	if h := fixture.HoldNow(t, db, holds[0].ID); h.State != inventory.HoldExpired || h.EndedAt != nil || len(h.Positions) != 1 || h.Positions[0] != holds[0].Positions[0] {
		t.Errorf("one that is over is %+v", h)
	}
	if h := fixture.HoldNow(t, db, holds[1].ID); h.State != inventory.HoldActive {
		t.Errorf("one that is not is %+v", h)
	}
	if _, err := inventory.GetHold(t.Context(), db, access.Everything(), uuid.New()); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("one that is not there: %v", err)
	}
	if got := findOver(t, db, holds[0].CampaignID, uuid.New()); !slices.Equal(got, []inventory.Over{overOf(holds[0])}) {
		t.Errorf("over are %+v", got)
	}
	var b pgx.Batch
	states := make(map[uuid.UUID]inventory.HoldState)
	inventory.QueueGetHolds(&b, []uuid.UUID{holds[0].ID, holds[1].ID}, func(h inventory.Hold) { states[h.ID] = h.State })
	if err := db.SendBatch(t.Context(), &b).Close(); err != nil || states[holds[0].ID] != inventory.HoldActive || states[holds[1].ID] != inventory.HoldActive {
		t.Errorf("recorded are %v, %v", states, err) // who reads these knows what is over
	}
}

func TestWhatBecameOfAHoldIsSaid(t *testing.T) {
	t.Parallel()
	purchase, deadline := uuid.New(), time.Date(2026, 7, 1, 9, 0, 0, 5_000_000, time.FixedZone("", 7200))
	for state, want := range map[inventory.HoldState]struct {
		code fault.Code
		text string
	}{
		inventory.HoldActive:   {"", ""},
		inventory.HoldUsed:     {fault.StateConflict, "used by purchase " + purchase.String()},
		inventory.HoldReleased: {fault.HoldExpired, "was released"},
		inventory.HoldExpired:  {fault.HoldExpired, "ended at 2026-07-01T07:00:00.005Z"},
	} {
		err := inventory.Hold{State: state, PurchaseID: &purchase, ExpiresAt: deadline}.CheckActive()
		if want.code == "" && err != nil || want.code != "" && (fault.CodeOf(err) != want.code || !strings.Contains(err.Error(), want.text)) {
			t.Errorf("%s: %v", state, err)
		}
	}
}

func TestTheCampaignsWithTheOldestHoldsThatAreOverAreFoundFirst(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	young := holdsFor(t, db, -time.Second, time.Hour)[0].CampaignID
	old := holdsFor(t, db, -time.Hour, -time.Minute)[0].CampaignID
	middle := holdsFor(t, db, -30*time.Minute)[0].CampaignID
	holdsFor(t, db, time.Hour)
	ended := holdsFor(t, db, -2*time.Hour)[0]
	change(t, db, func(b *pgx.Batch) { inventory.QueueExpire(b, []inventory.Over{overOf(ended)}) })
	for limit, want := range map[int][]uuid.UUID{1: {old}, 2: {old, middle}, 3: {old, middle}, 4: {old, middle, young}, 100: {old, middle, young}} {
		got, err := inventory.CampaignsWithHoldsOver(t.Context(), db, []uuid.UUID{}, limit)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("up to %d: %v, %v; want %v", limit, got, err, want)
		}
	}
	if got, err := inventory.CampaignsWithHoldsOver(t.Context(), db, []uuid.UUID{old, young}, 1); err != nil || !slices.Equal(got, []uuid.UUID{middle}) {
		t.Errorf("but for two: %v, %v", got, err)
	}
}

func TestOnlyHoldsThatEndedLongAgoAreDeleted(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	holds := holdsFor(t, db, -48*time.Hour, time.Hour, time.Hour, time.Hour, time.Hour) // the first is over for long, and no sweep has ended it
	for _, h := range holds[1:4] {
		change(t, db, func(b *pgx.Batch) { queueRelease(b, h) })
	}
	servers.Exec(t, db, `UPDATE holds SET ended_at = clock_timestamp() - interval '25 h' WHERE id = ANY($1)`, []uuid.UUID{holds[1].ID, holds[3].ID})
	var from *time.Time
	for _, want := range []int{1, 1, 0} {
		n, next, err := inventory.DeleteEndedHolds(t.Context(), db, 24*time.Hour, from, 1)
		if n != want || err != nil {
			t.Errorf("%d deleted, %v; want %d", n, err, want)
		}
		from = next
	}
	for i, there := range []bool{true, false, true, false, true} {
		if _, err := inventory.GetHold(t.Context(), db, access.Everything(), holds[i].ID); (err == nil) != there {
			t.Errorf("hold %d: %v", i, err)
		}
	}
}

// No sweep has run: what is over is shown as free all the same.
func TestAnExpiredHoldIsShownAsFree(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := fill(t, db, 4)
	free := ranked(t, db, id, 0)
	kept(t, db, -time.Millisecond, free[0], free[1])
	kept(t, db, time.Hour, free[2])
	set(t, db, inventory.Reserved, uuid.New(), free[3])
	servers.Exec(t, db, `UPDATE positions SET expires_at = now() - interval '1 s' WHERE campaign_id = $1 AND state = 'reserved'`, id) // may have been paid
	for i, want := range []inventory.State{inventory.Available, inventory.Available, inventory.Held, inventory.Reserved, inventory.Available} {
		p, err := inventory.Get(t.Context(), db, id, free[i].Position)
		if err != nil || p.State != want || (p.UserID == nil) != (want == inventory.Available) || (p.ExpiresAt == nil) != (want == inventory.Available) {
			t.Errorf("position %d is %+v, %v", i, p, err)
		}
		if shown := all(t, db, id)[slices.IndexFunc(all(t, db, id), func(q inventory.Position) bool { return q.Position == p.Position })]; shown.State != want {
			t.Errorf("position %d is shown as %+v", i, shown)
		}
	}
	own, err := inventory.OfUser(t.Context(), db, id, "", "holder")
	if err != nil || len(own) != 1 || own[0].Position != free[2].Position {
		t.Errorf("its user has %+v, %v", own, err)
	}
	expectCounters(t, db, id, [3]int{8, 2, 0})
	if n, err := inventory.CountGone(t.Context(), db, []inventory.Need{needs(id, 4, 0), needs(id, 3, 0)}); err != nil || !slices.Equal(n, []int{0, 0}) {
		t.Errorf("sold: %v, %v", n, err)
	}
}

func TestWhatBecomesOfHoldsIsCounted(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	m := inventory.NewHoldMetrics(registry)
	m.Count(inventory.HoldsMade, 2)
	m.Count(inventory.HoldsExpired, 0)
	(*inventory.HoldMetrics)(nil).Count(inventory.HoldsMade, 1)
	found, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	counted := make(map[string]float64)
	for _, series := range found[0].GetMetric() {
		counted[series.GetLabel()[0].GetValue()] = series.GetCounter().GetValue()
	}
	want := map[string]float64{"made": 2, "used": 0, "released": 0, "extended": 0, "expired": 0, "reclaimed": 0}
	if !maps.Equal(counted, want) {
		t.Errorf("counted %v", counted)
	}
}
