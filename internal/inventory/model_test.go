package inventory_test

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"pgregory.net/rapid"

	"triprize/internal/domain/fault"
	"triprize/internal/domain/shape"
	"triprize/internal/inventory"
	"triprize/internal/job"
	"triprize/internal/sale"
	"triprize/internal/testkit/fixture"
)

// model is one campaign and what must be true of it.
type model struct {
	t       *testing.T
	rt      *rapid.T
	db      *pgxpool.Pool
	service *inventory.Holds
	id      uuid.UUID
	base    int
	limit   int // 0: none

	owner map[shape.Position]string // of what is held and sold
	kept  map[shape.Position]*held  // what is held, and by which hold
	holds []*held
}

// held is a hold; its state is the model's.
type held struct {
	inventory.Hold
	state inventory.HoldState
}

// over is how a request about a hold is refused, by the state of the hold.
var over = map[inventory.HoldState]fault.Code{inventory.HoldActive: "", inventory.HoldUsed: fault.StateConflict, inventory.HoldReleased: fault.HoldExpired, inventory.HoldExpired: fault.HoldExpired}

func (m *model) expect(what string, err error, want fault.Code) {
	if got := fault.CodeOf(err); got != want {
		m.rt.Fatalf("%s: %v; want %q", what, err, want)
	}
}

func (m *model) holdsOf(user string) (active []*held) {
	for _, h := range m.holds {
		if h.state == inventory.HoldActive && h.UserID == user {
			active = append(active, h)
		}
	}
	return active
}

func (m *model) heldBy(user string) (n int) {
	for _, h := range m.holdsOf(user) {
		n += len(h.Positions)
	}
	return n
}

// has counts what a user holds and has bought.
func (m *model) has(user string) (n int) {
	for _, owner := range m.owner {
		if owner == user {
			n++
		}
	}
	return n
}

// count counts the positions of a layer, or with layer 0 of all, for which is says so.
func (m *model) count(layer int, is func(p shape.Position) bool) (n int) {
	for p := range fixture.Triangle(m.base).All() {
		if (layer == 0 || p.Layer == layer) && is(p) {
			n++
		}
	}
	return n
}

func (m *model) free(p shape.Position) bool { return m.owner[p] == "" }
func (m *model) sold(p shape.Position) bool { return m.owner[p] != "" && m.kept[p] == nil }

func (m *model) soldOut(layer int) bool {
	return m.count(layer, func(shape.Position) bool { return true }) == m.count(layer, m.sold)
}

// available tells how a request for positions is refused, if nothing else refuses it.
func (m *model) available(sel inventory.Selection) fault.Code {
	if sel.Quantity == 0 {
		if slices.ContainsFunc(sel.Positions, func(p shape.Position) bool { return !m.free(p) }) {
			return fault.PositionTaken
		}
		return ""
	}
	switch {
	case !sel.Adjacent && m.count(sel.Layer, m.free) >= sel.Quantity, sel.Adjacent && m.count(sel.Layer, func(p shape.Position) bool { return m.freeFrom(p, sel.Quantity) }) > 0:
		return ""
	case m.soldOut(0) || m.soldOut(sel.Layer):
		return fault.SoldOut
	default:
		return fault.NoneAvailable
	}
}

// freeFrom tells whether n positions side by side are free from p on.
func (m *model) freeFrom(p shape.Position, n int) bool {
	for c := range n {
		if at := (shape.Position{Layer: p.Layer, Column: p.Column + c}); at.Column > at.Layer || !m.free(at) {
			return false
		}
	}
	return true
}

// take checks the positions that a user got against what it asked for, and gives them
// to it.
func (m *model) take(what string, got []shape.Position, sel inventory.Selection, user string, by *held) {
	for i, p := range got {
		if !m.free(p) || sel.Layer > 0 && p.Layer != sel.Layer || sel.Quantity == 0 && !slices.Contains(sel.Positions, p) ||
			sel.Adjacent && p != (shape.Position{Layer: got[0].Layer, Column: got[0].Column + i}) {
			m.rt.Errorf("%s: %s got %v", what, user, p)
		}
		m.owner[p] = user
		if by != nil {
			m.kept[p] = by
		}
	}
	if len(got) != sel.Size() {
		m.rt.Errorf("%s: %s got %v", what, user, got)
	}
}

func (m *model) letGo(h *held, state inventory.HoldState) {
	h.state = state
	for _, p := range h.Positions {
		delete(m.kept, p.Position)
		delete(m.owner, p.Position)
	}
}

func (m *model) bought(j job.Job, user string, sel inventory.Selection) {
	n := sel.Size()
	var want fault.Code
	switch {
	case sel.Layer > 0 && n > sel.Layer:
		want = fault.InvalidRequest
	case m.limit > 0 && m.has(user)+n > m.limit:
		want = fault.PurchaseLimitExceeded
	default:
		want = m.available(sel)
	}
	if m.expect("buy", problem(j), want); j.Problem == nil {
		m.take("buy", boughtPlaces(m.t, j), sel, user, nil)
	}
}

func (m *model) boughtHold(j job.Job, user string, h *held) {
	want := over[h.state]
	if user != h.UserID {
		want = fault.NotFound
	}
	if m.expect("buy a hold", problem(j), want); j.Problem == nil {
		if got := boughtPlaces(m.t, j); !slices.Equal(got, placesOf(h.Hold)) {
			m.rt.Errorf("of %v it bought %v", placesOf(h.Hold), got)
		}
		h.state = inventory.HoldUsed
		for _, p := range placesOf(h.Hold) {
			delete(m.kept, p)
		}
	}
}

func boughtPlaces(t *testing.T, j job.Job) (places []shape.Position) {
	t.Helper()
	var result sale.Result
	if err := json.Unmarshal(j.Result, &result); err != nil {
		t.Fatal(err)
	}
	for _, p := range result.Positions {
		places = append(places, shape.Position{Layer: p.Layer, Column: p.Column})
	}
	return places
}
