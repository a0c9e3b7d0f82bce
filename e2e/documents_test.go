package e2e

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/google/uuid"

	"triprize/internal/campaign"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"
	"triprize/sandbox/drandsim"

	"triprize.example/draw/beacon"
)

// The scenarios of the seed documents, over HTTP, with real processes.

// seeded are the systems of these scenarios, which all of them share.
var seeded = fleet.Options{APIs: 2, Workers: 2}

func TestTwoBuyersTwoLastPositionsOneDraw(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, seeded)
	id := s.Campaign(4) // 10 positions
	fixture.Sell(t, s.DB, id, 8)
	answers := s.Crowd(2, func(i int) fleet.Order {
		return fleet.Order{Campaign: id, User: fmt.Sprintf("last-%d", i), Wait: true}
	})
	if got := fleet.Count(answers); got["succeeded"] != 2 {
		t.Fatalf("both should succeed: %v", got)
	}
	s.AwaitDrawn(id)
	expectRecordsOnce(s, id)
}

func TestEightOfTenSoldIsNotDrawn(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, seeded)
	id := s.Campaign(4)
	fixture.Sell(t, s.DB, id, 8)
	a := s.Do(0, s.Operator, http.MethodPost, "/v1/campaigns/"+id.String()+"/draw", map[string]string{"Idempotency-Key": "try", "Prefer": fleet.UntilFinal}, nil)
	if a.Status != http.StatusOK || a.State != "failed" || a.Refusal() != "not-sold-out" {
		t.Fatalf("got %v", a)
	}
	if c := s.CampaignNow(id); c.State != campaign.Active || c.Counts.Sold != 8 || c.DrawStartedAt != nil {
		t.Errorf("the refused draw changed the campaign: %+v", c)
	}
}

func TestPurchaseLimitHoldsInParallel(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, seeded)
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

// From the moment at which the last position is sold, nothing about a campaign changes but
// its name. This one waits for a beacon that is away.
func TestNothingAboutADrawingCampaignChangesButItsName(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Beacon: 1})
	if err := s.Beacon.Relays()[0].SetFaults(drandsim.Faults{Away: drandsim.AwayRefuse}); err != nil {
		t.Fatal(err)
	}
	id := drawable(s, true)
	fixture.SellOut(t, s.DB, id)
	before := sold(s, id)
	bought := servers.Value[string](t, s.DB, `SELECT id FROM purchases WHERE campaign_id = $1 LIMIT 1`, id)
	path := "/v1/campaigns/" + id.String()
	for _, c := range []struct {
		method, path string
		body         fleet.Fields
		want         string // status, and the code of a problem
	}{
		{http.MethodPost, path + "/pause", nil, "409 state-conflict"},
		{http.MethodPost, path + "/resume", nil, "409 state-conflict"},
		{http.MethodPost, path + "/publish", nil, "409 state-conflict"},
		{http.MethodPatch, path, fleet.Fields{"purchase_limit": 5}, "409 state-conflict"},
		{http.MethodPatch, path, fleet.Fields{"sale_ends_at": time.Now().Add(time.Hour).UTC().Format(time.RFC3339)}, "409 state-conflict"},
		{http.MethodPatch, path, fleet.Fields{"name": "A better name"}, "200 "},
		{http.MethodPost, path + "/holds", fleet.Fields{"user_id": "late", "quantity": 1}, "409 sold-out"},
		{http.MethodPost, path + "/purchases", fleet.Fields{"user_id": "late", "selection": fleet.Fields{"quantity": 1}, "payment": fleet.Fields{"method": "external"}}, "409 sold-out"},
		{http.MethodPost, path + "/cancel", fleet.Fields{"reason": "a test"}, "200 state-conflict"}, // of the job
		{http.MethodPost, "/v1/purchases/" + bought + "/cancel", fleet.Fields{"reason": "a test"}, "200 state-conflict"},
	} {
		credential, body := s.Operator, any(c.body)
		if c.body == nil {
			body = nil
		} else if c.body["user_id"] != nil {
			credential = s.App
		}
		a := s.Do(0, credential, c.method, c.path, map[string]string{"Idempotency-Key": uuid.NewString(), "Prefer": fleet.UntilFinal}, body)
		if got := fmt.Sprint(a.Status, " ", a.Refusal()); got != c.want {
			t.Errorf("%s %s %v: %s, want %s", c.method, c.path, c.body, got, c.want)
		}
	}
	if after := sold(s, id); after != before {
		t.Errorf("what is sold has changed:\n%s\n%s", before, after)
	}
}

// expectRecordsOnce expects one freeze and one draw of each campaign, and one result in
// all of its jobs.
func expectRecordsOnce(s *fleet.System, ids ...uuid.UUID) {
	s.T.Helper()
	for _, id := range ids {
		var freezes, draws, results, open int
		err := s.DB.QueryRow(s.T.Context(), `
			SELECT (SELECT count(*) FROM freezes WHERE campaign_id = $1), (SELECT count(*) FROM draws WHERE campaign_id = $1),
			       count(DISTINCT result::text) FILTER (WHERE state = 'succeeded'), count(*) FILTER (WHERE state <> 'succeeded')
			FROM jobs WHERE campaign_id = $1 AND kind = 'draw'`, id).Scan(&freezes, &draws, &results, &open)
		if err != nil || freezes != 1 || draws != 1 || results != 1 || open != 0 {
			s.T.Errorf("campaign %s: %d freezes, %d draws, %d results, %d jobs that have not succeeded, %v", id, freezes, draws, results, open, err)
		}
	}
}

// drawable publishes a small campaign, with a beacon or without.
func drawable(s *fleet.System, withBeacon bool) uuid.UUID {
	s.T.Helper()
	draft := fixture.Draft(3)
	var chain *beacon.Chain
	if withBeacon {
		draft.Policies.Beacon, chain = true, &s.Beacon.Chain().Chain
	}
	return fixture.CampaignOn(s.T, s.DB, draft, chain)
}

// sold is everything about a campaign that its draw is made from.
func sold(s *fleet.System, id uuid.UUID) (text string) {
	s.T.Helper()
	err := s.DB.QueryRow(s.T.Context(), `
		SELECT jsonb_build_array(
			(SELECT jsonb_agg(to_jsonb(p) ORDER BY layer, col) FROM positions p WHERE campaign_id = $1),
			(SELECT jsonb_agg(to_jsonb(p) ORDER BY id) FROM purchases p WHERE campaign_id = $1),
			(SELECT jsonb_agg(to_jsonb(p) ORDER BY number) FROM prizes p WHERE campaign_id = $1),
			(SELECT to_jsonb(c) - 'name' - 'execution_version' - 'execution_lock_id' - 'execution_locked_at' - 'execution_locked_by' FROM campaigns c WHERE id = $1),
			(SELECT to_jsonb(c) FROM commitments c WHERE campaign_id = $1))::text`, id).Scan(&text)
	if err != nil {
		s.T.Fatal(err)
	}
	return text
}
