package inventory_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"pgregory.net/rapid"

	"triprize/internal/domain/fault"
	"triprize/internal/domain/shape"
	"triprize/internal/inventory"
	"triprize/internal/job"
	"triprize/internal/platform/config"
	"triprize/internal/purchase"
	"triprize/internal/sale"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/property"
	"triprize/internal/testkit/servers"
)

// Random histories of one small campaign: holds of chosen, random and adjacent positions,
// extensions, releases, holds whose time is over and sweeps, and batches of
// purchases, chosen, random, adjacent and from holds, by three users. A model in memory
// says what must come of each step.
//
// After every step:
//
//   - each request got what the model says, with the code it says;
//   - every position has the state and the owner that the model gives it, so no
//     position has two, and what an expired hold kept is free, swept or not;
//   - every hold is what the model says it is, and keeps its positions in its record;
//   - no user owns and holds more than the limits.
//
// And at the end everything that package audit checks: counters equal rows, a
// used hold is its purchase's items, an ended hold keeps nothing.
//
// Cancellations of purchases belong here as one more step.
func TestRandomHistoriesOfHoldsFollowTheModel(t *testing.T) {
	t.Parallel()
	db, clock := servers.DBWithClock(t)
	service := fixture.Holds(t, db, nil, func(s *config.Holds) { s.MaxPerUser, s.MaxPositionsPerUser = maxHolds, maxHeld })
	property.Check(t, func(rt *rapid.T) {
		m := &model{t: t, rt: rt, db: db, clock: clock, service: service, base: rapid.IntRange(3, 4).Draw(rt, "base"), owner: make(map[shape.Position]string), kept: make(map[shape.Position]*held)}
		draft := fixture.Draft(m.base)
		if m.limit = rapid.SampledFrom([]int{0, 2, 4}).Draw(rt, "limit"); m.limit > 0 {
			draft.PurchaseLimit = &m.limit
		}
		m.id = fixture.Campaign(t, db, draft)
		for range rapid.IntRange(8, 40).Draw(rt, "steps") {
			rapid.SampledFrom([]step{{"hold", m.hold}, {"hold", m.hold}, {"buy", m.buy}, {"buy", m.buy}, {"extend", m.extend},
				{"release", m.release}, {"end", m.end}, {"end", m.end}, {"sweep", m.sweep}}).Draw(rt, "step").do()
			m.check()
		}
		fixture.Sound(t, db)
	})
}

const maxHolds, maxHeld = 2, 4

type step struct {
	name string
	do   func()
}

func (s step) String() string { return s.name }

func (m *model) user() string { return rapid.SampledFrom([]string{"a", "b", "c"}).Draw(m.rt, "user") }

// choose draws up to three distinct positions.
func (m *model) choose() []shape.Position {
	return rapid.SliceOfNDistinct(rapid.SampledFrom(slices.Collect(fixture.Triangle(m.base).All())), 1, 3, rapid.ID[shape.Position]).Draw(m.rt, "positions")
}

// some draws a number of positions, random or side by side.
func (m *model) some() inventory.Selection {
	return inventory.Selection{Layer: rapid.IntRange(0, m.base).Draw(m.rt, "layer"), Quantity: rapid.IntRange(1, 3).Draw(m.rt, "quantity"), Adjacent: rapid.Bool().Draw(m.rt, "adjacent")}
}

func (m *model) hold() {
	request := fixture.HoldRequest(m.id, m.user())
	if rapid.Bool().Draw(m.rt, "chosen") {
		request.Positions = m.choose()
	} else {
		request.Selection = m.some()
	}
	n, user := max(request.Quantity, len(request.Positions)), request.Job.UserID
	var want fault.Code
	switch mine := m.holdsOf(user); {
	case request.Layer > 0 && n > request.Layer:
		want = fault.InvalidRequest
	case m.soldOut(0):
		want = fault.SoldOut
	case len(mine) >= maxHolds || m.heldBy(user)+n > maxHeld:
		want = fault.HoldLimitExceeded
	case m.limit > 0 && m.has(user)+n > m.limit:
		want = fault.PurchaseLimitExceeded
	default:
		want = m.available(request.Selection)
	}
	made, err := fixture.TryHold(m.t, m.service, request)
	if m.expect("hold", err, want); err != nil {
		return
	}
	h := &held{Hold: made, state: inventory.HoldActive}
	m.take("hold", placesOf(made), request.Selection, user, h)
	m.holds = append(m.holds, h)
}

// any draws a hold, over or not; nil when there is none.
func (m *model) any() *held {
	if len(m.holds) == 0 {
		return nil
	}
	return rapid.SampledFrom(m.holds).Draw(m.rt, "hold")
}

func (m *model) extend() {
	h := m.any()
	if h == nil {
		return
	}
	want := over[h.state]
	if h.state == inventory.HoldActive && h.Extensions == 1 {
		want = fault.HoldLimitExceeded
	}
	extended, err := extendAt(m.t, m.service, h.ID, 20*time.Minute)
	if m.expect("extend", err, want); err == nil {
		if !extended.ExpiresAt.Equal(h.ExpiresAt.Add(20 * time.Minute)) {
			m.t.Errorf("extended from %s to %s", h.ExpiresAt, extended.ExpiresAt)
		}
		h.Extensions, h.ExpiresAt = extended.Extensions, extended.ExpiresAt
	}
}

