package inventory_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"triprize/internal/domain/fault"
	"triprize/internal/domain/money"
	"triprize/internal/domain/shape"
	"triprize/internal/inventory"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

func TestAFilledCampaignHasEveryPositionOnceAndFree(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	other := fill(t, db, 3)
	id := fill(t, db, 7)
	positions, i := all(t, db, id), 0
	for at := range fixture.Triangle(7).All() {
		want := inventory.Position{Place: fixture.OfTriangle(at), Price: money.Amount(100 * at.Layer), State: inventory.Available}
		if i < len(positions) && positions[i] != want {
			t.Errorf("position %d is %+v, want %+v", i, positions[i], want)
		}
		i++
	}
	if len(positions) != 28 {
		t.Errorf("%d positions", len(positions))
	}
	if n := len(all(t, db, other)); n != 6 {
		t.Errorf("the other board has %d positions", n)
	}
	if n := len(all(t, db, uuid.New())); n != 0 {
		t.Errorf("a board that was not filled has %d positions", n)
	}
}

func TestTheRanksAreAnOrderOfEachCampaignOfItsOwn(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	ranks := func() []int {
		return servers.Value[[]int](t, db, `SELECT array_agg(rank ORDER BY layer, col) FROM positions WHERE campaign_id = $1`, fill(t, db, 12))
	}
	a, b := ranks(), ranks()
	if slices.Equal(a, b) || slices.IsSorted(a) || slices.IsSorted(b) {
		t.Errorf("of two boards: %v and %v", a, b)
	}
	for _, order := range [][]int{a, b} {
		slices.Sort(order)
		for i, rank := range order {
			if rank != i {
				t.Fatalf("rank %d comes as number %d: %v", rank, i, order)
			}
		}
	}
}

func TestACampaignIsFilledOnce(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := fill(t, db, 4)
	first := peek(t, db, needs(id, 0, 100))
	err := pgx.BeginFunc(t.Context(), db, func(tx pgx.Tx) error {
		return inventory.Fill(t.Context(), tx, id, inventory.Plan{Shape: fixture.Triangle(5), Prices: []money.Amount{1, 2, 3, 4, 5}})
	})
	if pg, ok := errors.AsType[*pgconn.PgError](err); !ok || pg.Code != "23505" { // a unique violation
		t.Errorf("filled again: %v", err)
	}
	if again := peek(t, db, needs(id, 0, 100)); !slices.Equal(again, first) {
		t.Errorf("the positions changed: %v, %v", first, again)
	}
}

func TestOnePositionIsShownAsInTheListOfAll(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := fill(t, db, 4)
	sell(t, db, "a", uuid.New(), peek(t, db, needs(id, 0, 3))...)
	for _, want := range all(t, db, id) {
		got, err := inventory.Get(t.Context(), db, id, want.Position)
		if err != nil || got.Position != want.Position || got.State != want.State || got.Price != want.Price || (got.UserID == nil) != (want.UserID == nil) {
			t.Errorf("got %+v, %v, want %+v", got, err, want)
		}
	}
	for _, at := range []shape.Position{{}, {Layer: 5, Column: 1}, {Layer: 4, Column: 5}, {Layer: 1, Column: 0}, {Layer: -1, Column: -1}} {
		if _, err := inventory.Get(t.Context(), db, id, at); fault.CodeOf(err) != fault.NotFound {
			t.Errorf("position %v: %v", at, err)
		}
	}
	if _, err := inventory.Get(t.Context(), db, uuid.New(), shape.Position{Layer: 1, Column: 1}); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("of another campaign: %v", err)
	}
}

func TestTheTableRefusesPositionsThatCannotBe(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := fill(t, db, 3)
	for _, change := range []string{
		`col = 0`, `col = 500501`, `price = 0`,
		`state = 'lost', user_id = 'a'`,
		`user_id = 'a'`,
		`state = 'held', expires_at = now()`,
		`state = 'held', user_id = 'a'`,
		`state = 'held', user_id = 'a', expires_at = now(), purchase_id = $1`,
		`state = 'reserved', user_id = 'a', purchase_id = $1`,
		`state = 'reserved', user_id = 'a', expires_at = now()`,
		`state = 'sold', user_id = 'a', purchase_id = $1`,
		`state = 'sold', user_id = 'a', sold_at = now()`,
		`state = 'sold', user_id = 'a', purchase_id = $1, sold_at = now(), expires_at = now()`,
		`state = 'sold', purchase_id = $1, sold_at = now()`,
		`state = 'blocked', user_id = 'a'`, `state = 'blocked', hold_id = $1`, `state = 'blocked', block_reason = ''`, `block_reason = 'house'`,
		`expires_at = now()`, `purchase_id = $1`, `sold_at = now()`,
		`rank = (SELECT rank FROM positions WHERE campaign_id = $1 AND layer = 2 AND col = 1)`,
	} {
		if tag, err := db.Exec(t.Context(), `UPDATE positions SET `+change+` WHERE campaign_id = $1 AND layer = 1`, id); err == nil {
			t.Errorf("%s: %v", change, tag)
		}
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
