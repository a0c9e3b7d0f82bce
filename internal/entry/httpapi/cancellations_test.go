package httpapi_test

import (
	"fmt"
	"net/http"
	"slices"
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
	Amount       int
	Positions    []struct{ Number int }
	Cancellation *struct {
		By     string
		Reason *string
	}
	Partial []struct {
		By, Reason string
		Amount     int
		Positions  []struct{ Number int }
	} `json:"partial_cancellations"`
	Refunded int `json:"amount_refunded"`
	Refunds  []struct {
		State  string
		Amount int
	}
	Timeline []struct{ Event string }
}

func purchase(s *fleet.System, credential string, id uuid.UUID) purchaseDocument {
	s.T.Helper()
	return decoded[purchaseDocument](s, s.Do(0, credential, http.MethodGet, "/v1/purchases/"+id.String(), nil, nil))
}

// cancelPart cancels positions of a purchase as the app.
func cancelPart(s *fleet.System, id uuid.UUID, body string) fleet.Answer {
	return s.Execute("/v1/purchases/"+id.String()+"/cancel", fleet.RawJSON(body), "Prefer", fleet.UntilFinal)
}

func TestACancelledPurchaseIsFreeForAnotherAndSaysWhoAndWhy(t *testing.T) {
	t.Parallel()
	s := withUsers(fleet.Shared(t, busy))
	draft, limit := fixture.Draft(3), 1
	draft.PurchaseLimit = &limit
	mina := fleet.TokenFor(t, s.User("mina"), "")
	first := fleet.Order{Campaign: fixture.Campaign(t, s.DB, draft), User: s.User("mina"), Layer: 1, Wait: true}
	bought := s.Buy(first).Result.PurchaseID
	path := "/v1/purchases/" + bought.String()
	wantAnswer(t, "before", s.Read(path), `"state":"completed"`, `"cancellation":null`)
	cancelled := s.Cancel(s.App, bought, "back", "too dear")
	mustAnswer(t, "cancelled", cancelled, 200, job.Succeeded, `"kind":"cancellation"`, `"purchase_id":"`+bought.String()+`"`, `"amount":100`)
	if p := purchase(s, s.App, bought); p.State != "cancelled" || p.Cancellation.By != "app:"+s.Client("shop") || *p.Cancellation.Reason != "too dear" || len(p.Timeline) != 3 || p.Timeline[2].Event != "cancelled" {
		t.Errorf("after: %+v, %+v", p, p.Cancellation)
	}
	wantAnswer(t, "as the user reads it", s.Do(0, mina, http.MethodGet, path, nil, nil), `"by":"app"`)
	wantAnswer(t, "twice", s.Cancel(s.App, bought, "back again", ""), job.Failed, coded("state-conflict"))
	again := s.Buy(first) // the position is free, and so is her limit
	mustAnswer(t, "bought again", again, job.Succeeded)
	wantAnswer(t, "cancelled by its user", s.Cancel(mina, again.Result.PurchaseID, "k", ""), job.Succeeded)
	for credential, by := range map[string]string{s.Operator: "user:" + s.Client("shop") + "/" + s.User("mina"), mina: "user"} {
		wantAnswer(t, "by "+by, s.Do(0, credential, http.MethodGet, "/v1/purchases/"+again.Result.PurchaseID.String(), nil, nil), `"by":"`+by+`"`, `"reason":null`)
	}
	for body, says := range map[string]string{`{"reason":"` + strings.Repeat("r", 501) + `"}`: "/reason", `{"reason":"a\u0000b"}`: "/reason", `{"why":"x"}`: "/why"} {
		wantAnswer(t, fmt.Sprintf("%.20s", body), cancelPart(s, bought, body), 400, says)
	}
}

func TestAfterTheDeadlineAnOperatorCancelsAndAnAppDoesNot(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, busy)
	_, id := sells(s, fleet.Fields{"policies": fleet.Fields{"cancellation_until": time.Now().Add(-time.Minute)}})
	bought := s.Buy(fleet.Order{Campaign: id, User: "a", Wait: true}).Result.PurchaseID
	if a := s.Cancel(s.App, bought, "k", ""); a.Refusal() != "state-conflict" || !strings.Contains(a.Problem.Detail, "until") {
		t.Errorf("an app: %v", a)
	}
	wantAnswer(t, "an operator", s.Cancel(s.Operator, bought, "k", "a courtesy"), job.Succeeded)
	if p := purchase(s, s.App, bought); p.Cancellation == nil || p.Cancellation.By != "operator:"+s.Client("ops") {
		t.Errorf("%+v", p.Cancellation)
	}
}