func (m *model) release() {
	h := m.any()
	if h == nil {
		return
	}
	want := over[h.state]
	if h.state == inventory.HoldReleased {
		want = ""
	}
	released, err := releaseAt(m.t, m.service, h.ID)
	m.expect("release", err, want)
	if released != (h.state == inventory.HoldActive) {
		m.rt.Errorf("released: %t, and it was %s", released, h.state)
	}
	if released {
		m.letGo(h, inventory.HoldReleased)
		m.clock.MoveOn(11 * time.Second) // its user may hold the positions again
	}
}

// end lets the time of a hold be over. No sweep runs.
func (m *model) end() {
	if h := m.any(); h != nil && h.state == inventory.HoldActive {
		fixture.EndHold(m.t, m.db, h.Hold)
		m.letGo(h, inventory.HoldExpired)
	}
}

func (m *model) sweep() {
	if _, _, err := inventory.ExpireHolds(m.t.Context(), m.db, m.id, rapid.IntRange(1, 2).Draw(m.rt, "limit")); err != nil {
		m.rt.Errorf("sweep: %v", err)
	}
}

// buy completes one batch of orders, in the order in which they are drawn.
func (m *model) buy() {
	var requests []job.Request
	var completed []func(j job.Job)
	for range rapid.IntRange(1, 4).Draw(m.rt, "orders") {
		user := m.user()
		switch h := m.any(); rapid.SampledFrom([]string{"random", "chosen", "hold"}).Draw(m.rt, "way") {
		case "hold":
			if h == nil {
				continue
			}
			requests = append(requests, fixture.HeldRequest(m.t, m.id, user, h.ID))
			completed = append(completed, func(j job.Job) { m.boughtHold(j, user, h) })
		case "chosen":
			positions := m.choose()
			requests = append(requests, fixture.ChosenRequest(m.t, m.id, user, positions...))
			completed = append(completed, func(j job.Job) { m.bought(j, user, inventory.Selection{Positions: positions}) })
		default:
			some := m.some()
			requests = append(requests, fixture.PurchaseRequestOf(m.t, m.id, sale.Order{UserID: user, Selection: some, Payment: sale.Payment{Method: purchase.External}}))
			completed = append(completed, func(j job.Job) { m.bought(j, user, some) })
		}
	}
	if m.soldOut(0) {
		m.refuse(requests)
	} else if len(requests) > 0 {
		for i, j := range fixture.Complete(m.t, m.db, requests...) {
			completed[i](j)
		}
	}
}

// refuse wants no jobs of orders that come when everything is sold.
func (m *model) refuse(requests []job.Request) {
	accepted, messages, err := job.Accept(m.t.Context(), m.db, requests)
	if err != nil || len(messages) > 0 {
		m.rt.Fatalf("%d messages, %v", len(messages), err)
	}
	for _, one := range accepted {
		if !errors.Is(one.Err, job.ErrClosed) {
			m.rt.Errorf("a job when everything is sold: %+v", one.Job)
		}
	}
}

func (m *model) check() {
	all, err := inventory.All(m.t.Context(), m.db, m.id)
	if err != nil {
		m.rt.Fatal(err)
	}
	for _, p := range all {
		want := inventory.Available
		if m.kept[p.Position] != nil {
			want = inventory.Held
		} else if m.owner[p.Position] != "" {
			want = inventory.Sold
		}
		if owner := m.owner[p.Position]; p.State != want || (p.UserID == nil) != (owner == "") || p.UserID != nil && *p.UserID != owner {
			m.rt.Errorf("position %v is %+v; want %s of %q", p.Position, p, want, owner)
		}
	}
	for _, h := range m.holds {
		if now := fixture.HoldNow(m.t, m.db, h.ID); now.State != h.state || now.Extensions != h.Extensions || fmt.Sprint(now.Positions) != fmt.Sprint(h.Positions) {
			m.rt.Errorf("a hold is %+v; want %s, %+v", now, h.state, h.Hold)
		}
	}
	for _, user := range []string{"a", "b", "c"} {
		if m.limit > 0 && m.has(user) > m.limit || len(m.holdsOf(user)) > maxHolds || m.heldBy(user) > maxHeld {
			m.rt.Errorf("%s has %d, %d of it in %d holds", user, m.has(user), m.heldBy(user), len(m.holdsOf(user)))
		}
	}
}

// model is one campaign and what must be true of it.
type model struct {
	t       *testing.T
	rt      *rapid.T
	db      *pgxpool.Pool
	clock   *servers.Clock
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
	servers.NoError(t, json.Unmarshal(j.Result, &result))
	for _, p := range result.Positions {
		places = append(places, shape.Position{Layer: p.Layer, Column: p.Column})
	}
	return places
}
