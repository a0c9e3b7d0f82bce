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

// stockOf finds the stock of a campaign for requests.
func stockOf(t *testing.T, db *pgxpool.Pool, form shape.Shape, gone int, requests ...inventory.Request) *inventory.Stock {
	t.Helper()
	for i := range requests {
		requests[i].Shape, requests[i].Gone = form, gone
	}
	s, err := inventory.FindStock(t.Context(), begin(t, db), requests)
	servers.NoError(t, err)
	return s
}

func random(layer, quantity int) inventory.Selection {
	return inventory.Selection{Layer: layer, Quantity: quantity}
}

func chosen(positions ...shape.Position) inventory.Selection {
	return inventory.Selection{Positions: positions}
}

func places(picked []*inventory.FreePosition) (at []shape.Position) {
	for _, p := range picked {
		at = append(at, p.Position)
	}
	return at
}

func adjacent(layer, quantity int) inventory.Selection {
	return inventory.Selection{Layer: layer, Quantity: quantity, Adjacent: true}
}

func TestASelectionIsCheckedAgainstTheShapeOfItsCampaign(t *testing.T) {
	t.Parallel()
	triangle, hall := fixture.Triangle(4), shape.New([]shape.Layer{{Positions: 12}, {Positions: 3}})
	aisles := shape.New([]shape.Layer{{Positions: 4}, {Positions: 12, Aisles: []int{3, 8}}, {Positions: 2}})
	large := shape.New([]shape.Layer{{Positions: 2}, {Positions: inventory.MaxAdjacentLayer + 1}})
	named, _ := hall.At(13) // a number names a position of one shape; layer and column name the same in each that has them
	numbered := inventory.Selection{Positions: []shape.Position{at(1, 1), named}, Numbers: []int{0, 13}}
	for _, c := range []struct {
		of        shape.Shape
		selection inventory.Selection
		pointer   string // of what is wrong; empty: nothing
	}{
		{triangle, chosen(at(1, 1), at(4, 4)), ""},
		{triangle, chosen(at(1, 1), at(5, 1)), "/at/positions/1"},
		{triangle, chosen(at(3, 4)), "/at/positions/0"},
		{triangle, chosen(at(0, 0)), "/at/positions/0"},
		{triangle, random(0, 10), ""},
		{triangle, random(0, 11), "/at/quantity"},
		{triangle, random(4, 4), ""},
		{triangle, random(4, 5), "/at/quantity"},
		{triangle, random(5, 1), "/at/layer"},
		{triangle, random(-1, 1), "/at/layer"},
		{triangle, random(0, 0), "/at/quantity"},
		{triangle, random(0, -1), "/at/quantity"},
		{hall, chosen(at(1, 12), at(2, 3)), ""},
		{hall, chosen(at(1, 13)), "/at/positions/0"},
		{hall, chosen(at(1, 1), at(2, 4)), "/at/positions/1"},
		{hall, chosen(at(3, 1)), "/at/positions/0"},
		{hall, random(1, 12), ""},
		{hall, random(1, 13), "/at/quantity"},
		{hall, random(2, 4), "/at/quantity"},
		{hall, random(3, 1), "/at/layer"},
		{hall, random(0, 15), ""},
		{hall, random(0, 16), "/at/quantity"},
		{hall, numbered, ""},
		{shape.New([]shape.Layer{{Positions: 13}, {Positions: 3}}), numbered, "/at/positions/1/number"},
		{shape.New([]shape.Layer{{Positions: 13}, {Positions: 3}}), chosen(numbered.Positions...), ""},
		{aisles, adjacent(0, 5), ""},
		{aisles, adjacent(0, 6), "/at/quantity"},
		{aisles, random(0, 6), ""},
		{aisles, adjacent(1, 4), ""},
		{aisles, adjacent(2, 5), ""},
		{aisles, adjacent(2, 6), "/at/quantity"},
		{aisles, adjacent(3, 1), ""},
		{large, adjacent(0, 2), "/at/adjacent"},
		{large, adjacent(1, 2), ""},
		{large, adjacent(2, 2), "/at/adjacent"},
	} {
		err := c.selection.Check(c.of, "/at")
		if c.pointer == "" && err == nil {
			continue
		}
		if f := fault.From(err); err == nil || f.Code != fault.InvalidRequest || len(f.Fields) != 1 || f.Fields[0].Pointer != c.pointer {
			t.Errorf("%+v: %v, want %q", c.selection, err, c.pointer)
		}
	}
}

