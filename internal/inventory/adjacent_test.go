package inventory_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"pgregory.net/rapid"

	"triprize/internal/domain/fault"
	"triprize/internal/domain/money"
	"triprize/internal/domain/shape"
	"triprize/internal/inventory"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/property"
	"triprize/internal/testkit/servers"
)

// hall lays out layers with aisles, and returns their campaign.
func hall(t *testing.T, db *pgxpool.Pool, layers ...shape.Layer) uuid.UUID {
	t.Helper()
	id, form := uuid.New(), shape.New(layers)
	prices := make([]money.Amount, len(layers))
	if err := pgx.BeginFunc(t.Context(), db, func(tx pgx.Tx) error {
		servers.Exec(t, tx, `INSERT INTO campaigns (id, name, currency, policies, positions_total) VALUES ($1, 'Hall', 'JPY', '{}', $2)`, id, form.Count())
		for i, l := range layers {
			prices[i] = money.Amount(100 * (i + 1))
			servers.Exec(t, tx, `INSERT INTO layers (campaign_id, layer, price, positions, first_number, aisles) VALUES ($1, $2, $3, $4, $5, coalesce($6::int[], '{}'))`,
				id, i+1, prices[i], l.Positions, form.First(i+1), l.Aisles)
		}
		return inventory.Fill(t.Context(), tx, id, inventory.Plan{Shape: form, Prices: prices})
	}); err != nil {
		t.Fatal(err)
	}
	return id
}

func adjacent(layer, quantity int) inventory.Selection {
	return inventory.Selection{Layer: layer, Quantity: quantity, Adjacent: true}
}

// board is a hall as the rule is written in the guide: which positions are free.
type board struct {
	layers []shape.Layer
	free   map[shape.Position]bool
}

// beside tells whether there is a free position at a column, and no aisle between it and
// its neighbour from.
func (b board) beside(layer, from, column int) bool {
	return b.free[shape.Position{Layer: layer, Column: column}] && !slices.Contains(b.layers[layer-1].Aisles, min(from, column))
}

// run counts the free positions side by side from a column on, in one direction.
func (b board) run(layer, column, step int) (n int) {
	for b.beside(layer, column, column+step) {
		n, column = n+1, column+step
	}
	return n
}

// best lists every place for n positions, and returns the first by the rule.
func (b board) best(layer, n int, avoid map[shape.Position]bool) (best []shape.Position) {
	type place struct{ layer, orphans, distance, column int }
	var places []place
	for l := 1; l <= len(b.layers); l++ {
		for column := 1; column <= b.layers[l-1].Positions && (layer == 0 || layer == l); column++ {
			fits := b.free[shape.Position{Layer: l, Column: column}] && b.run(l, column, 1) >= n-1
			for c := range n {
				fits = fits && !avoid[shape.Position{Layer: l, Column: column + c}]
			}
			if !fits {
				continue
			}
			p := place{layer: l, column: column, distance: 2*column + n - b.layers[l-1].Positions - 2}
			p.distance = max(p.distance, -p.distance)
			if b.run(l, column, -1) == 1 || b.run(l, column+n-1, 1) == 1 {
				p.orphans = 1
			}
			places = append(places, p)
		}
	}
	if len(places) == 0 {
		return nil
	}
	first := slices.MinFunc(places, func(x, y place) int {
		return cmp.Or(x.layer-y.layer, x.orphans-y.orphans, x.distance-y.distance, x.column-y.column)
	})
	for c := range n {
		best = append(best, shape.Position{Layer: first.layer, Column: first.column + c})
	}
	return best
}

