package e2e

import (
	"net/http"
	"testing"
	"time"

	"triprize/internal/job"
	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"
)

// The time that users keep positions is one for the processes that hold and those that
// reserve, with the settings as they come.
func TestWhoReservesAndNeverPaysMustLeaveThePositionToOthers(t *testing.T) {
	t.Parallel()
	s := cardSystem(t, fleet.Options{})
	campaign := s.Campaign(3)
	purchases, selected := "/v1/campaigns/"+campaign.String()+"/purchases", fleet.Fields{"positions": []fleet.Fields{{"layer": 3, "column": 1}}}
	order := func(user string) jobView {
		a := s.Execute(purchases, fleet.Fields{"user_id": user, "selection": selected, "payment": fleet.Fields{"method": "card",
			"payment_method": "pm_card_authenticationRequired", "return_url": "https://shop.test/"}})
		return viewJob(s, a.ID)
	}
	first := awaitAction(s, order("mallory").ID)
	servers.Exec(t, s.DB, `UPDATE payments SET deadline = now(), kept_since = now() - interval '18 minutes' WHERE job_id = $1`, first.ID)
	if a := s.AwaitJob(0, first.ID); a.Refusal() != "reservation-expired" {
		t.Fatalf("it ends as %v", a)
	}
	again := order("mallory")
	s.AwaitJob(0, again.ID)
	refused := fleet.As[struct {
		State   job.State
		Problem struct {
			Code    string
			RetryAt time.Time `json:"retry_at"`
			Errors  []struct{ Pointer string }
		}
	}](t, s.Job(again.ID))
	if p := refused.Problem; p.Code != "hold-limit-exceeded" || time.Until(p.RetryAt) < 8*time.Minute || len(p.Errors) != 1 || p.Errors[0].Pointer != "/selection/positions/0" {
		t.Errorf("again: %s, %+v", refused.State, p)
	}
	hold := s.Execute("/v1/campaigns/"+campaign.String()+"/holds", fleet.Fields{"user_id": "mallory", "positions": selected["positions"], "ttl_seconds": 300})
	if hold.Status != http.StatusConflict || hold.Refusal() != "hold-limit-exceeded" {
		t.Errorf("a hold: %v", hold)
	}
	other := awaitAction(s, order("alice").ID)
	authenticate(t, other.NextAction.URL, "succeed")
	if a := s.AwaitJob(0, other.ID); a.Refusal() != "" {
		t.Errorf("another user: %v", a)
	}
}
