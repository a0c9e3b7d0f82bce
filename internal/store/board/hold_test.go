package board_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"triprize/internal/store/board"
	"triprize/internal/testkit/fixture"
)

// touched sends one statement and returns how many rows it touched.
func touched(t *testing.T, db *pgxpool.Pool, queue func(b *pgx.Batch) *pgx.QueuedQuery) (n int) {
	t.Helper()
	var b pgx.Batch
	queue(&b).Exec(func(tag pgconn.CommandTag) error {
		n = int(tag.RowsAffected())
		return nil
	})
	if err := db.SendBatch(t.Context(), &b).Close(); err != nil {
		t.Fatal(err)
	}
	return n
}

// keep keeps free positions in a hold that ends so much from now.
func keep(t *testing.T, db *pgxpool.Pool, holdID uuid.UUID, in time.Duration, free ...board.Free) (n int) {
	t.Helper()
	kept := make([]board.Keeping, len(free))
	for i, f := range free {
		kept[i] = board.Keeping{Free: f, UserID: "holder", HoldID: holdID, ExpiresAt: time.Now().Add(in)}
	}
	return touched(t, db, func(b *pgx.Batch) *pgx.QueuedQuery { return board.QueueHold(b, kept) })
}

func foundNow(t *testing.T, db *pgxpool.Pool, chosen ...board.Chosen) []board.Found {
	t.Helper()
	found, err := board.Find(t.Context(), begin(t, db), chosen)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func chosen(f board.Free) board.Chosen {
	return board.Chosen{CampaignID: f.CampaignID, Position: f.Position}
}

func TestChosenPositionsAreFoundAsTheyAre(t *testing.T) {
	t.Parallel()
	db := fixture.DB(t)
	id, other := fill(t, db, 4), fill(t, db, 4)
	free, holdID := ranked(t, db, id, 0), uuid.New()
	keep(t, db, holdID, time.Minute, free[1])
	keep(t, db, uuid.New(), -time.Minute, free[2])
	sell(t, db, "buyer", uuid.New(), free[3])
	elsewhere := chosen(ranked(t, db, other, 0)[0])
	got := foundNow(t, db, chosen(free[0]), chosen(free[1]), chosen(free[2]), chosen(free[3]), elsewhere,
		board.Chosen{CampaignID: id, Position: fixture.At(5, 1)}, board.Chosen{CampaignID: uuid.New(), Position: fixture.At(1, 1)})
	if len(got) != 5 {
		t.Fatalf("found %+v", got)
	}
	at := make(map[board.Chosen]board.Found)
	for _, f := range got {
		at[chosen(f.Free)] = f
	}
	if f := at[chosen(free[0])]; f.Free != free[0] || f.State != board.Available || f.HoldID != nil || f.Remaining != 0 {
		t.Errorf("a free one is %+v, want %+v", f, free[0])
	}
	if f := at[chosen(free[1])]; f.State != board.Held || *f.HoldID != holdID || f.Version != free[1].Version+1 || f.Remaining < 30*time.Second || f.Remaining > time.Minute {
		t.Errorf("a held one is %+v", f)
	}
	if f := at[chosen(free[2])]; f.State != board.Held || f.Remaining > -30*time.Second {
		t.Errorf("one whose hold is over is %+v", f)
	}
	if f := at[chosen(free[3])]; f.State != board.Sold || f.Remaining != 0 {
		t.Errorf("a sold one is %+v", f)
	}
	if found, err := board.Find(t.Context(), nil, nil); found != nil || err != nil {
		t.Errorf("none: %v, %v", found, err)
	}
}

func TestAPositionThatMovedIsNotHeld(t *testing.T) {
	t.Parallel()
	db := fixture.DB(t)
	for name, move := range map[string]func(f board.Free){
		"held":                          func(f board.Free) { set(t, db, board.Held, uuid.New(), f) },
		"reserved":                      func(f board.Free) { set(t, db, board.Reserved, uuid.New(), f) },
		"sold":                          func(f board.Free) { sell(t, db, "first", uuid.New(), f) },
		"held and free again":           func(f board.Free) { set(t, db, board.Held, uuid.New(), f); set(t, db, board.Available, uuid.New(), f) },
		"held, at the same version":     func(f board.Free) { set(t, db, board.Held, uuid.New(), f); setBack(t, db, f) },
		"reserved, at the same version": func(f board.Free) { set(t, db, board.Reserved, uuid.New(), f); setBack(t, db, f) },
	} {
		id := fill(t, db, 4)
		free := peek(t, db, board.Need{CampaignID: id, Count: 3})
		move(free[1])
		moved := rowOf(t, db, id, free[1].Position)
		if n := keep(t, db, uuid.New(), time.Minute, free...); n != 2 {
			t.Errorf("%s: %d of 3 held", name, n)
		}
		if after := rowOf(t, db, id, free[1].Position); after.State != moved.State || after.Version != moved.Version {
			t.Errorf("%s: it was %+v, it is %+v", name, moved, after)
		}
		if p, err := board.Get(t.Context(), db, id, free[0].Position); err != nil || p.State != board.Held || *p.UserID != "holder" || p.ExpiresAt == nil {
			t.Errorf("%s: a held one is %+v, %v", name, p, err)
		}
	}
}

// setBack gives a position back the version that somebody has read of it.
func setBack(t *testing.T, db *pgxpool.Pool, f board.Free) {
	t.Helper()
	exec(t, db, `UPDATE positions SET version = $4 WHERE campaign_id = $1 AND layer = $2 AND col = $3`, f.CampaignID, f.Layer, f.Column, f.Version)
}

func exec(t *testing.T, db *pgxpool.Pool, sql string, args ...any) {
	t.Helper()
	if _, err := db.Exec(t.Context(), sql, args...); err != nil {
		t.Fatal(err)
	}
}

func TestWhatAHoldKeepsIsFreedAndExtendedByItsName(t *testing.T) {
	t.Parallel()
	db := fixture.DB(t)
	id, other := fill(t, db, 4), fill(t, db, 4)
	mine, others := uuid.New(), uuid.New()
	free, elsewhere := ranked(t, db, id, 0), ranked(t, db, other, 0)
	keep(t, db, mine, time.Minute, free[:3]...)
	keep(t, db, others, time.Minute, free[3:5]...)
	keep(t, db, mine, time.Minute, elsewhere[0]) // cannot be; it is not touched all the same
	later := time.Now().Add(time.Hour).Truncate(time.Microsecond)
	if n := touched(t, db, func(b *pgx.Batch) *pgx.QueuedQuery { return board.QueueExtend(b, id, mine, later) }); n != 3 {
		t.Errorf("%d extended", n)
	}
	for i, f := range free[:5] {
		p, err := board.Get(t.Context(), db, id, f.Position)
		if r := rowOf(t, db, id, f.Position); err != nil || p.ExpiresAt.Equal(later) != (i < 3) || (r.Version == f.Version+2) != (i < 3) {
			t.Errorf("position %d is %+v, %+v, %v", i, p, r, err)
		}
	}
	if n := touched(t, db, func(b *pgx.Batch) *pgx.QueuedQuery { return board.QueueFreeHeld(b, []uuid.UUID{id}, []uuid.UUID{mine}) }); n != 3 {
		t.Errorf("%d freed", n)
	}
	for _, f := range free[:3] {
		p, err := board.Get(t.Context(), db, id, f.Position)
		if r := rowOf(t, db, id, f.Position); err != nil || p.State != board.Available || p.UserID != nil || p.ExpiresAt != nil || r.Version != f.Version+3 || r.Rank != f.Rank {
			t.Errorf("a freed one is %+v, %+v, %v", p, r, err)
		}
	}
	expectCounts(t, db, id, [3]int{8, 2, 0})
	expectCounts(t, db, other, [3]int{9, 1, 0})
	keep(t, db, others, time.Minute, ranked(t, db, id, 0)[0]) // it has a new owner now
	for range 2 {
		if n := touched(t, db, func(b *pgx.Batch) *pgx.QueuedQuery { return board.QueueFreeHeld(b, []uuid.UUID{id}, []uuid.UUID{mine}) }); n != 0 {
			t.Errorf("late, %d were freed", n)
		}
	}
}

func TestAHeldPositionIsSoldToItsHoldOnly(t *testing.T) {
	t.Parallel()
	db := fixture.DB(t)
	id := fill(t, db, 4)
	mine, others := uuid.New(), uuid.New()
	free := ranked(t, db, id, 0)
	keep(t, db, mine, time.Minute, free[0])
	keep(t, db, others, time.Minute, free[1])
	for i := range 2 {
		free[i].Version++
	}
	sales := func(holdID uuid.UUID, of ...board.Free) (sales []board.Sale) {
		for _, f := range of {
			sales = append(sales, board.Sale{Free: f, HoldID: holdID, UserID: "holder", PurchaseID: uuid.New()})
		}
		return sales
	}
	for what, c := range map[string]struct {
		sales []board.Sale
		want  int
	}{
		"without a hold":            {sales(uuid.Nil, free[0]), 0},
		"by another hold":           {sales(others, free[0]), 0},
		"a free one by a hold":      {sales(mine, free[2]), 0},
		"at another version":        {sales(mine, board.Free{CampaignID: id, Position: free[0].Position, Version: free[0].Version + 1}), 0},
		"each by its own, one free": {slices.Concat(sales(mine, free[0]), sales(others, free[1]), sales(uuid.Nil, free[2])), 3},
	} {
		if n := touchedAndUndone(t, db, c.sales); n != c.want {
			t.Errorf("%s: %d sold, want %d", what, n, c.want)
		}
	}
	touched(t, db, func(b *pgx.Batch) *pgx.QueuedQuery { return board.QueueSell(b, sales(mine, free[0])) })
	if p, err := board.Get(t.Context(), db, id, free[0].Position); err != nil || p.State != board.Sold || p.ExpiresAt != nil {
		t.Errorf("it is %+v, %v", p, err)
	}
}

func touchedAndUndone(t *testing.T, db *pgxpool.Pool, sales []board.Sale) (n int) {
	t.Helper()
	tx := begin(t, db)
	var b pgx.Batch
	board.QueueSell(&b, sales).Exec(func(tag pgconn.CommandTag) error {
		n = int(tag.RowsAffected())
		return nil
	})
	if err := tx.SendBatch(t.Context(), &b).Close(); err != nil {
		t.Fatal(err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	return n
}

// Nobody has tidied up: the board shows what is over as free all the same.
func TestAnExpiredHoldIsShownAsFree(t *testing.T) {
	t.Parallel()
	db := fixture.DB(t)
	id := fill(t, db, 4)
	free := ranked(t, db, id, 0)
	keep(t, db, uuid.New(), -time.Millisecond, free[0], free[1])
	keep(t, db, uuid.New(), time.Minute, free[2])
	set(t, db, board.Reserved, uuid.New(), free[3])
	exec(t, db, `UPDATE positions SET expires_at = now() - interval '1 s' WHERE campaign_id = $1 AND state = 'reserved'`, id) // may have been paid
	for i, want := range []board.State{board.Available, board.Available, board.Held, board.Reserved, board.Available} {
		p, err := board.Get(t.Context(), db, id, free[i].Position)
		if err != nil || p.State != want || (p.UserID == nil) != (want == board.Available) || (p.ExpiresAt == nil) != (want == board.Available) {
			t.Errorf("position %d is %+v, %v", i, p, err)
		}
		if shown := all(t, db, id)[slices.IndexFunc(all(t, db, id), func(q board.Position) bool { return q.Position == p.Position })]; shown.State != want {
			t.Errorf("position %d is shown as %+v", i, shown)
		}
	}
	own, err := board.OfUser(t.Context(), db, id, "holder")
	if err != nil || len(own) != 1 || own[0].Position != free[2].Position {
		t.Errorf("its user has %+v, %v", own, err)
	}
	expectCounts(t, db, id, [3]int{8, 2, 0})
	if n, err := board.CountSold(t.Context(), db, []board.Need{{CampaignID: id, Layer: 4}, {CampaignID: id, Layer: 3}}); err != nil || !slices.Equal(n, []int{0, 0}) {
		t.Errorf("sold: %v, %v", n, err)
	}
}