// Batches of requests for adjacent, random and chosen positions, of users who must avoid some,
// in halls of any shape with some positions taken: each request for adjacent ones gets those
// that the rule says for what is left, in the order of arrival.
func TestPositionsSideBySideAreThoseOfTheRule(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	property.Check(t, func(rt *rapid.T) {
		b := board{free: make(map[shape.Position]bool)}
		for range rapid.IntRange(1, 4).Draw(rt, "layers") {
			l := shape.Layer{Positions: rapid.IntRange(1, 12).Draw(rt, "positions")}
			for column := 1; column < l.Positions; column++ {
				if rapid.IntRange(0, 4).Draw(rt, "aisle") == 0 {
					l.Aisles = append(l.Aisles, column)
				}
			}
			b.layers = append(b.layers, l)
		}
		form := shape.New(b.layers)
		id := hall(t, db, b.layers...)
		for _, f := range ranked(t, db, id, 0) {
			if b.free[f.Position] = rapid.IntRange(0, 3).Draw(rt, "taken") > 0; !b.free[f.Position] {
				set(t, db, inventory.Sold, uuid.New(), f)
			}
		}
		somewhere := rapid.SampledFrom(slices.Collect(form.All()))
		var requests []inventory.Request
		var avoided []map[shape.Position]bool
		for range rapid.IntRange(1, 8).Draw(rt, "requests") {
			r, avoid := inventory.Request{CampaignID: id, Shape: form}, make(map[shape.Position]bool)
			if rapid.IntRange(0, 3).Draw(rt, "chosen") == 0 {
				r.Positions = []shape.Position{somewhere.Draw(rt, "position")}
			} else {
				r.Selection = random(rapid.IntRange(0, len(b.layers)).Draw(rt, "layer"), rapid.IntRange(1, 5).Draw(rt, "quantity"))
				r.Adjacent = rapid.IntRange(0, 3).Draw(rt, "adjacent") > 0
				for _, p := range rapid.SliceOfN(somewhere, 0, 2).Draw(rt, "avoid") {
					avoid[p] = true
				}
				r.Avoid = len(avoid)
			}
			requests, avoided = append(requests, r), append(avoided, avoid)
		}
		tx := begin(t, db)
		defer func() { _ = tx.Rollback(t.Context()) }() // before the next case
		s, err := inventory.FindStock(t.Context(), tx, requests)
		if err != nil {
			rt.Fatal(err)
		}
		for i, r := range requests {
			avoid := func(p shape.Position) bool { return avoided[i][p] }
			picked, err := s.Select(id, r.Selection, "", avoid)
			if want := b.best(r.Layer, r.Quantity, avoided[i]); r.Adjacent && !slices.Equal(places(picked), want) {
				rt.Fatalf("request %d, %+v: %v, %v; want %v of %+v", i, r, places(picked), err, want, b)
			}
			if code := fault.CodeOf(err); r.Adjacent && code == fault.NoneAvailable {
				if forAll := b.best(r.Layer, r.Quantity, nil) == nil; fault.From(err).ForAll != forAll {
					rt.Fatalf("request %d, %+v is refused for all: %v, want %v; avoided %v of %+v", i, r, !forAll, forAll, avoided[i], b)
				}
			}
			for _, p := range picked {
				if !b.free[p.Position] {
					rt.Fatalf("request %d, %+v got %v, which is not free", i, r, p.Position)
				}
				b.free[p.Position] = false
			}
			s.Sell(picked)
		}
	})
}

func TestNoMoreLayersAreReadThanRequestsCanNeed(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	layers := slices.Repeat([]shape.Layer{{Positions: 10}}, 40)
	id := hall(t, db, layers...)
	for layer := 1; layer <= 3; layer++ { // one is sold out, one has single positions only, one has a single run
		for _, f := range ranked(t, db, id, layer) {
			if layer == 1 || layer == 2 && f.Column%2 == 0 || layer == 3 && f.Column > 4 {
				set(t, db, inventory.Sold, uuid.New(), f)
			}
		}
	}
	read := func(requests ...inventory.Request) (layers []string) {
		found, err := inventory.FindRuns(t.Context(), begin(t, db), inventory.RunsWanted(requests))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range found {
			layers = append(layers, fmt.Sprint(f))
		}
		return layers
	}
	three := inventory.Request{CampaignID: id, Selection: adjacent(0, 3)}
	// Each can spoil two pieces of three; layer 3 has one piece, the others three each.
	if got := read(three); len(got) != 3 || !strings.HasPrefix(got[0], fmt.Sprintf("{{%s 2}", id)) {
		t.Errorf("for one request: %v", got)
	}
	if got := read(three, three, three); len(got) != 4 {
		t.Errorf("for three requests: %v", got)
	}
	if got := read(inventory.Request{CampaignID: id, Selection: adjacent(7, 3)}); len(got) != 1 {
		t.Errorf("for a layer: %v", got)
	}
}

