package sale_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"triprize/internal/domain/fault"
	"triprize/internal/domain/shape"
	"triprize/internal/inventory"
	"triprize/internal/job"
	"triprize/internal/purchase"
	"triprize/internal/sale"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

var at = fixture.At

// expect fails the test unless a job has the outcome: a code, or empty and it got the positions.
func expect(t *testing.T, what string, j job.Job, want fault.Code, positions ...shape.Position) {
	t.Helper()
	var code fault.Code
	if j.Problem != nil {
		code = j.Problem.Code
	}
	if !j.State.Final() || code != want {
		t.Errorf("%s: %s, %+v; want %q", what, j.State, j.Problem, want)
		return
	}
	if want != "" {
		return
	}
	if got := bought(t, j); !slices.Equal(got, positions) {
		t.Errorf("%s: it got %v, want %v", what, got, positions)
	}
}

func bought(t *testing.T, j job.Job) (positions []shape.Position) {
	t.Helper()
	var result sale.Result
	if err := json.Unmarshal(j.Result, &result); err != nil {
		t.Fatal(err)
	}
	for _, p := range result.Positions {
		positions = append(positions, at(p.Layer, p.Column))
	}
	return positions
}

// expectGone fails the test unless a job was refused for exactly these of its positions.
func expectGone(t *testing.T, what string, j job.Job, places ...int) {
	t.Helper()
	expect(t, what, j, fault.PositionTaken)
	var want, got []string
	for _, i := range places {
		want = append(want, fmt.Sprintf("/selection/positions/%d", i))
	}
	for _, f := range j.Problem.Fields {
		got = append(got, f.Pointer)
	}
	if !slices.Equal(got, want) {
		t.Errorf("%s: %v are named, want %v", what, got, want)
	}
}

func TestChosenAndRandomPurchasesOfOneBatchGoByArrival(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	for range 5 { // ranks are random
		id := fixture.Campaign(t, db, fixture.Draft(4))
		jobs := fixture.Finalize(t, db,
			fixture.ChosenRequest(t, id, "a", at(3, 3), at(3, 1)),
			fixture.PurchaseRequest(t, id, "b", 3, 1),
			fixture.ChosenRequest(t, id, "c", at(2, 1), at(3, 2)), // 3/2 went to b
			fixture.PurchaseRequest(t, id, "d", 3, 1),
			fixture.PurchaseRequest(t, id, "e", 2, 2),
			fixture.ChosenRequest(t, id, "f", at(4, 4), at(2, 2), at(1, 1), at(3, 3)),
			fixture.PurchaseRequest(t, id, "g", 0, 4),
			fixture.ChosenRequest(t, id, "h", free(t, db, id)...),
		)
		expect(t, "a", jobs[0], "", at(3, 1), at(3, 3))
		expect(t, "b", jobs[1], "", at(3, 2))
		expectGone(t, "c", jobs[2], 1)
		expect(t, "d", jobs[3], fault.SoldOut)
		expect(t, "e", jobs[4], "", at(2, 1), at(2, 2))
		expectGone(t, "f", jobs[5], 1, 3)
		if got := bought(t, jobs[6]); len(got) != 4 {
			t.Errorf("g got %v", got)
		}
		expectGone(t, "h", jobs[7], slices.DeleteFunc([]int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, func(i int) bool {
			return slices.Contains(free(t, db, id), []shape.Position{
				at(1, 1), at(2, 1), at(2, 2), at(3, 1), at(3, 2), at(3, 3), at(4, 1), at(4, 2), at(4, 3), at(4, 4)}[i])
		})...)
		fixture.Sound(t, db)
	}
}

func TestOfOverlappingSetsInOneBatchTheFirstIsSold(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := fixture.Campaign(t, db, fixture.Draft(4))
	jobs := fixture.Finalize(t, db,
		fixture.ChosenRequest(t, id, "a", at(4, 1), at(3, 2), at(2, 1)),
		fixture.ChosenRequest(t, id, "b", at(2, 1), at(1, 1), at(3, 2)),
		fixture.ChosenRequest(t, id, "c", at(1, 1), at(4, 2)),
	)
	expect(t, "a", jobs[0], "", at(2, 1), at(3, 2), at(4, 1))
	expectGone(t, "b", jobs[1], 0, 2)
	expect(t, "c", jobs[2], "", at(1, 1), at(4, 2)) // what b did not get is free
	expectGone(t, "in a later batch", fixture.Finalize(t, db, fixture.ChosenRequest(t, id, "d", at(4, 3), at(4, 2)))[0], 1)
	fixture.Sound(t, db)
}

