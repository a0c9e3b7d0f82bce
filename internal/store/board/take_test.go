package board_test

import (
	"bytes"
	"slices"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"triprize/internal/store/board"
	"triprize/internal/testkit/fixture"
)

// ranked returns what is free by rank, in a layer or anywhere, as All and the
// ranks tell it, without FindFree.
func ranked(t *testing.T, db *pgxpool.Pool, id uuid.UUID, layer int) (free []board.Free) {
	t.Helper()
	for _, p := range all(t, db, id) {
		if r := rowOf(t, db, id, p.Position); p.State == board.Available && (layer == 0 || p.Layer == layer) {
			free = append(free, board.Free{CampaignID: id, Position: p.Position, Rank: r.Rank, Price: p.Price, Version: r.Version})
		}
	}
	slices.SortFunc(free, byRank)
	return free
}

func byRank(a, b board.Free) int { return a.Rank - b.Rank }

func TestTheFirstFreePositionsByRankAreFound(t *testing.T) {
	t.Parallel()
	db := fixture.DB(t)
	fill(t, db, 5)
	id := fill(t, db, 5)
	taken := ranked(t, db, id, 0)[:7]
	set(t, db, board.Held, uuid.New(), taken[0], taken[2])
	set(t, db, board.Reserved, uuid.New(), taken[3], taken[4])
	set(t, db, board.Sold, uuid.New(), taken[6])
	set(t, db, board.Held, uuid.New(), taken[5])
	set(t, db, board.Available, uuid.New(), taken[5]) // free again, at a later version
	for layer := range 6 {                            // 0: anywhere
		free := ranked(t, db, id, layer)
		for count := range len(free) + 3 {
			got := peek(t, db, board.Need{CampaignID: id, Layer: layer, Count: count})
			slices.SortFunc(got, byRank)
			if want := free[:min(count, len(free))]; !slices.Equal(got, want) {
				t.Errorf("%d in layer %d: %+v, want %+v", count, layer, got, want)
			}
		}
	}
	if got := peek(t, db, board.Need{CampaignID: id, Layer: 6, Count: 1}, board.Need{CampaignID: uuid.New(), Count: 1}); len(got) != 0 {
		t.Errorf("in a layer and a campaign that do not exist: %+v", got)
	}
	if got := peek(t, db); len(got) != 0 {
		t.Errorf("without a need: %+v", got)
	}
}

