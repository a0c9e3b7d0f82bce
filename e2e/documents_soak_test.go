//go:build soak

package e2e

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/google/uuid"

	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/fleet"
)

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
