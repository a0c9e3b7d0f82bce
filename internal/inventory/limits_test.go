package inventory_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"triprize/internal/campaign"
	"triprize/internal/domain/fault"
	"triprize/internal/domain/shape"
	"triprize/internal/inventory"
	"triprize/internal/platform/config"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

func TestAUserHoldsNoMoreThanItsLimits(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id, other := fixture.Campaign(t, db, fixture.Draft(5)), fixture.Campaign(t, db, fixture.Draft(5))
	service := fixture.Holds(t, db, nil, func(s *config.Holds) { s.MaxPerUser, s.MaxPositionsPerUser = 3, 5 })
	first := fixture.Hold(t, service, fixture.HoldAnyRequest(id, "a", 0, 2))
	_, err := fixture.TryHold(t, service, fixture.HoldAnyRequest(id, "a", 0, 4))
	expectCode(t, "6 of 5 positions", err, fault.HoldLimitExceeded)
	second := fixture.Hold(t, service, fixture.HoldAnyRequest(id, "a", 0, 3))
	_, err = fixture.TryHold(t, service, fixture.HoldRequest(id, "a", free(t, db, id)[0]))
	expectCode(t, "a sixth position", err, fault.HoldLimitExceeded)
	fixture.Hold(t, service, fixture.HoldAnyRequest(id, "b", 0, 5)) // limits are of one user
	fixture.Hold(t, service, fixture.HoldAnyRequest(other, "a", 0, 5))

	fixture.EndHold(t, db, second) // counts no more, swept or not
	fixture.Hold(t, service, fixture.HoldAnyRequest(id, "a", 0, 1))
	third := fixture.Hold(t, service, fixture.HoldAnyRequest(id, "a", 0, 1))
	_, err = fixture.TryHold(t, service, fixture.HoldAnyRequest(id, "a", 0, 1))
	expectCode(t, "a fourth hold", err, fault.HoldLimitExceeded)
	fixture.EndHold(t, db, third)
	fixture.Hold(t, service, fixture.HoldAnyRequest(id, "a", 0, 1))
	if _, err := release(t, db, first.ID); err != nil {
		t.Fatal(err)
	}
	fixture.Hold(t, service, fixture.HoldAnyRequest(id, "a", 0, 3))
	fixture.Sound(t, db)
}

func TestOnlyAShareOfACampaignIsHeld(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := fixture.Campaign(t, db, fixture.Draft(4))
	service := fixture.Holds(t, db, nil, func(s *config.Holds) { s.MaxSharePercent = 45 }) // 4 of 10
	mine := fixture.Hold(t, service, fixture.HoldAnyRequest(id, "a", 0, 3))
	_, err := fixture.TryHold(t, service, fixture.HoldAnyRequest(id, "b", 0, 2))
	expectCode(t, "a fifth", err, fault.HoldLimitExceeded)
	fixture.Hold(t, service, fixture.HoldAnyRequest(id, "b", 0, 1))
	_, err = fixture.TryHold(t, service, fixture.HoldAnyRequest(id, "c", 0, 1))
	expectCode(t, "one more", err, fault.HoldLimitExceeded)
	if jobs := fixture.Finalize(t, db, fixture.PurchaseRequest(t, id, "c", 0, 2), fixture.HeldRequest(t, id, "a", mine.ID)); jobs[0].Problem != nil || jobs[1].Problem != nil {
		t.Errorf("a purchase is no hold: %+v", jobs)
	}
	last := fixture.Hold(t, service, fixture.HoldAnyRequest(id, "c", 0, 3)) // what is sold is held no more
	_, err = fixture.TryHold(t, service, fixture.HoldAnyRequest(id, "d", 0, 1))
	expectCode(t, "the share is used up", err, fault.HoldLimitExceeded)
	fixture.EndHold(t, db, last)
	fixture.Hold(t, service, fixture.HoldAnyRequest(id, "d", 0, 2))
	fixture.Sound(t, db)
}

