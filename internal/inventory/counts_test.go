package inventory_test

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"pgregory.net/rapid"

	"triprize/internal/inventory"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/property"
	"triprize/internal/testkit/servers"
)

// expectCounts checks how many positions of a campaign are available, reserved
// (or held) and sold, by its layers and by its rows.
func expectCounters(t *testing.T, db *pgxpool.Pool, id uuid.UUID, want [3]int) {
	t.Helper()
	layers, err := inventory.CountByLayer(t.Context(), db, id)
	if err != nil {
		t.Fatal(err)
	}
	var byLayer, byRow [3]int
	for _, l := range layers {
		byLayer[0], byLayer[1], byLayer[2] = byLayer[0]+l.Available, byLayer[1]+l.Reserved, byLayer[2]+l.Sold
	}
	for _, p := range all(t, db, id) {
		byRow[map[inventory.State]int{inventory.Available: 0, inventory.Held: 1, inventory.Reserved: 1, inventory.Sold: 2}[p.State]]++
	}
	if byLayer != want || byRow != want {
		t.Errorf("available, reserved, sold: by layer %v, by row %v, want %v", byLayer, byRow, want)
	}
}

func TestPositionsAreCountedByLayer(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id, other := fill(t, db, 3), fill(t, db, 3)
	at := func(layer, column int) inventory.Free {
		return inventory.Free{PositionID: inventory.PositionID{CampaignID: id, Position: fixture.At(layer, column)}}
	}
	set(t, db, inventory.Sold, uuid.New(), at(1, 1), at(3, 2), at(3, 3))
	set(t, db, inventory.Held, uuid.New(), at(2, 1))
	set(t, db, inventory.Reserved, uuid.New(), at(3, 1))
	set(t, db, inventory.Blocked, uuid.New(), at(2, 2))
	got, err := inventory.CountByLayer(t.Context(), db, id)
	want := []inventory.LayerCounts{{Layer: 1, Sold: 1}, {Layer: 2, Reserved: 1, Blocked: 1}, {Layer: 3, Reserved: 1, Sold: 2}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %+v, %v", got, err)
	}
	if got, err := inventory.CountByLayer(t.Context(), db, uuid.New()); err != nil || len(got) != 0 {
		t.Errorf("of an unknown campaign: %+v, %v", got, err)
	}
	gone, err := inventory.CountGone(t.Context(), db, []inventory.Need{
		needs(id, 3, 7), needs(other, 3, 0), needs(id, 2, 0), needs(id, 1, 0), needs(uuid.New(), 1, 0)})
	if err != nil || !slices.Equal(gone, []int{2, 0, 1, 1, 0}) {
		t.Errorf("sold or blocked: %v, %v", gone, err)
	}
	if gone, err := inventory.CountGone(t.Context(), db, nil); err != nil || len(gone) != 0 {
		t.Errorf("of no layers: %v, %v", gone, err)
	}
}

// Invariants, checked after every step of random sales, reservations and releases:
//
//   - nothing is found that is not free, and never more than was asked for;
//   - available + reserved + sold are all positions, and each is what was done;
//   - what is sold stays sold.
func TestTheCountsStayRightWhateverIsDone(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	property.Check(t, func(rt *rapid.T) {
		id := fill(t, db, rapid.IntRange(3, 5).Draw(rt, "base length"))
		reserved := make(map[uuid.UUID][]inventory.Free)
		counts := [3]int{len(all(t, db, id)), 0, 0}
		for range rapid.IntRange(1, 8).Draw(rt, "steps") {
			err := pgx.BeginFunc(t.Context(), db, func(tx pgx.Tx) error {
				if rapid.Bool().Draw(rt, "release") {
					freeReserved(t, rt, tx, reserved, &counts)
				} else {
					take(t, rt, tx, id, reserved, &counts)
				}
				return nil
			})
			if err != nil {
				rt.Fatal(err)
			}
			expectCounters(t, db, id, counts)
			if t.Failed() {
				rt.Fatal("the counts are wrong")
			}
		}
	})
}

// release releases one of the reservations, or sells it, if there are any.
func freeReserved(t *testing.T, rt *rapid.T, tx pgx.Tx, reserved map[uuid.UUID][]inventory.Free, counts *[3]int) {
	purchases := slices.SortedFunc(maps.Keys(reserved), func(a, b uuid.UUID) int { return len(reserved[a]) - len(reserved[b]) })
	if len(purchases) == 0 {
		return
	}
	p, pay := rapid.SampledFrom(purchases).Draw(rt, "purchase"), rapid.Bool().Draw(rt, "paid")
	n := len(reserved[p])
	var b pgx.Batch
	if pay {
		inventory.QueueSellReserved(&b, returns(p, reserved[p]...))
		counts[2] += n
	} else {
		inventory.QueueFreeReserved(&b, returns(p, reserved[p]...))
		counts[0] += n
	}
	if err := tx.SendBatch(t.Context(), &b).Close(); err != nil {
		rt.Fatal(err)
	}
	counts[1] -= n
	delete(reserved, p)
}

// take sells or reserves what is found for a random need.
func take(t *testing.T, rt *rapid.T, tx pgx.Tx, id uuid.UUID, reserved map[uuid.UUID][]inventory.Free, counts *[3]int) {
	need := needs(id, rapid.IntRange(0, 5).Draw(rt, "layer"), rapid.IntRange(1, 6).Draw(rt, "count"))
	free := find(t, tx, need)
	if len(free) > need.Count || len(free) > counts[0] {
		rt.Fatalf("found %d for %+v with %d available", len(free), need, counts[0])
	}
	purchase := uuid.New()
	counts[0] -= len(free)
	if rapid.Bool().Draw(rt, "reserve") {
		var b pgx.Batch
		inventory.QueueReserve(&b, []inventory.Owned{{UserID: "a", PurchaseID: purchase, Picked: pointers(free), For: time.Hour}}, time.Now(), inventory.HoldQuota{Max: time.Hour}, 0)
		if err := tx.SendBatch(t.Context(), &b).Close(); err != nil {
			rt.Fatalf("not reserved: %v", err)
		}
		if len(free) > 0 {
			reserved[purchase] = free
		}
		counts[1] += len(free)
		return
	}
	if !sell(t, tx, "a", purchase, free...) {
		rt.Fatalf("not sold: %+v", free)
	}
	counts[2] += len(free)
}