func TestWhyNothingIsSideBySideIsSaid(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := hall(t, db, shape.Layer{Positions: 3}, shape.Layer{Positions: 6, Aisles: []int{4}}, shape.Layer{Positions: 2})
	form := shape.New([]shape.Layer{{Positions: 3}, {Positions: 6, Aisles: []int{4}}, {Positions: 2}})
	for _, f := range ranked(t, db, id, 0) {
		if f.Position == fixture.At(1, 2) || f.Position == fixture.At(2, 2) || f.Layer == 3 {
			sell(t, db, "a", uuid.New(), f)
		}
	}
	kept(t, db, time.Hour, ranked(t, db, id, 1)[0])
	for _, c := range []struct {
		selection inventory.Selection
		code      fault.Code
		text      string
	}{
		{adjacent(0, 3), fault.NoneAvailable, "the longest free run of the campaign has 2"},
		{adjacent(1, 3), fault.NoneAvailable, "the longest free run of layer 1 has 1"},
		{adjacent(2, 4), fault.NoneAvailable, "the longest free run of layer 2 has 2"},
		{adjacent(3, 2), fault.SoldOut, "layer 3"},
	} {
		s := stockOf(t, db, form, 4, inventory.Request{CampaignID: id, Selection: c.selection})
		if _, err := s.Select(id, c.selection, "", nil); fault.CodeOf(err) != c.code || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%+v: %v", c.selection, err)
		}
	}
	two := adjacent(2, 2) // the last of a batch finds the layer sold
	s := stockOf(t, db, form, 4, slices.Repeat([]inventory.Request{{CampaignID: id, Selection: two}, {CampaignID: id, Selection: adjacent(2, 1)}}, 2)...)
	for i, sel := range []inventory.Selection{two, two, adjacent(2, 1), adjacent(2, 1)} {
		picked, err := s.Select(id, sel, "", nil)
		if want := []fault.Code{"", "", "", fault.SoldOut}[i]; fault.CodeOf(err) != want {
			t.Errorf("request %d: %v, want %q", i, err, want)
		}
		s.Sell(picked)
	}
}

func TestMoreThanAreSideBySideIsInvalid(t *testing.T) {
	t.Parallel()
	large := shape.New([]shape.Layer{{Positions: 2}, {Positions: inventory.MaxAdjacentLayer + 1}})
	for layer, valid := range []bool{false, true, false} {
		if err := adjacent(layer, 2).Check(large, ""); (err == nil) != valid || err != nil && fault.From(err).Fields[0].Pointer != "/adjacent" {
			t.Errorf("layer %d of a large campaign: %v", layer, err)
		}
	}
	form := shape.New([]shape.Layer{{Positions: 4}, {Positions: 12, Aisles: []int{3, 8}}, {Positions: 2}})
	for _, c := range []struct {
		selection inventory.Selection
		valid     bool
	}{
		{adjacent(0, 5), true}, {adjacent(0, 6), false}, {random(0, 6), true},
		{adjacent(1, 4), true}, {adjacent(2, 5), true}, {adjacent(2, 6), false}, {adjacent(3, 1), true},
	} {
		err := c.selection.Check(form, "/at")
		if f := fault.From(err); (err == nil) != c.valid || err != nil && (f.Code != fault.InvalidRequest || f.Fields[0].Pointer != "/at/quantity") {
			t.Errorf("%+v: %v", c.selection, err)
		}
	}
}

// A number names a position of one shape. Layer and column name the same in each that has them.
func TestANumberThatNamesAnotherPositionIsRefused(t *testing.T) {
	t.Parallel()
	before := shape.New([]shape.Layer{{Positions: 2}, {Positions: 3}})
	at, _ := before.At(3)
	numbered := inventory.Selection{Positions: []shape.Position{fixture.At(1, 1), at}, Numbers: []int{0, 3}}
	if err := numbered.Check(before, ""); err != nil {
		t.Error(err)
	}
	after := shape.New([]shape.Layer{{Positions: 3}, {Positions: 3}})
	if f := fault.From(numbered.Check(after, "/selection")); f.Code != fault.InvalidRequest || f.Fields[0].Pointer != "/selection/positions/1/number" {
		t.Errorf("%+v", f)
	}
	if err := chosen(numbered.Positions...).Check(after, ""); err != nil {
		t.Error(err)
	}
}

// Who must avoid positions that are free is refused alone: nothing is known of others.
func TestARefusalSaysWhetherItIsForAll(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := hall(t, db, shape.Layer{Positions: 2}, shape.Layer{Positions: 3})
	form := shape.New([]shape.Layer{{Positions: 2}, {Positions: 3}})
	set(t, db, inventory.Sold, uuid.New(), ranked(t, db, id, 1)[0])
	first := func(p shape.Position) bool { return p == shape.Position{Layer: 2, Column: 1} }
	for _, c := range []struct {
		sel    inventory.Selection
		avoid  func(shape.Position) bool
		forAll bool
	}{{adjacent(1, 2), nil, true}, {adjacent(1, 2), first, true}, {adjacent(0, 3), first, false}, {adjacent(2, 3), first, false}} {
		s := stockOf(t, db, form, 1, inventory.Request{CampaignID: id, Selection: c.sel, Avoid: 1})
		if _, err := s.Select(id, c.sel, "", c.avoid); fault.CodeOf(err) != fault.NoneAvailable || fault.From(err).ForAll != c.forAll {
			t.Errorf("%+v: %v, for all: %v", c.sel, err, fault.From(err).ForAll)
		}
	}
}
