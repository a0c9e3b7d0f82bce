package inventory_test

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"triprize/internal/inventory"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

func TestTheFirstFreePositionsByRankAreFound(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	fill(t, db, 5)
	id := fill(t, db, 5)
	taken := ranked(t, db, id, 0)[:7]
	set(t, db, inventory.Held, uuid.New(), taken[0], taken[2])
	set(t, db, inventory.Reserved, uuid.New(), taken[3], taken[4])
	set(t, db, inventory.Sold, uuid.New(), taken[6])
	set(t, db, inventory.Held, uuid.New(), taken[5])
	set(t, db, inventory.Available, uuid.New(), taken[5]) // free again, at a later version
	for layer := range 6 {                                // 0: anywhere
		free := ranked(t, db, id, layer)
		for count := range len(free) + 3 {
			got := peek(t, db, needs(id, layer, count))
			slices.SortFunc(got, byRank)
			if want := free[:min(count, len(free))]; !slices.Equal(got, want) {
				t.Errorf("%d in layer %d: %+v, want %+v", count, layer, got, want)
			}
		}
	}
	if got := peek(t, db, needs(id, 6, 1), needs(uuid.New(), 0, 1)); len(got) != 0 {
		t.Errorf("in a layer and a campaign that do not exist: %+v", got)
	}
	if got := peek(t, db); len(got) != 0 {
		t.Errorf("without a need: %+v", got)
	}
}

func TestManyNeedsAreMetAtOnceAndEachByItself(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	a, b := fill(t, db, 5), fill(t, db, 6)
	many := []inventory.Need{needs(a, 4, 2), needs(b, 0, 3), needs(a, 0, 4), needs(b, 6, 100), needs(a, 1, 1)}
	var want []inventory.Free
	for _, n := range many {
		free := ranked(t, db, n.CampaignID, n.Layer)
		want = append(want, free[:min(n.Count, len(free))]...)
	}
	got := peek(t, db, many...)
	for _, list := range [][]inventory.Free{got, want} { // a position can come for several needs
		slices.SortFunc(list, func(x, y inventory.Free) int {
			if c := bytes.Compare(x.CampaignID[:], y.CampaignID[:]); c != 0 {
				return c
			}
			return byRank(x, y)
		})
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
}

// The transactions do not lock the campaign: the checks on positions must be enough.
func TestWhatOneHasFoundAnotherPassesOver(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := fill(t, db, 4)
	free := ranked(t, db, id, 0)
	first, second := begin(t, db), begin(t, db)
	if got := find(t, first, needs(id, 0, 4)); len(got) != 4 {
		t.Fatalf("the first found %+v", got)
	}
	got := find(t, second, needs(id, 0, 4))
	slices.SortFunc(got, byRank)
	if !slices.Equal(got, free[4:8]) {
		t.Errorf("the second found %+v, want %+v", got, free[4:8])
	}
	if got := peek(t, db, needs(id, 0, 4)); len(got) != 2 {
		t.Errorf("the third found %+v", got)
	}
	layer := free[0].Layer
	for _, f := range peek(t, db, needs(id, layer, 4)) {
		if slices.Contains(free[:8], f) {
			t.Errorf("found by another already: %+v", f)
		}
	}
	if err := first.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := peek(t, db, needs(id, 0, 10)); len(got) != 6 {
		t.Errorf("after the first's rollback: %+v", got)
	}
}

func TestChosenPositionsAreFoundAsTheyAre(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id, other := fill(t, db, 4), fill(t, db, 4)
	free := ranked(t, db, id, 0)
	held := kept(t, db, time.Hour, free[1])
	kept(t, db, -time.Minute, free[2])
	sell(t, db, "buyer", uuid.New(), free[3])
	elsewhere := ranked(t, db, other, 0)[0].PositionID
	got, err := inventory.Find(t.Context(), begin(t, db), []inventory.PositionID{free[0].PositionID, free[1].PositionID, free[2].PositionID, free[3].PositionID, elsewhere,
		{CampaignID: id, Position: fixture.At(5, 1)}, {CampaignID: uuid.New(), Position: fixture.At(1, 1)}})
	if err != nil || len(got) != 5 {
		t.Fatalf("found %+v, %v", got, err)
	}
	at := make(map[inventory.PositionID]inventory.Found)
	for _, f := range got {
		at[f.PositionID] = f
	}
	if f := at[free[0].PositionID]; f.Free != free[0] || f.State != inventory.Available || f.HoldID != nil || f.Remaining != 0 {
		t.Errorf("a free one is %+v, want %+v", f, free[0])
	}
	if f := at[free[1].PositionID]; f.State != inventory.Held || *f.HoldID != held.ID || f.Version != free[1].Version+1 || f.Remaining <= 0 || f.Remaining > time.Hour {
		t.Errorf("a held one is %+v", f)
	}
	if f := at[free[2].PositionID]; f.State != inventory.Held || f.Remaining > -time.Minute {
		t.Errorf("one whose hold is over is %+v", f)
	}
	if f := at[free[3].PositionID]; f.State != inventory.Sold || f.Remaining != 0 {
		t.Errorf("a sold one is %+v", f)
	}
	if found, err := inventory.Find(t.Context(), nil, nil); found != nil || err != nil {
		t.Errorf("none: %v, %v", found, err)
	}
}