func TestChosenPositionsMustBeInTheTriangle(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := fixture.Campaign(t, db, fixture.Draft(4))
	for _, outside := range []shape.Position{at(5, 1), at(3, 4), at(0, 0), at(-1, 1)} {
		j := fixture.Finalize(t, db, fixture.ChosenRequest(t, id, "a", at(1, 1), outside))[0]
		expect(t, fmt.Sprint(outside), j, fault.InvalidRequest)
		if j.Problem.Fields[0].Pointer != "/selection/positions/1" {
			t.Errorf("%v: %+v", outside, j.Problem.Fields)
		}
	}
	fixture.Sound(t, db)
}

func TestThePurchaseLimitCountsWhatIsHeldAndWhatTheBatchSells(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	draft, limit := fixture.Draft(5), 4
	draft.PurchaseLimit = &limit
	id := fixture.Campaign(t, db, draft)
	service := fixture.Holds(t, db, nil, nil)
	over := fixture.Hold(t, service, fixture.HoldRequest(id, "a", at(5, 1), at(5, 2)))
	held := fixture.Hold(t, service, fixture.HoldRequest(id, "a", at(4, 1), at(4, 2)))
	fixture.EndHold(t, db, over) // two held, and two that count no more
	jobs := fixture.Finalize(t, db,
		fixture.PurchaseRequest(t, id, "a", 3, 1),
		fixture.ChosenRequest(t, id, "a", at(2, 1), at(2, 2)), // a fifth
		fixture.HeldRequest(t, id, "a", held.ID),              // is counted already
		fixture.ChosenRequest(t, id, "a", at(5, 1)),
		fixture.PurchaseRequest(t, id, "a", 0, 1), // a fifth
		fixture.ChosenRequest(t, id, "b", at(2, 1), at(2, 2), at(5, 2), at(1, 1)),
	)
	expect(t, "a third", jobs[0], "", bought(t, jobs[0])...)
	expect(t, "a fifth", jobs[1], fault.PurchaseLimitExceeded)
	expect(t, "what it holds", jobs[2], "", at(4, 1), at(4, 2))
	expect(t, "a fourth", jobs[3], "", at(5, 1))
	expect(t, "a fifth", jobs[4], fault.PurchaseLimitExceeded)
	expect(t, "another's", jobs[5], "", at(1, 1), at(2, 1), at(2, 2), at(5, 2))
	fixture.Sound(t, db)
}

// The order was accepted for a draft. It was published in another shape before the job ran.
func TestANumberOfADraftThatWasReshapedSellsNoOtherPosition(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := fixture.Campaign(t, db, fixture.Draft(4))
	numbered := fixture.Chosen(at(2, 1))
	numbered.Numbers = []int{2}
	moved := fixture.Chosen(at(3, 1), at(2, 2)) // 3/1 is number 4
	moved.Numbers = []int{5, 0}
	order := func(user string, s inventory.Selection) job.Request {
		return fixture.PurchaseRequestOf(t, id, sale.Order{UserID: user, Selection: s, Payment: sale.Payment{Method: purchase.External}})
	}
	jobs := fixture.Finalize(t, db, order("a", moved), order("b", numbered))
	if expect(t, "another position", jobs[0], fault.InvalidRequest); jobs[0].Problem.Fields[0].Pointer != "/selection/positions/0/number" {
		t.Errorf("%+v", jobs[0].Problem)
	}
	expect(t, "the same position", jobs[1], "", at(2, 1))
	fixture.Sound(t, db)
}

func TestAdjacentChosenAndRandomPurchasesOfOneBatchGoByArrival(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	side := func(layer, n int) inventory.Selection {
		s := fixture.Random(layer, n)
		s.Adjacent = true
		return s
	}
	for range 5 { // ranks are random
		id := fixture.Campaign(t, db, fixture.Draft(7))
		order := func(user string, s inventory.Selection) job.Request {
			return fixture.PurchaseRequestOf(t, id, sale.Order{UserID: user, Selection: s, Payment: sale.Payment{Method: purchase.External}})
		}
		jobs := fixture.Finalize(t, db,
			fixture.ChosenRequest(t, id, "a", at(7, 4)),
			order("b", side(7, 3)),
			fixture.ChosenRequest(t, id, "c", at(7, 3)), // went to b
			fixture.PurchaseRequest(t, id, "d", 7, 3),
			order("e", side(7, 1)),
			order("f", side(0, 2)),
			order("g", side(0, 7)), // layer 7 has none any more
		)
		expect(t, "a", jobs[0], "", at(7, 4))
		expect(t, "b", jobs[1], "", at(7, 1), at(7, 2), at(7, 3))
		expectGone(t, "c", jobs[2], 0)
		expect(t, "d", jobs[3], "", at(7, 5), at(7, 6), at(7, 7))
		expect(t, "e", jobs[4], fault.SoldOut)
		expect(t, "f", jobs[5], "", at(2, 1), at(2, 2))
		expect(t, "g", jobs[6], fault.NoneAvailable)
		fixture.Sound(t, db)
	}
}
