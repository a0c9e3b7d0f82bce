package inventory_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"triprize/internal/domain/fault"
	"triprize/internal/domain/shape"
	"triprize/internal/inventory"
	"triprize/internal/platform/postgres"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

// stockOf finds the stock of a campaign for requests.
func stockOf(t *testing.T, db *pgxpool.Pool, form shape.Shape, gone int, requests ...inventory.Request) *inventory.Stock {
	t.Helper()
	for i := range requests {
		requests[i].Shape, requests[i].Gone = form, gone
	}
	s, err := inventory.FindStock(t.Context(), begin(t, db), requests)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func random(layer, quantity int) inventory.Selection {
	return inventory.Selection{Layer: layer, Quantity: quantity}
}

func chosen(positions ...shape.Position) inventory.Selection {
	return inventory.Selection{Positions: positions}
}

func places(picked []*inventory.Free) (at []shape.Position) {
	for _, p := range picked {
		at = append(at, p.Position)
	}
	return at
}

func TestWhatCanNeverBeIsInvalid(t *testing.T) {
	t.Parallel()
	at := fixture.At
	for _, c := range []struct {
		selection inventory.Selection
		pointer   string // of what is wrong; empty: nothing
	}{
		{chosen(at(1, 1), at(4, 4)), ""},
		{chosen(at(1, 1), at(5, 1)), "/at/positions/1"},
		{chosen(at(3, 4)), "/at/positions/0"},
		{chosen(at(0, 0)), "/at/positions/0"},
		{random(0, 10), ""},
		{random(0, 11), "/at/quantity"},
		{random(4, 4), ""},
		{random(4, 5), "/at/quantity"},
		{random(5, 1), "/at/layer"},
		{random(-1, 1), "/at/layer"},
		{random(0, 0), "/at/quantity"},
		{random(0, -1), "/at/quantity"},
	} {
		err := c.selection.Check(fixture.Triangle(4), "/at")
		if c.pointer == "" {
			if err != nil {
				t.Errorf("%+v: %v", c.selection, err)
			}
			continue
		}
		if f := fault.From(err); f.Code != fault.InvalidRequest || len(f.Fields) != 1 || f.Fields[0].Pointer != c.pointer {
			t.Errorf("%+v: %v, %+v", c.selection, err, f.Fields)
		}
	}
}

func TestASelectionIsCheckedAgainstTheLayersOfItsCampaign(t *testing.T) {
	t.Parallel()
	at, hall := fixture.At, shape.New([]shape.Layer{{Positions: 12}, {Positions: 3}})
	for _, c := range []struct {
		selection inventory.Selection
		pointer   string
	}{
		{chosen(at(1, 12), at(2, 3)), ""},
		{chosen(at(1, 13)), "/at/positions/0"},
		{chosen(at(1, 1), at(2, 4)), "/at/positions/1"},
		{chosen(at(3, 1)), "/at/positions/0"},
		{random(1, 12), ""},
		{random(1, 13), "/at/quantity"},
		{random(2, 4), "/at/quantity"},
		{random(3, 1), "/at/layer"},
		{random(0, 15), ""},
		{random(0, 16), "/at/quantity"},
	} {
		err := c.selection.Check(hall, "/at")
		if c.pointer == "" && err == nil {
			continue
		}
		if f := fault.From(err); err == nil || f.Code != fault.InvalidRequest || len(f.Fields) != 1 || f.Fields[0].Pointer != c.pointer {
			t.Errorf("%+v: %v", c.selection, err)
		}
	}
}

func TestAStockGivesEachPositionOnce(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := fill(t, db, 6)
	free := ranked(t, db, id, 0)
	wish := free[3].Position
	requests := []inventory.Request{{CampaignID: id, Selection: random(0, 3)}, {CampaignID: id, Selection: chosen(wish)}, {CampaignID: id, Selection: random(6, 2)}} // at most 4 of the 6 in layer 6 are gone by then
	s := stockOf(t, db, fixture.Triangle(6), 0, requests...)
	got := make(map[shape.Position]bool)
	for i, r := range requests {
		picked, err := s.Select(id, r.Selection, "", nil)
		if err != nil || len(picked) != r.Size() {
			t.Fatalf("request %d: %v, %v", i, picked, err)
		}
		for _, p := range picked {
			if got[p.Position] || r.Layer != 0 && p.Layer != r.Layer {
				t.Errorf("request %d got %+v", i, p.Position)
			}
			got[p.Position] = true
		}
		s.Hold(picked)
	}
	if !got[free[0].Position] || !got[free[1].Position] || !got[free[2].Position] {
		t.Errorf("the first by rank were not given first: %v", got)
	}
	_, err := s.Select(id, chosen(wish, fixture.At(1, 1)), "/selection", nil)
	if f := fault.From(err); f.Code != fault.PositionTaken || f.Fields[0].Pointer != "/selection/positions/0" {
		t.Errorf("what was given: %v, %+v", err, f.Fields)
	}
}

func TestRandomPositionsAvoidWhatTheyMustAndComeInOrder(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := fill(t, db, 4)
	free := ranked(t, db, id, 0)
	first := free[0].Position
	r := inventory.Request{CampaignID: id, Selection: random(0, 4), Avoid: 1}
	s := stockOf(t, db, fixture.Triangle(4), 0, r)
	picked, err := s.Select(id, r.Selection, "", func(p shape.Position) bool { return p == first })
	if err != nil || slices.Contains(places(picked), first) || len(picked) != 4 {
		t.Fatalf("%v, %v", places(picked), err)
	}
	for i := 1; i < len(picked); i++ {
		if !picked[i-1].Before(picked[i].Position) {
			t.Errorf("not by layer and column: %v", places(picked))
		}
	}
}

func TestWhyNothingCanBeHadIsSaid(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := fill(t, db, 3)
	layer2 := ranked(t, db, id, 2)
	sell(t, db, "a", uuid.New(), layer2...)
	kept(t, db, time.Hour, ranked(t, db, id, 3)[0])
	requests := []inventory.Request{{CampaignID: id, Selection: random(2, 1)}, {CampaignID: id, Selection: random(3, 3)}, {CampaignID: id, Selection: random(0, 1)}}
	s := stockOf(t, db, fixture.Triangle(3), 2, requests...)
	expect := func(what string, sel inventory.Selection, code fault.Code, text string) {
		t.Helper()
		_, err := s.Select(id, sel, "", nil)
		if fault.CodeOf(err) != code || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v", what, err)
		}
	}
	expect("of a layer that is sold", random(2, 1), fault.SoldOut, "layer 2")
	expect("of a layer with a held position", random(3, 3), fault.NoneAvailable, "requested 3, but")
	var rest []*inventory.Free
	for range 3 {
		picked, err := s.Select(id, random(0, 1), "", nil)
		if err != nil {
			t.Fatal(err)
		}
		s.Sell(picked)
		rest = append(rest, picked...)
	}
	expect("with one held", random(0, 1), fault.NoneAvailable, "requested 1, but")
	if len(rest) != 3 {
		t.Error(rest)
	}
	full := stockOf(t, db, fixture.Triangle(3), 6, requests...)
	if _, err := full.Select(id, random(0, 100), "", nil); fault.CodeOf(err) != fault.SoldOut || !strings.Contains(err.Error(), "all positions on sale") {
		t.Errorf("of a campaign that is sold: %v", err)
	}
}

func TestAHoldHasExactlyWhatItKeeps(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := fill(t, db, 4)
	free := ranked(t, db, id, 0)
	h := kept(t, db, time.Hour, free[:3]...)
	request := inventory.Request{CampaignID: id, Hold: h.Positions}
	picked, err := stockOf(t, db, fixture.Triangle(4), 0, request).OfHold(h)
	if err != nil || len(picked) != 3 {
		t.Fatalf("%v, %v", picked, err)
	}
	set(t, db, inventory.Held, uuid.New(), free[1])
	if _, err := stockOf(t, db, fixture.Triangle(4), 0, request).OfHold(h); !errors.Is(err, postgres.ErrRows) {
		t.Errorf("one of them is kept by another: %v", err)
	}
}
