package inventory_test

import (
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"triprize/internal/campaign"
	"triprize/internal/domain/fault"
	"triprize/internal/inventory"
	"triprize/internal/sale"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

func TestAnotherUserHoldsAndBuysWhatAnExpiredHoldKept(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id, service := fixture.Campaign(t, db, fixture.Draft(4)), fixture.Holds(t, db, nil, nil)
	late := fixture.Hold(t, service, fixture.HoldRequest(id, "late", at(3, 1), at(3, 2)))
	fixture.EndHold(t, db, late) // and no sweep
	expectCounts(t, db, id, 0, 0)
	if h := fixture.HoldNow(t, db, late.ID); h.State != inventory.HoldExpired || h.EndedAt != nil {
		t.Errorf("before a request has met it, it is %+v", h)
	}

	mine := fixture.Hold(t, service, fixture.HoldRequest(id, "next", at(3, 2)))
	if h := fixture.HoldNow(t, db, late.ID); h.State != inventory.HoldExpired || h.EndedAt == nil {
		t.Errorf("after its position was taken over it is %+v", h)
	}
	_, err := extend(t, db, late.ID, time.Minute, 1)
	expectCode(t, "a late extension", err, fault.HoldExpired)
	released, err := release(t, db, late.ID)
	expectCode(t, "a late release", err, fault.HoldExpired)
	if released {
		t.Error("a late release found something")
	}
	jobs := fixture.Finalize(t, db, fixture.HeldRequest(t, id, "late", late.ID), fixture.HeldRequest(t, id, "next", mine.ID), fixture.ChosenRequest(t, id, "third", at(3, 1)))
	if jobs[0].Problem == nil || jobs[0].Problem.Code != fault.HoldExpired || jobs[1].Problem != nil || jobs[2].Problem != nil {
		t.Errorf("late: %+v, next: %+v, third: %+v", jobs[0].Problem, jobs[1].Problem, jobs[2].Problem)
	}
	expectCounts(t, db, id, 0, 2)
	if p, err := inventory.Get(t.Context(), db, id, at(3, 2)); err != nil || *p.UserID != "next" {
		t.Errorf("its position is %+v, %v", p, err)
	}
	fixture.Sound(t, db)
}

// No sweep has run: the next request meets the expired hold itself.
func TestAnExpiredHoldBlocksNobody(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	service := fixture.Holds(t, db, nil, nil)
	for what, come := range map[string]func(id uuid.UUID, h inventory.Hold) error{
		"hold chosen": func(id uuid.UUID, _ inventory.Hold) error {
			_, err := fixture.TryHold(t, service, fixture.HoldRequest(id, "b", at(2, 1), at(2, 2)))
			return err
		},
		"hold all of the layer": func(id uuid.UUID, _ inventory.Hold) error {
			_, err := fixture.TryHold(t, service, fixture.HoldAnyRequest(id, "b", 2, 2))
			return err
		},
		"hold everything": func(id uuid.UUID, _ inventory.Hold) error {
			_, err := fixture.TryHold(t, service, fixture.HoldAnyRequest(id, "b", 0, 10))
			return err
		},
		"buy chosen": func(id uuid.UUID, _ inventory.Hold) error {
			return problem(fixture.Finalize(t, db, fixture.ChosenRequest(t, id, "b", at(2, 2)))[0])
		},
		"buy the layer": func(id uuid.UUID, _ inventory.Hold) error {
			return problem(fixture.Finalize(t, db, fixture.PurchaseRequest(t, id, "b", 2, 2))[0])
		},
		"buy everything": func(id uuid.UUID, _ inventory.Hold) error {
			return problem(fixture.Finalize(t, db, fixture.PurchaseRequest(t, id, "b", 0, 10))[0])
		},
	} {
		id := fixture.Campaign(t, db, fixture.Draft(4))
		late := fixture.Hold(t, service, fixture.HoldRequest(id, "a", at(2, 1), at(2, 2)))
		fixture.EndHold(t, db, late)
		if err := come(id, late); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if h := fixture.HoldNow(t, db, late.ID); h.State != inventory.HoldExpired || h.EndedAt == nil {
			t.Errorf("%s: the hold is %+v", what, h)
		}
		fixture.Sound(t, db)
	}
}

func TestExpireIsBoundedAndLeavesWhatIsNotDue(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id, other := fixture.Campaign(t, db, fixture.Draft(6)), fixture.Campaign(t, db, fixture.Draft(4))
	service := fixture.Holds(t, db, nil, nil)
	for _, user := range []string{"a", "b", "c"} {
		fixture.EndHold(t, db, fixture.Hold(t, service, fixture.HoldAnyRequest(other, user, 0, 1)))
	}
	var all []inventory.Hold // made before any of them is over: a hold made would end it
	for _, user := range []string{"a", "b", "c", "d"} {
		all = append(all, fixture.Hold(t, service, fixture.HoldAnyRequest(id, user, 0, 3)))
	}
	for _, h := range all[:3] {
		fixture.EndHold(t, db, h)
	}
	for _, want := range [][2]int{{2, 6}, {1, 3}, {0, 0}} {
		holds, positions, err := inventory.ExpireHolds(t.Context(), db, id, 2)
		if err != nil || holds != want[0] || positions != want[1] {
			t.Errorf("%d holds and %d positions, %v; want %v", holds, positions, err, want)
		}
		fixture.Sound(t, db)
	}
	if h := fixture.HoldNow(t, db, all[3].ID); h.State != inventory.HoldActive {
		t.Errorf("one that is not due is %+v", h)
	}
	if n, _, err := inventory.ExpireHolds(t.Context(), db, other, 10); n == 0 || err != nil {
		t.Errorf("in the other campaign: %d, %v", n, err)
	}
	if _, _, err := inventory.ExpireHolds(t.Context(), db, uuid.New(), 10); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("of no campaign: %v", err)
	}
}