func TestManyNeedsAreMetAtOnceAndEachByItself(t *testing.T) {
	t.Parallel()
	db := fixture.DB(t)
	a, b := fill(t, db, 5), fill(t, db, 6)
	needs := []board.Need{
		{CampaignID: a, Layer: 4, Count: 2}, {CampaignID: b, Count: 3}, {CampaignID: a, Count: 4},
		{CampaignID: b, Layer: 6, Count: 100}, {CampaignID: a, Layer: 1, Count: 1},
	}
	var want []board.Free
	for _, n := range needs {
		free := ranked(t, db, n.CampaignID, n.Layer)
		want = append(want, free[:min(n.Count, len(free))]...)
	}
	got := peek(t, db, needs...)
	for _, list := range [][]board.Free{got, want} { // a position can come for several needs
		slices.SortFunc(list, func(x, y board.Free) int {
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

// The lock of the campaign is forgotten here: the positions must defend themselves.
func TestWhatOneHasFoundAnotherPassesOver(t *testing.T) {
	t.Parallel()
	db := fixture.DB(t)
	id := fill(t, db, 4)
	free := ranked(t, db, id, 0)
	first, second := begin(t, db), begin(t, db)
	if got := find(t, first, board.Need{CampaignID: id, Count: 4}); len(got) != 4 {
		t.Fatalf("the first found %+v", got)
	}
	got := find(t, second, board.Need{CampaignID: id, Count: 4})
	slices.SortFunc(got, byRank)
	if !slices.Equal(got, free[4:8]) {
		t.Errorf("the second found %+v, want %+v", got, free[4:8])
	}
	if got := peek(t, db, board.Need{CampaignID: id, Count: 4}); len(got) != 2 {
		t.Errorf("the third found %+v", got)
	}
	layer := free[0].Layer
	for _, f := range peek(t, db, board.Need{CampaignID: id, Layer: layer, Count: 4}) {
		if slices.Contains(free[:8], f) {
			t.Errorf("found by another already: %+v", f)
		}
	}
	if err := first.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := peek(t, db, board.Need{CampaignID: id, Count: 10}); len(got) != 6 {
		t.Errorf("after the first's rollback: %+v", got)
	}
}

func TestASoldPositionSaysToWhom(t *testing.T) {
	t.Parallel()
	db := fixture.DB(t)
	id, purchases := fill(t, db, 4), []uuid.UUID{uuid.New(), uuid.New()}
	free := ranked(t, db, id, 0)
	tx := begin(t, db)
	if n := sell(t, tx, "a", purchases[0], free[0], free[3]) + sell(t, tx, "b", purchases[1], free[1]); n != 3 {
		t.Fatalf("%d positions sold", n)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i, f := range free {
		p, err := board.Get(t.Context(), db, id, f.Position)
		if err != nil {
			t.Fatal(err)
		}
		r := rowOf(t, db, id, f.Position)
		owner, ok := map[int]string{0: "a", 3: "a", 1: "b"}[i]
		if !ok {
			if p.State != board.Available || p.UserID != nil || r.Version != f.Version || r.Dated {
				t.Errorf("an unsold position is %+v, %+v", p, r)
			}
			continue
		}
		purchase := purchases[owner[0]-'a']
		if p.State != board.Sold || p.UserID == nil || *p.UserID != owner || p.ExpiresAt != nil || p.Price != f.Price ||
			r.Version != f.Version+1 || r.Purchase == nil || *r.Purchase != purchase || !r.Dated {
			t.Errorf("a sold position is %+v, %+v", p, r)
		}
	}
}

func TestAPositionThatMovedIsNotSold(t *testing.T) {
	t.Parallel()
	db := fixture.DB(t)
	for name, move := range map[string]func(f board.Free){
		"held":                          func(f board.Free) { set(t, db, board.Held, uuid.New(), f) },
		"reserved":                      func(f board.Free) { set(t, db, board.Reserved, uuid.New(), f) },
		"sold":                          func(f board.Free) { sell(t, db, "first", uuid.New(), f) },
		"held and free again (version)": func(f board.Free) { set(t, db, board.Held, uuid.New(), f); set(t, db, board.Available, uuid.New(), f) },
		"held, at the same version":     func(f board.Free) { set(t, db, board.Held, uuid.New(), f); setBack(t, db, f) },
		"reserved, at the same version": func(f board.Free) { set(t, db, board.Reserved, uuid.New(), f); setBack(t, db, f) },
	} {
		id := fill(t, db, 4)
		free := peek(t, db, board.Need{CampaignID: id, Count: 3})
		move(free[1])
		moved := rowOf(t, db, id, free[1].Position)
		if n := sell(t, db, "second", uuid.New(), free...); n != 2 {
			t.Errorf("%s: %d of 3 sold", name, n)
		}
		if after := rowOf(t, db, id, free[1].Position); after.State != moved.State || after.Version != moved.Version {
			t.Errorf("%s: it was %+v, it is %+v", name, moved, after)
		}
		wrong := free[0]
		wrong.CampaignID = uuid.New()
		if n := sell(t, db, "third", uuid.New(), wrong); n != 0 {
			t.Errorf("%s: a position of another campaign was sold", name)
		}
	}
}

// Everybody has read the same positions and nobody holds a lock: each is sold once.
func TestOfManyWhoSellTheSamePositionsOneGetsEach(t *testing.T) {
	t.Parallel()
	db := fixture.DB(t)
	id := fill(t, db, 5)
	free := ranked(t, db, id, 0)
	var mu sync.Mutex
	sold := make(map[string]int)
	var sellers sync.WaitGroup
	for s := range 6 {
		user := string(rune('a' + s))
		sellers.Go(func() {
			for i := range free {
				n := sell(t, db, user, uuid.New(), free[(i+s)%len(free)])
				mu.Lock()
				sold[user] += n
				mu.Unlock()
			}
		})
	}
	sellers.Wait()
	owned, total := make(map[string]int), 0
	for _, p := range all(t, db, id) {
		if r := rowOf(t, db, id, p.Position); p.State != board.Sold || r.Version != 1 {
			t.Errorf("a position is %+v, %+v", p, r)
			continue
		}
		owned[*p.UserID]++
		total++
	}
	for user, n := range sold {
		if owned[user] != n {
			t.Errorf("%s was told %d and owns %d", user, n, owned[user])
		}
	}
	if total != len(free) {
		t.Errorf("%d of %d sold", total, len(free))
	}
}

func TestAReleaseFreesWhatThePurchaseHasReservedAndNothingElse(t *testing.T) {
	t.Parallel()
	db := fixture.DB(t)
	id, elsewhere := fill(t, db, 4), fill(t, db, 4)
	mine, other := uuid.New(), uuid.New()
	free := ranked(t, db, id, 0)
	reserved, sold, others, held := free[:3], free[3], free[4:6], free[6]
	set(t, db, board.Reserved, mine, reserved...)
	set(t, db, board.Sold, mine, sold)
	set(t, db, board.Reserved, other, others...)
	set(t, db, board.Held, uuid.Nil, held)
	set(t, db, board.Reserved, mine, ranked(t, db, elsewhere, 0)[0])
	release := func(purchase uuid.UUID) (n int) {
		err := pgx.BeginFunc(t.Context(), db, func(tx pgx.Tx) (err error) {
			n, err = board.Release(t.Context(), tx, id, purchase)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if n := release(mine); n != 3 {
		t.Errorf("%d released", n)
	}
	for _, f := range reserved {
		p, err := board.Get(t.Context(), db, id, f.Position)
		if r := rowOf(t, db, id, f.Position); err != nil || p.State != board.Available || p.UserID != nil || p.ExpiresAt != nil || r.Version != f.Version+2 || r.Purchase != nil || r.Rank != f.Rank {
			t.Errorf("a released position is %+v, %+v, %v", p, r, err)
		}
	}
	expectCounts(t, db, id, [3]int{6, 3, 1})
	expectCounts(t, db, elsewhere, [3]int{9, 1, 0})
	if n := release(mine) + release(uuid.New()); n != 0 {
		t.Errorf("released again: %d", n)
	}
	// The first of them has a new owner by now, who is not the one who releases late.
	set(t, db, board.Reserved, other, reserved[0])
	if n := release(mine); n != 0 {
		t.Errorf("a late release took %d positions from their new owner", n)
	}
	if n := release(other); n != 3 {
		t.Errorf("the new owner released %d", n)
	}
}
