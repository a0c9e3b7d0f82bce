package httpapi_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"triprize/internal/job"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/fleet"
)

// purchaseDocument is what the tests read of a purchase.
type purchaseDocument struct {
	State        string
	Cancellation *struct {
		At     time.Time
		By     string
		Reason *string
	}
	Timeline []struct{ Event string }
}

func purchase(s *fleet.System, credential string, id uuid.UUID) (p purchaseDocument) {
	s.T.Helper()
	a := s.Do(0, credential, http.MethodGet, "/v1/purchases/"+id.String(), nil, nil)
	if err := json.Unmarshal(a.Body, &p); err != nil || a.Status != http.StatusOK {
		s.T.Fatalf("purchase %s: %v", id, a)
	}
	return p
}

func TestACancelledPurchaseIsFreeForAnotherAndSaysWhoAndWhy(t *testing.T) {
	t.Parallel()
	s := withUsers(fleet.Shared(t, busy))
	draft, limit := fixture.Draft(3), 1
	draft.PurchaseLimit = &limit
	id := fixture.Campaign(t, s.DB, draft)
	bought := s.Buy(fleet.Order{Campaign: id, User: "mina", Layer: 1, Wait: true})
	if p := purchase(s, s.App, bought.Result.PurchaseID); p.State != "completed" || p.Cancellation != nil {
		t.Errorf("before: %+v", p)
	}
	if a := s.Buy(fleet.Order{Campaign: id, User: "otto", Layer: 1, Wait: true}); a.Refusal() != "sold-out" {
		t.Errorf("before: %v", a)
	}
	cancelled := s.Cancel(s.App, bought.Result.PurchaseID, "back", "too dear")
	if cancelled.Status != http.StatusOK || cancelled.State != job.Succeeded || cancelled.Result.PurchaseID != bought.Result.PurchaseID ||
		cancelled.Result.Amount != 100 || len(cancelled.Result.Positions) != 1 || !fleet.Contains(cancelled.Body, `"kind":"cancellation"`) {
		t.Fatalf("%v %s", cancelled, cancelled.Body)
	}
	p := purchase(s, s.App, bought.Result.PurchaseID)
	if p.State != "cancelled" || p.Cancellation.By != "app:"+s.Client("shop") || *p.Cancellation.Reason != "too dear" || len(p.Timeline) != 3 || p.Timeline[2].Event != "cancelled" {
		t.Errorf("after: %+v, %+v", p, p.Cancellation)
	}
	if p := purchase(s, fleet.TokenFor(t, "mina", ""), bought.Result.PurchaseID); p.Cancellation.By != "app" {
		t.Errorf("the user reads that it was %s", p.Cancellation.By)
	}
	if again := s.Cancel(s.App, bought.Result.PurchaseID, "back", "too dear"); again.ID != cancelled.ID || again.Header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("the same key: %v", again)
	}
	if other := s.Cancel(s.App, bought.Result.PurchaseID, "back", "another reason"); other.Refusal() != "idempotency-key-reused" {
		t.Errorf("the same key, another request: %v", other)
	}
	if twice := s.Cancel(s.App, bought.Result.PurchaseID, "back again", ""); twice.State != job.Failed || twice.Refusal() != "state-conflict" {
		t.Errorf("another key: %v", twice)
	}
	for _, user := range []string{"otto", "mina"} { // the position is free, and so is her limit
		layer := map[string]int{"otto": 1}[user]
		if a := s.Buy(fleet.Order{Campaign: id, User: user, Layer: layer, Wait: true}); a.State != job.Succeeded {
			t.Errorf("%s buys: %v", user, a)
		}
	}
	if c := s.CampaignNow(id); c.Counts.Sold != 2 {
		t.Errorf("%+v", c.Counts)
	}
}

func TestAUserCancelsOnlyWhatIsItsOwn(t *testing.T) {
	t.Parallel()
	s := withUsers(fleet.Shared(t, busy))
	id := s.Campaign(3)
	mine, his := s.Buy(fleet.Order{Campaign: id, User: s.User("mina"), Wait: true}), s.Buy(fleet.Order{Campaign: id, User: "otto", Wait: true})
	mina := fleet.TokenFor(t, s.User("mina"), "")
	for what, c := range map[string]struct {
		credential string
		purchase   uuid.UUID
		status     int
	}{
		"his":         {mina, his.Result.PurchaseID, http.StatusNotFound},
		"nobody's":    {mina, uuid.New(), http.StatusNotFound},
		"no such":     {s.App, uuid.New(), http.StatusNotFound},
		"as a viewer": {fleet.TokenFor(t, s.User("mina"), "viewer"), mine.Result.PurchaseID, http.StatusForbidden},
		"as nobody":   {"", mine.Result.PurchaseID, http.StatusUnauthorized},
	} {
		if a := s.Cancel(c.credential, c.purchase, uuid.NewString(), ""); a.Status != c.status {
			t.Errorf("%s: want %d, got %v", what, c.status, a)
		}
	}
	if a := s.Cancel(mina, mine.Result.PurchaseID, "k", ""); a.State != job.Succeeded {
		t.Errorf("her own: %v", a)
	}
	if p := purchase(s, s.Operator, mine.Result.PurchaseID); p.Cancellation.By != "user:"+s.Client("shop")+"/"+s.User("mina") || p.Cancellation.Reason != nil {
		t.Errorf("by %s", p.Cancellation.By)
	}
	if p := purchase(s, mina, mine.Result.PurchaseID); p.Cancellation.By != "user" {
		t.Errorf("by %s", p.Cancellation.By)
	}
	if n := s.CampaignNow(id).Counts.Sold; n != 1 {
		t.Errorf("%d are sold", n)
	}
	for body, says := range map[string]string{
		`{"reason":"` + strings.Repeat("r", 501) + `"}`: "/reason", `{"reason":"a\u0000b"}`: "/reason", `{"why":"x"}`: "/why", `[]`: "object", ` `: "JSON",
	} {
		a := raw(s, http.MethodPost, "/v1/purchases/"+his.Result.PurchaseID.String()+"/cancel", body, "", "")
		if a.Status != http.StatusBadRequest || !fleet.Contains(a.Body, says) {
			t.Errorf("%.20s: %v %s", body, a, a.Body)
		}
	}
}

func TestAfterTheDeadlineAnOperatorCancelsAndAnAppDoesNot(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, busy)
	_, id := sells(s, fleet.Fields{"policies": fleet.Fields{"cancellation_until": time.Now().Add(-time.Minute)}})
	bought := s.Buy(fleet.Order{Campaign: id, User: "a", Wait: true})
	if a := s.Cancel(s.App, bought.Result.PurchaseID, "k", ""); a.Refusal() != "state-conflict" || !strings.Contains(a.Problem.Detail, "until") {
		t.Errorf("an app: %v", a)
	}
	if a := s.Cancel(s.Operator, bought.Result.PurchaseID, "k", "a courtesy"); a.State != job.Succeeded {
		t.Errorf("an operator: %v", a)
	}
	if p := purchase(s, s.App, bought.Result.PurchaseID); p.Cancellation == nil || p.Cancellation.By != "operator:"+s.Client("ops") {
		t.Errorf("%+v", p.Cancellation)
	}
}
