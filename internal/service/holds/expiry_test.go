package holds_test

import (
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"triprize/internal/domain/fault"
	"triprize/internal/service/holds"
	"triprize/internal/service/sale"
	"triprize/internal/store/inventory"
	"triprize/internal/testkit/fixture"
)

func TestAnotherUserHoldsAndBuysWhatAnExpiredHoldKept(t *testing.T) {
	t.Parallel()
	db := fixture.DB(t)
	id, desk := fixture.Campaign(t, db, fixture.Draft(4)), fixture.Holds(t, db, nil, nil)
	late := fixture.Hold(t, desk, fixture.HoldRequest(id, "late", at(3, 1), at(3, 2)))
	fixture.EndHold(t, db, late) // and no sweep
	expectCounts(t, db, id, 0, 0)
	if h := fixture.HoldNow(t, db, late.ID); h.State != inventory.HoldExpired || h.EndedAt != nil {
		t.Errorf("before anybody has seen it, it is %+v", h)
	}

	mine := fixture.Hold(t, desk, fixture.HoldRequest(id, "next", at(3, 2)))
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
	jobs := fixture.Settle(t, db, fixture.HeldRequest(t, id, "late", late.ID), fixture.HeldRequest(t, id, "next", mine.ID), fixture.ChosenRequest(t, id, "third", at(3, 1)))
	if jobs[0].Problem == nil || jobs[0].Problem.Code != fault.HoldExpired || jobs[1].Problem != nil || jobs[2].Problem != nil {
		t.Errorf("late: %+v, next: %+v, third: %+v", jobs[0].Problem, jobs[1].Problem, jobs[2].Problem)
	}
	expectCounts(t, db, id, 0, 2)
	if p, err := inventory.Get(t.Context(), db, id, at(3, 2)); err != nil || *p.UserID != "next" {
		t.Errorf("its position is %+v, %v", p, err)
	}
	fixture.Sound(t, db)
}

// Nobody has tidied up, and whoever comes first meets the expired hold itself.
func TestAnExpiredHoldIsInNobodysWay(t *testing.T) {
	t.Parallel()
	db := fixture.DB(t)
	desk := fixture.Holds(t, db, nil, nil)
	for what, come := range map[string]func(id uuid.UUID, h inventory.Hold) error{
		"hold chosen": func(id uuid.UUID, _ inventory.Hold) error {
			_, err := fixture.TryHold(t, desk, fixture.HoldRequest(id, "b", at(2, 1), at(2, 2)))
			return err
		},
		"hold all of the layer": func(id uuid.UUID, _ inventory.Hold) error {
			_, err := fixture.TryHold(t, desk, fixture.HoldAnyRequest(id, "b", 2, 2))
			return err
		},
		"hold everything": func(id uuid.UUID, _ inventory.Hold) error {
			_, err := fixture.TryHold(t, desk, fixture.HoldAnyRequest(id, "b", 0, 10))
			return err
		},
		"buy chosen": func(id uuid.UUID, _ inventory.Hold) error {
			return problem(fixture.Settle(t, db, fixture.ChosenRequest(t, id, "b", at(2, 2)))[0])
		},
		"buy the layer": func(id uuid.UUID, _ inventory.Hold) error {
			return problem(fixture.Settle(t, db, fixture.PurchaseRequest(t, id, "b", 2, 2))[0])
		},
		"buy everything": func(id uuid.UUID, _ inventory.Hold) error {
			return problem(fixture.Settle(t, db, fixture.PurchaseRequest(t, id, "b", 0, 10))[0])
		},
	} {
		id := fixture.Campaign(t, db, fixture.Draft(4))
		late := fixture.Hold(t, desk, fixture.HoldRequest(id, "a", at(2, 1), at(2, 2)))
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
	db := fixture.DB(t)
	id, other := fixture.Campaign(t, db, fixture.Draft(6)), fixture.Campaign(t, db, fixture.Draft(4))
	desk := fixture.Holds(t, db, nil, nil)
	for _, user := range []string{"a", "b", "c"} {
		fixture.EndHold(t, db, fixture.Hold(t, desk, fixture.HoldAnyRequest(other, user, 0, 1)))
	}
	var all []inventory.Hold // made before any of them is over: a hold made would end it
	for _, user := range []string{"a", "b", "c", "d"} {
		all = append(all, fixture.Hold(t, desk, fixture.HoldAnyRequest(id, user, 0, 3)))
	}
	for _, h := range all[:3] {
		fixture.EndHold(t, db, h)
	}
	for _, want := range [][2]int{{2, 6}, {1, 3}, {0, 0}} {
		holds, positions, err := holds.Expire(t.Context(), db, id, 2)
		if err != nil || holds != want[0] || positions != want[1] {
			t.Errorf("%d holds and %d positions, %v; want %v", holds, positions, err, want)
		}
		fixture.Sound(t, db)
	}
	if h := fixture.HoldNow(t, db, all[3].ID); h.State != inventory.HoldActive {
		t.Errorf("one that is not due is %+v", h)
	}
	if n, _, err := holds.Expire(t.Context(), db, other, 10); n == 0 || err != nil {
		t.Errorf("in the other campaign: %d, %v", n, err)
	}
	if _, _, err := holds.Expire(t.Context(), db, uuid.New(), 10); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("of no campaign: %v", err)
	}
}

