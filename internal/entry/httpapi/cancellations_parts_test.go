package httpapi_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	"github.com/google/uuid"

	"triprize/internal/domain/money"
	"triprize/internal/job"
	"triprize/internal/testkit/fleet"
)

func TestPositionsOfAPurchaseAreCancelledOverHTTP(t *testing.T) {
	t.Parallel()
	s := withUsers(fleet.Shared(t, busy))
	id := s.Campaign(4)
	bought := s.Buy(fleet.Order{Campaign: id, User: s.User("mina"), Layer: 4, Quantity: 4, Wait: true})
	at := "/v1/purchases/" + bought.Result.PurchaseID.String()
	cancel := func(body, key string) (a fleet.Answer) {
		t.Helper()
		return s.Do(0, s.App, http.MethodPost, at+"/cancel", map[string]string{"Idempotency-Key": key, "Prefer": "wait=10"}, json.RawMessage(body))
	}
	first := cancel(`{"positions":[{"number":7},{"layer":4,"column":2}],"reason":"two are ill"}`, "parts-"+id.String())
	if !fleet.Contains(first.Body, `"state":"completed","positions":[{"layer":4,"column":1,"number":7,"label":"7","price":400}`) || !fleet.Contains(first.Body, `"amount":800`) {
		t.Fatalf("%v %s", first, first.Body)
	}
	if again := cancel(`{"positions":[{"number":7},{"layer":4,"column":2}],"reason":"two are ill"}`, "parts-"+id.String()); again.Header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("the same key: %v", again)
	}
	var p struct {
		State     string
		Amount    money.Amount
		Positions []struct{ Number int }
		Partial   []struct {
			JobID     uuid.UUID `json:"job_id"`
			By        string
			Reason    string
			Amount    money.Amount
			Positions []struct{ Number int }
		} `json:"partial_cancellations"`
		Timeline []struct{ Event string }
	}
	now := s.Do(0, fleet.TokenFor(t, s.User("mina"), ""), http.MethodGet, at, nil, nil)
	if err := json.Unmarshal(now.Body, &p); err != nil || p.State != "completed" || p.Amount != 1600 || len(p.Positions) != 2 || p.Positions[0].Number != 9 ||
		len(p.Partial) != 1 || p.Partial[0].By != "app" || p.Partial[0].Reason != "two are ill" || p.Partial[0].Amount != 800 || len(p.Partial[0].Positions) != 2 ||
		len(p.Timeline) != 3 || p.Timeline[2].Event != "partially-cancelled" {
		t.Errorf("%v, %s", err, now.Body)
	}
	for body, pointer := range map[string]string{
		`{"positions":[{"number":9},{"number":1}]}`:           "/positions/1",
		`{"positions":[{"number":11}]}`:                       "/positions/0/number",
		`{"positions":[{"layer":4}]}`:                         "/positions/0",
		`{"positions":[{"number":9},{"layer":4,"column":3}]}`: "/positions/1",
		`{"positions":[]}`:                                    "/positions",
		`{"positions":[{"number":9}],"layer":4}`:              "/layer",
	} {
		if a := cancel(body, uuid.NewString()); a.Status != http.StatusBadRequest || !fleet.Contains(a.Body, fmt.Sprintf("%q", pointer)) {
			t.Errorf("%s: %v %s", body, a, a.Body)
		}
	}
	if gone := cancel(`{"positions":[{"number":9},{"number":7}]}`, uuid.NewString()); !fleet.Contains(gone.Body, "state-conflict") || !fleet.Contains(gone.Body, "cancelled already") {
		t.Errorf("%v %s", gone, gone.Body)
	}
	if whole := s.Cancel(s.App, bought.Result.PurchaseID, uuid.NewString(), ""); whole.State != job.Succeeded || whole.Result.Amount != 800 || len(whole.Result.Positions) != 2 {
		t.Errorf("the rest: %v %s", whole, whole.Body)
	}
}

// Each part and the rest are listed, and one request resolves all of them.
func TestWhatAnAppOwesForACancelledPurchaseIsListedUntilItIsResolved(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, busy)
	id := s.Campaign(4)
	bought := s.Buy(fleet.Order{Campaign: id, User: s.User("erin"), Layer: 4, Quantity: 4, Wait: true})
	at := "/v1/purchases/" + bought.Result.PurchaseID.String()
	s.Do(0, s.App, http.MethodPost, at+"/cancel", map[string]string{"Idempotency-Key": "part-" + id.String(), "Prefer": "wait=10"}, json.RawMessage(`{"positions":[{"number":7}]}`))
	shown := func() string {
		var p struct {
			Amount  money.Amount `json:"amount_refunded"`
			Refunds []struct {
				State  string
				Amount money.Amount
			}
		}
		if a := s.Do(0, s.App, http.MethodGet, at, nil, nil); json.Unmarshal(a.Body, &p) != nil {
			t.Fatalf("%v %s", a, a.Body)
		}
		return fmt.Sprint(p.Amount, p.Refunds)
	}
	if got := shown(); got != "0 [{listed 400}]" {
		t.Errorf("after a part: %s", got)
	}
	s.Cancel(s.App, bought.Result.PurchaseID, "whole-"+id.String(), "")
	if got := shown(); got != "0 [{listed 400} {listed 1200}]" {
		t.Errorf("after all: %s", got)
	}
	resolved := s.Do(0, s.App, http.MethodPost, "/v1/campaigns/"+id.String()+"/refunds/resolve", map[string]string{"Idempotency-Key": "r-" + id.String()}, json.RawMessage(`{"reason":"by bank transfer"}`))
	if !fleet.Contains(resolved.Body, `"resolved":2,"more":false`) {
		t.Errorf("%v %s", resolved, resolved.Body)
	}
	if got := shown(); got != "1600 [{resolved 400} {resolved 1200}]" {
		t.Errorf("resolved: %s", got)
	}
}

func TestAPurchaseByWalletSaysHowMuchIsBack(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, busy)
	id := s.Campaign(4)
	user := s.User("walter")
	s.Wallet(user, 2000)
	bought := s.Buy(fleet.Order{Campaign: id, User: user, Layer: 4, Quantity: 4, ByWallet: true, Wait: true})
	at := "/v1/purchases/" + bought.Result.PurchaseID.String()
	back := func() (p struct {
		Amount money.Amount `json:"amount_refunded"`
	}) {
		a := s.Do(0, s.App, http.MethodGet, at, nil, nil)
		if err := json.Unmarshal(a.Body, &p); err != nil {
			t.Errorf("%v: %v", a, err)
		}
		return p
	}
	s.Do(0, s.App, http.MethodPost, at+"/cancel", map[string]string{"Idempotency-Key": "part-" + id.String(), "Prefer": "wait=10"}, json.RawMessage(`{"positions":[{"number":7}]}`))
	if got := back().Amount; got != 400 {
		t.Errorf("after a part %d are back", got)
	}
	s.Cancel(s.App, bought.Result.PurchaseID, "whole-"+id.String(), "")
	if got := back().Amount; got != 1600 {
		t.Errorf("after all %d are back", got)
	}
}