// All four wait for the campaign, in several orders. The hold is over when they get
// it, or it is not.
func TestAtTheDeadlineOneOfReleasePurchaseAndSweepWins(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	service, other := fixture.Holds(t, db, nil, nil), fixture.Holds(t, db, nil, nil) // of one, both changes would share a transaction
	service.SetRowWait(servers.Patience, servers.Patience)
	other.SetRowWait(servers.Patience, servers.Patience)
	id := fixture.Campaign(t, db, fixture.Draft(8))
	for round := range 8 {
		over := round%2 == 1
		h := fixture.Hold(t, service, fixture.HoldAnyRequest(id, "a", 0, 2))
		refs := fixture.Accept(t, db, fixture.HeldRequest(t, id, "a", h.ID))
		race := []struct {
			ends inventory.HoldState // what the hold is when this wins
			do   func() (won bool, err error)
		}{
			{inventory.HoldActive, func() (bool, error) { _, err := extendAt(t, service, h.ID, time.Minute); return false, err }},
			{inventory.HoldReleased, func() (bool, error) { return releaseAt(t, other, h.ID) }},
			{inventory.HoldExpired, func() (bool, error) { n, _, err := inventory.ExpireHolds(t.Context(), db, id, 10); return n > 0, err }},
			{inventory.HoldUsed, func() (bool, error) {
				report, err := seller(db).Sell(t.Context(), refs, sale.WaitForCampaign)
				return report.HoldsUsed == 1, err
			}},
		}
		locked, err := db.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := campaign.Lock(t.Context(), locked, id); err != nil {
			t.Fatal(err)
		}
		won := make([]bool, len(race))
		var all sync.WaitGroup
		for i := range race {
			which := (i + round/2) % len(race)
			all.Go(func() {
				var err error
				won[which], err = race[which].do()
				if err != nil && fault.CodeOf(err) == fault.InternalError {
					t.Errorf("round %d: %v", round, err)
				}
			})
			servers.AwaitBlocked(t, db, i+1)
		}
		if over {
			fixture.EndHoldMeanwhile(t, db, h)
		}
		if err := locked.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
		all.Wait()
		end, winners := fixture.HoldNow(t, db, h.ID), 0
		for i := range race {
			if won[i] {
				winners++
				if end.State != race[i].ends {
					t.Errorf("round %d: %s won, and the hold is %+v", round, race[i].ends, end)
				}
			}
		}
		if winners > 1 || winners == 0 && !over || over != (end.State == inventory.HoldExpired) { // a purchase may end one that is over
			t.Errorf("round %d: %d have won, and the hold is %+v", round, winners, end)
		}
		if j := fixture.Job(t, db, refs[0].ID); !j.State.Final() || (j.Problem == nil) != (end.State == inventory.HoldUsed) {
			t.Errorf("round %d: the purchase is %s, %+v, the hold %+v", round, j.State, j.Problem, end)
		}
		fixture.Sound(t, db)
	}
}