func TestPositionsOfAPurchaseAreCancelledOverHTTP(t *testing.T) {
	t.Parallel()
	s := withUsers(fleet.Shared(t, busy))
	bought := s.Buy(fleet.Order{Campaign: s.Campaign(4), User: s.User("mina"), Layer: 4, Quantity: 4, Wait: true}).Result.PurchaseID
	mustAnswer(t, "", cancelPart(s, bought, `{"positions":[{"number":7},{"layer":4,"column":2}],"reason":"two are ill"}`), `"state":"completed","positions":[{"layer":4,"column":1,"number":7,"label":"7","price":400}`, `"amount":800`)
	p := purchase(s, fleet.TokenFor(t, s.User("mina"), ""), bought)
	if p.State != "completed" || p.Amount != 1600 || len(p.Positions) != 2 || p.Positions[0].Number != 9 || len(p.Partial) != 1 || len(p.Timeline) != 3 || p.Timeline[2].Event != "partially-cancelled" {
		t.Fatalf("%+v", p)
	}
	if part := p.Partial[0]; part.By != "app" || part.Reason != "two are ill" || part.Amount != 800 || len(part.Positions) != 2 {
		t.Errorf("%+v", part)
	}
	for body, pointer := range map[string]string{
		`{"positions":[{"number":9},{"number":1}]}`:           "/positions/1",
		`{"positions":[{"number":11}]}`:                       "/positions/0/number",
		`{"positions":[{"layer":4}]}`:                         "/positions/0",
		`{"positions":[{"number":9},{"layer":4,"column":3}]}`: "/positions/1",
		`{"positions":[]}`:                                    "/positions",
		`{"positions":[{"number":9}],"layer":4}`:              "/layer",
	} {
		wantAnswer(t, body, cancelPart(s, bought, body), 400, fmt.Sprintf("%q", pointer))
	}
	wantAnswer(t, "", cancelPart(s, bought, `{"positions":[{"number":9},{"number":7}]}`), coded("state-conflict"), "cancelled already")
	if whole := s.Cancel(s.App, bought, uuid.NewString(), ""); whole.State != job.Succeeded || whole.Result.Amount != 800 || len(whole.Result.Positions) != 2 {
		t.Errorf("the rest: %v %s", whole, whole.Body)
	}
}

// What a wallet has paid is back at once. What the app has collected is listed, each part and the rest, and one
// request resolves all of them.
func TestWhatAnAppOwesForACancelledPurchaseIsListedUntilItIsResolved(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, busy)
	for _, byWallet := range []bool{false, true} {
		id, user := s.Campaign(4), s.User("erin")
		if byWallet {
			s.Wallet(user, 2000)
		}
		bought := s.Buy(fleet.Order{Campaign: id, User: user, Layer: 4, Quantity: 4, ByWallet: byWallet, Wait: true}).Result.PurchaseID
		var shown []string
		note := func() {
			p := purchase(s, s.App, bought)
			shown = append(shown, fmt.Sprint(p.Refunded, p.Refunds))
		}
		cancelPart(s, bought, `{"positions":[{"number":7}]}`)
		note()
		s.Cancel(s.App, bought, uuid.NewString(), "")
		note()
		resolved := s.Execute("/v1/campaigns/"+id.String()+"/refunds/resolve", allByHand(s, id, map[bool]string{true: "wallet", false: "external"}[byWallet]))
		note()
		want, says := []string{"0 [{listed 400}]", "0 [{listed 400} {listed 1200}]", "1600 [{resolved 400} {resolved 1200}]"}, `"resolved":2,"amount":1600`
		if byWallet {
			want, says = []string{"400 [{succeeded 400}]", "1600 [{succeeded 400} {succeeded 1200}]", "1600 [{succeeded 400} {succeeded 1200}]"}, `"detail":"the wallet was already credited"`
		}
		if !slices.Equal(shown, want) || !fleet.Contains(resolved.Body, says) {
			t.Errorf("by wallet %t: %v, want %v; %s", byWallet, shown, want, resolved.Body)
		}
	}
}
