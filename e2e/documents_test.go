package e2e

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/google/uuid"

	"triprize/internal/store/campaign"
	"triprize/internal/testkit/fixture"
)

// The scenarios of the seed documents, over HTTP, with real processes.

// state returns the campaign as the database has it.
func (s *system) campaignNow(id uuid.UUID) campaign.Campaign {
	s.t.Helper()
	c, err := campaign.Get(s.t.Context(), s.db, id)
	if err != nil {
		s.t.Fatal(err)
	}
	return c
}

// draws counts the recorded draws of all campaigns.
func (s *system) draws() (n int) {
	s.t.Helper()
	if err := s.db.QueryRow(s.t.Context(), `SELECT count(*) FROM draws`).Scan(&n); err != nil {
		s.t.Fatal(err)
	}
	return n
}

func (s *system) awaitDrawn(within time.Duration, ids ...uuid.UUID) {
	s.t.Helper()
	eventually(s.t, within, fmt.Sprintf("%d campaigns completed", len(ids)), func() bool {
		for _, id := range ids {
			if s.campaignNow(id).State != campaign.Completed {
				return false
			}
		}
		return true
	})
}

func TestTwoBuyersTwoLastPositionsOneDraw(t *testing.T) {
	t.Parallel()
	s := start(t, options{workers: 2})
	id := s.campaign(4) // 10 positions
	fixture.Sell(t, s.db, id, 8)
	answers := s.crowd(2, func(i int) order {
		return order{campaign: id, user: fmt.Sprintf("last-%d", i), wait: 20}
	})
	if got := tally(answers); got["succeeded"] != 2 {
		t.Fatalf("both should succeed: %v", got)
	}
	s.awaitDrawn(20*time.Second, id)
	if n := s.draws(); n != 1 {
		t.Errorf("%d draws", n)
	}
}

func TestEightOfTenSoldIsNotDrawn(t *testing.T) {
	t.Parallel()
	s := start(t, options{})
	id := s.campaign(4)
	fixture.Sell(t, s.db, id, 8)
	a := s.do(0, s.operator, http.MethodPost, "/v1/campaigns/"+id.String()+"/draw", map[string]string{"Idempotency-Key": "try", "Prefer": "wait=20"}, nil)
	if a.status != http.StatusOK || a.State != "failed" || a.code() != "not-sold-out" {
		t.Fatalf("got %v", a)
	}
	if c := s.campaignNow(id); c.State != campaign.Active || c.Counts.Sold != 8 || c.DrawStartedAt != nil {
		t.Errorf("the refused draw changed the campaign: %+v", c)
	}
	if n := s.draws(); n != 0 {
		t.Errorf("%d draws", n)
	}
}

func TestFiveHundredBuyersForTwoHundredAndTenPositions(t *testing.T) {
	t.Parallel()
	s := start(t, options{workers: 2})
	id := s.campaign(20)
	answers := s.crowd(500, func(i int) order {
		return order{campaign: id, user: fmt.Sprintf("buyer-%d", i), wait: 30}
	})
	if got := tally(answers); got["succeeded"] != 210 || got["sold-out"] != 290 {
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
	s.awaitDrawn(20*time.Second, id)
	if n := s.draws(); n != 1 {
		t.Errorf("%d draws", n)
	}
}

func TestManyForTheLastPosition(t *testing.T) {
	t.Parallel()
	s := start(t, options{workers: 2})
	for _, n := range []int{20, 50} {
		id := s.campaign(4)
		fixture.Sell(t, s.db, id, 9)
		answers := s.crowd(n, func(i int) order {
			return order{campaign: id, user: fmt.Sprintf("buyer-%d", i), wait: 30}
		})
		if got := tally(answers); got["succeeded"] != 1 || got["sold-out"] != n-1 {
			t.Errorf("%d buyers: one should succeed: %v", n, got)
		}
	}
}

func TestFiveWorkersDrawAHundredCampaignsOnce(t *testing.T) {
	t.Parallel()
	s := start(t, options{workers: 5})
	var ids []uuid.UUID
	for range 100 {
		ids = append(ids, s.campaign(3)) // 6 positions
	}
	for _, id := range ids {
		fixture.Sell(t, s.db, id, 5)
	}
	answers := s.crowd(100, func(i int) order {
		return order{campaign: ids[i], user: "the last buyer", wait: 30}
	})
	if got := tally(answers); got["succeeded"] != 100 {
		t.Fatalf("every last position should be sold: %v", got)
	}
	// Operators ask for the same draws at the same time; that must not draw twice.
	for _, id := range ids[:20] {
		s.do(0, s.operator, http.MethodPost, "/v1/campaigns/"+id.String()+"/draw", map[string]string{"Idempotency-Key": id.String()}, nil)
	}
	s.awaitDrawn(30*time.Second, ids...)
	if n := s.draws(); n != 100 {
		t.Errorf("%d draws", n)
	}
}

func TestPurchaseLimitHoldsInParallel(t *testing.T) {
	t.Parallel()
	s := start(t, options{apis: 2, workers: 2})
	draft := fixture.Draft(20)
	limit := 3
	draft.PurchaseLimit = &limit
	id := fixture.Campaign(t, s.db, draft)
	answers := s.crowd(50, func(i int) order {
		return order{campaign: id, user: "one user", quantity: 1 + i%2, wait: 30, api: i}
	})
	bought := 0
	for _, a := range answers {
		switch {
		case a.State == "succeeded":
			bought += len(a.Result.Positions)
		case a.code() != "purchase-limit-exceeded":
			t.Errorf("got %v", a)
		}
	}
	if bought > 3 || bought < 2 {
		t.Errorf("the user has %d positions", bought)
	}
}