func TestThePurchaseLimitCountsWhatIsHeld(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	draft, limit := fixture.Draft(5), 4
	draft.PurchaseLimit = &limit
	id, service := fixture.Campaign(t, db, draft), fixture.Holds(t, db, nil, nil)
	fixture.Finalize(t, db, fixture.PurchaseRequest(t, id, "a", 0, 1))
	first := fixture.Hold(t, service, fixture.HoldAnyRequest(id, "a", 0, 2))
	_, err := fixture.TryHold(t, service, fixture.HoldAnyRequest(id, "a", 0, 2))
	expectCode(t, "1 bought, 2 held, 2 more", err, fault.PurchaseLimitExceeded)
	fixture.EndHold(t, db, first)
	fixture.Hold(t, service, fixture.HoldAnyRequest(id, "a", 0, 3))
	_, err = fixture.TryHold(t, service, fixture.HoldAnyRequest(id, "a", 0, 1))
	expectCode(t, "1 bought, 3 held, 1 more", err, fault.PurchaseLimitExceeded)
	fixture.Sound(t, db)
}

// Each limit alone, and how much of it one user gets that asks for two positions at a time.
var limits = map[string]struct {
	change func(*config.Holds)
	limit  bool
	want   int // positions
	code   fault.Code
}{
	"holds":          {func(s *config.Holds) { s.MaxPerUser = 4 }, false, 8, fault.HoldLimitExceeded},
	"positions":      {func(s *config.Holds) { s.MaxPerUser, s.MaxPositionsPerUser = 100, 11 }, false, 10, fault.HoldLimitExceeded},
	"share":          {func(s *config.Holds) { s.MaxPerUser, s.MaxSharePercent = 100, 15 }, false, 4, fault.HoldLimitExceeded}, // 5 of 36
	"purchase limit": {func(s *config.Holds) { s.MaxPerUser = 100 }, true, 6, fault.PurchaseLimitExceeded},
}

func limitedDraft(limited bool) campaign.Draft {
	draft, limit := fixture.Draft(8), 6
	if limited {
		draft.PurchaseLimit = &limit
	}
	return draft
}

func TestLimitsAreExactWhenOneUserAsksFromAllSides(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	for what, c := range limits {
		id := fixture.Campaign(t, db, limitedDraft(c.limit))
		services := []*inventory.Holds{fixture.Holds(t, db, nil, c.change), fixture.Holds(t, db, open, c.change)}
		var requests []inventory.HoldRequest
		for i := range 15 {
			requests = append(requests, fixture.HoldAnyRequest(id, "a", 0, 2), fixture.HoldRequest(id, "a", at(8, i%4+1), at(7, i%4+1)))
		}
		_, refused := together(t, services, requests)
		for i, err := range refused {
			if err != nil && fault.CodeOf(err) != c.code && fault.CodeOf(err) != fault.PositionTaken {
				t.Errorf("%s: request %d: %v", what, i, err)
			}
		}
		expectCounts(t, db, id, c.want, 0)
	}
	fixture.Sound(t, db)
}

func TestLimitsAreExactWithinOneTransaction(t *testing.T) {
	t.Parallel()
	for what, c := range limits {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			db := servers.DB(t)
			id := fixture.Campaign(t, db, limitedDraft(c.limit))
			var requests []inventory.HoldRequest
			for range 12 {
				requests = append(requests, fixture.HoldAnyRequest(id, "a", 0, 2))
			}
			_, refused := inOneBatch(t, db, fixture.Holds(t, db, nil, c.change), id, requests)
			for _, err := range refused {
				if err != nil {
					expectCode(t, what, err, c.code)
				}
			}
			expectCounts(t, db, id, c.want, 0)
			fixture.Sound(t, db)
		})
	}
}