func TestOfAnExtensionAReleaseAPurchaseAndASweepAtTheDeadlineOneWins(t *testing.T) {
	t.Parallel()
	db := fixture.DB(t)
	desk := fixture.Holds(t, db, nil, nil)
	id := fixture.Campaign(t, db, fixture.Draft(12))
	ends := make(map[inventory.HoldState]int)
	for round := range 30 {
		h := fixture.Hold(t, desk, fixture.HoldAnyRequest(id, "a", 0, 2))
		fixture.MoveDeadline(t, db, h, 20*time.Millisecond)
		refs := fixture.Accept(t, db, fixture.HeldRequest(t, id, "a", h.ID))
		var race sync.WaitGroup
		var mu sync.Mutex
		var wins []string
		try := func(name string, do func() (bool, error)) {
			time.Sleep(time.Duration(10+(round*7+len(name)*3)%20) * time.Millisecond)
			won, err := do()
			if err != nil && fault.CodeOf(err) == fault.InternalError {
				t.Errorf("%s: %v", name, err)
			}
			if won && err == nil {
				mu.Lock()
				wins = append(wins, name)
				mu.Unlock()
			}
		}
		race.Go(func() {
			try("extend", func() (bool, error) { _, err := extend(t, db, h.ID, 5*time.Millisecond, 1); return false, err })
		})
		race.Go(func() {
			try("release", func() (bool, error) { won, err := release(t, db, h.ID); return won, err })
		})
		race.Go(func() {
			try("sweep", func() (bool, error) { n, _, err := holds.Expire(t.Context(), db, id, 10); return n > 0, err })
		})
		race.Go(func() {
			try("buy it", func() (bool, error) {
				report, err := seller(db).Sell(t.Context(), refs, sale.WaitForCampaign)
				return report.HoldsUsed == 1, err
			})
		})
		race.Wait()
		end := fixture.HoldNow(t, db, h.ID)
		if j := fixture.Job(t, db, refs[0].ID); !j.State.Final() || (j.Problem == nil) != (end.State == inventory.HoldUsed) {
			t.Errorf("the purchase is %s, %+v, the hold %+v", j.State, j.Problem, end)
		}
		if len(wins) > 1 || len(wins) == 1 && end.State != map[string]inventory.HoldState{"release": inventory.HoldReleased, "sweep": inventory.HoldExpired, "buy it": inventory.HoldUsed}[wins[0]] {
			t.Errorf("won: %v, and it is %+v", wins, end)
		}
		fixture.Sound(t, db)
		ends[end.State]++
	}
	t.Logf("ends: %v", ends)
}