func TestWhyNothingCanBeHadIsSaid(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	layers := []shape.Layer{{Positions: 3}, {Positions: 6, Aisles: []int{4}}, {Positions: 2}}
	id, form := hall(t, db, layers...), shape.New(layers)
	for _, f := range ranked(t, db, id, 0) {
		switch {
		case f.Position == at(1, 2) || f.Position == at(2, 2) || f.Layer == 3:
			set(t, db, inventory.Sold, uuid.New(), f)
		case f.Position == at(1, 1):
			kept(t, db, time.Hour, f)
		}
	} // free are 1/3, 2/1, 2/3, 2/4, 2/5, 2/6
	first := func(p shape.Position) bool { return p == at(2, 5) }
	for _, c := range []struct {
		selection inventory.Selection
		gone      int
		avoid     func(shape.Position) bool
		code      fault.Code
		text      string
	}{
		{random(3, 1), 4, nil, fault.SoldOut, "layer 3"},
		{random(1, 2), 4, nil, fault.NoneAvailable, "requested 2, but"},
		{random(0, 7), 4, nil, fault.NoneAvailable, "requested 7, but"},
		{random(0, 100), 11, nil, fault.SoldOut, "all positions on sale"},
		{adjacent(0, 3), 4, nil, fault.NoneAvailable, "the longest free run of the campaign has 2"},
		{adjacent(1, 3), 4, nil, fault.NoneAvailable, "the longest free run of layer 1 has 1"},
		{adjacent(2, 4), 4, nil, fault.NoneAvailable, "the longest free run of layer 2 has 2"},
		{adjacent(3, 2), 4, nil, fault.SoldOut, "layer 3"},
		{adjacent(1, 2), 4, first, fault.NoneAvailable, ""},
		{adjacent(2, 2), 4, func(p shape.Position) bool { return p.Layer == 2 }, fault.NoneAvailable, ""},
		{adjacent(0, 2), 4, func(p shape.Position) bool { return p.Layer == 2 }, fault.NoneAvailable, ""},
	} {
		t.Run(fmt.Sprint(c.selection), func(t *testing.T) { // it lets go of what it has found
			s := stockOf(t, db, form, c.gone, inventory.Request{CampaignID: id, Selection: c.selection, Avoid: 6})
			if _, err := s.Select(id, c.selection, "", c.avoid); fault.CodeOf(err) != c.code || !strings.Contains(err.Error(), c.text) {
				t.Error(err)
			}
		})
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
		servers.NoError(t, err)
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

// The transactions do not lock the campaign: the checks on positions must be enough.
func TestWhatOneHasFoundAnotherPassesOver(t *testing.T) {
	db, id, free := filled(t, 4)
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
	servers.NoError(t, first.Rollback(t.Context()))
	if got := peek(t, db, needs(id, 0, 10)); len(got) != 6 {
		t.Errorf("after the first's rollback: %+v", got)
	}
}

// The same, of two that found them one after the other: the conditions of the UPDATE must be enough.
func TestOfTwoThatFoundTheSamePositionsOneSells(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	found := pointers(peek(t, db, needs(fill(t, db, 4), 0, 4)))
	sell := func(b *pgx.Batch) {
		inventory.QueueSell(b, []inventory.Allocation{{UserID: "holder", PurchaseID: uuid.New(), Picked: found}})
	}
	var b pgx.Batch
	sell(&b)
	first := begin(t, db)
	servers.NoError(t, first.SendBatch(t.Context(), &b).Close())
	sold := make(chan bool, 1)
	go func() { sold <- change(t, db, sell) }()
	servers.AwaitBlocked(t, db, 1)
	servers.NoError(t, first.Commit(t.Context()))
	if <-sold {
		t.Error("both have sold them")
	}
}