// Random positions of a batch are found together: enough for all requests, also when
// others choose before them, and when some of them must not have one again.
func TestInOneTransactionNobodyIsRefusedForWhatOthersTook(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := fixture.Campaign(t, db, fixture.Draft(7)) // 28 positions
	service := fixture.Holds(t, db, nil, func(s *config.Holds) { s.CoolDown, s.MaxPerUser = time.Hour, 20 })
	lapsed := fixture.Hold(t, service, fixture.HoldAnyRequest(id, "cooling", 0, 4)) // the first by rank
	fixture.EndHold(t, db, lapsed)
	fixture.Hold(t, service, fixture.HoldAnyRequest(id, "cooling", 0, 1))
	requests := []inventory.HoldRequest{fixture.HoldRequest(id, "chooser", free(t, db, id)[0], free(t, db, id)[20]), fixture.HoldAnyRequest(id, "cooling", 0, 9)}
	for i := range 5 {
		requests = append(requests, fixture.HoldAnyRequest(id, fmt.Sprint("user-", i), 0, 2))
	}
	made, refused := inOneBatch(t, db, service, id, requests)
	for i, err := range refused {
		// The chooser may come late, and so may the one that cannot have all.
		if err != nil && (i > 1 || fault.CodeOf(err) != fault.PositionTaken && fault.CodeOf(err) != fault.NoneAvailable) {
			t.Errorf("request %d: %v", i, err)
		}
	}
	for _, p := range placesOf(made[1]) {
		if slices.Contains(placesOf(lapsed), p) {
			t.Errorf("it got %v again", p)
		}
	}
	fixture.Sound(t, db)
}

func TestWhatAUserLetExpireItCannotHoldAgainAtOnce(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := fixture.Campaign(t, db, fixture.Draft(4))
	service := fixture.Holds(t, db, nil, func(s *config.Holds) { s.CoolDown = time.Hour })
	hot := []shape.Position{at(3, 1), at(3, 2)}
	lapsed := fixture.Hold(t, service, fixture.HoldRequest(id, "a", hot...))
	fixture.EndHold(t, db, lapsed)
	for range 2 { // the first time it has not been tidied up yet
		_, err := fixture.TryHold(t, service, fixture.HoldRequest(id, "a", at(1, 1), hot[1]))
		expectCode(t, "what it let expire", err, fault.HoldLimitExceeded)
		if n, _, err := inventory.ExpireHolds(t.Context(), db, id, 10); err != nil {
			t.Fatal(n, err)
		}
	}
	random := fixture.Hold(t, service, fixture.HoldAnyRequest(id, "a", 3, 1))
	if random.Positions[0].Position != at(3, 3) {
		t.Errorf("a random one is %v", random.Positions[0])
	}
	_, err := fixture.TryHold(t, service, fixture.HoldAnyRequest(id, "a", 3, 1))
	expectCode(t, "only those it let expire are left", err, fault.NoneAvailable)
	if everything := fixture.Hold(t, service, fixture.HoldAnyRequest(id, "a", 0, 7)); len(everything.Positions) != 7 {
		t.Errorf("anywhere: %v", everything.Positions)
	}
	fixture.Hold(t, service, fixture.HoldRequest(id, "b", hot[0])) // for another user it is like any
	if jobs := fixture.Finalize(t, db, fixture.ChosenRequest(t, id, "a", hot[1])); jobs[0].Problem != nil {
		t.Errorf("buying is not holding: %+v", jobs[0].Problem)
	}
	fixture.Sound(t, db)
}

func TestACoolDownEnds(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := fixture.Campaign(t, db, fixture.Draft(4))
	service := fixture.Holds(t, db, nil, func(s *config.Holds) { s.CoolDown = 10 * time.Second })
	long := fixture.Hold(t, service, fixture.HoldRequest(id, "a", at(3, 1)))
	fixture.MoveDeadline(t, db, long, -11*time.Second)
	fixture.Hold(t, service, fixture.HoldRequest(id, "a", at(3, 1)))
	fixture.Sound(t, db)
}
