package e2e

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/google/uuid"

	"triprize/internal/store/campaign"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/fleet"
)

// The scenarios of the seed documents, over HTTP, with real processes.

func TestTwoBuyersTwoLastPositionsOneDraw(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Workers: 2})
	id := s.Campaign(4) // 10 positions
	fixture.Sell(t, s.DB, id, 8)
	answers := s.Crowd(2, func(i int) fleet.Order {
		return fleet.Order{Campaign: id, User: fmt.Sprintf("last-%d", i), Wait: true}
	})
	if got := fleet.Count(answers); got["succeeded"] != 2 {
		t.Fatalf("both should succeed: %v", got)
	}
	s.AwaitDrawn(id)
	if n := s.Draws(); n != 1 {
		t.Errorf("%d draws", n)
	}
}

func TestEightOfTenSoldIsNotDrawn(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{})
	id := s.Campaign(4)
	fixture.Sell(t, s.DB, id, 8)
	a := s.Do(0, s.Operator, http.MethodPost, "/v1/campaigns/"+id.String()+"/draw", map[string]string{"Idempotency-Key": "try", "Prefer": fleet.UntilFinal}, nil)
	if a.Status != http.StatusOK || a.State != "failed" || a.Refusal() != "not-sold-out" {
		t.Fatalf("got %v", a)
	}
	if c := s.CampaignNow(id); c.State != campaign.Active || c.Counts.Sold != 8 || c.DrawStartedAt != nil {
		t.Errorf("the refused draw changed the campaign: %+v", c)
	}
	if n := s.Draws(); n != 0 {
		t.Errorf("%d draws", n)
	}
}

func TestFiveHundredBuyersForTwoHundredAndTenPositions(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Workers: 2})
	id := s.Campaign(20)
	answers := s.Crowd(500, func(i int) fleet.Order {
		return fleet.Order{Campaign: id, User: fmt.Sprintf("buyer-%d", i), Wait: true}
	})
	if got := fleet.Count(answers); got["succeeded"] != 210 || got["sold-out"] != 290 {
		t.Fatalf("210 should succeed and 290 get sold-out: %v", got)
	}
	seen := make(map[[2]int]bool)
	for _, a := range answers {
		for _, p := range a.Result.Positions {
			if seen[[2]int{p.Layer, p.Column}] {
				t.Errorf("position %d/%d was sold twice", p.Layer, p.Column)
			}
			seen[[2]int{p.Layer, p.Column}] = true
		}
	}
	s.AwaitDrawn(id)
	if n := s.Draws(); n != 1 {
		t.Errorf("%d draws", n)
	}
}

func TestManyForTheLastPosition(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Workers: 2})
	for _, n := range []int{20, 50} {
		id := s.Campaign(4)
		fixture.Sell(t, s.DB, id, 9)
		answers := s.Crowd(n, func(i int) fleet.Order {
			return fleet.Order{Campaign: id, User: fmt.Sprintf("buyer-%d", i), Wait: true}
		})
		if got := fleet.Count(answers); got["succeeded"] != 1 || got["sold-out"] != n-1 {
			t.Errorf("%d buyers: one should succeed: %v", n, got)
		}
	}
}

func TestFiveWorkersDrawAHundredCampaignsOnce(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Workers: 5})
	var ids []uuid.UUID
	for range 100 {
		ids = append(ids, s.Campaign(3)) // 6 positions
	}
	for _, id := range ids {
		fixture.Sell(t, s.DB, id, 5)
	}
	answers := s.Crowd(100, func(i int) fleet.Order {
		return fleet.Order{Campaign: ids[i], User: "the last buyer", Wait: true}
	})
	if got := fleet.Count(answers); got["succeeded"] != 100 {
		t.Fatalf("every last position should be sold: %v", got)
	}
	// Operators ask for the same draws at the same time; that must not draw twice.
	for _, id := range ids[:20] {
		s.Do(0, s.Operator, http.MethodPost, "/v1/campaigns/"+id.String()+"/draw", map[string]string{"Idempotency-Key": id.String()}, nil)
	}
	s.AwaitDrawn(ids...)
	if n := s.Draws(); n != 100 {
		t.Errorf("%d draws", n)
	}
}

func TestPurchaseLimitHoldsInParallel(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{APIs: 2, Workers: 2})
	draft := fixture.Draft(20)
	limit := 3
	draft.PurchaseLimit = &limit
	id := fixture.Campaign(t, s.DB, draft)
	answers := s.Crowd(50, func(i int) fleet.Order {
		return fleet.Order{Campaign: id, User: "one user", Quantity: 1 + i%2, Wait: true, API: i}
	})
	bought := 0
	for _, a := range answers {
		switch {
		case a.State == "succeeded":
			bought += len(a.Result.Positions)
		case a.Refusal() != "purchase-limit-exceeded":
			t.Errorf("got %v", a)
		}
	}
	if bought > 3 || bought < 2 {
		t.Errorf("the user has %d positions", bought)
	}
}
