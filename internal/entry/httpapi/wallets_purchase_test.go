package httpapi_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/uuid"

	"triprize/internal/job"
	"triprize/internal/testkit/fleet"
)

// kinds returns what happened to a wallet, oldest first.
func kinds(s *fleet.System, path string) (kinds []string) {
	for _, e := range history(s, path) {
		kinds = append(kinds, fmt.Sprint(e.Kind, " ", e.DeltaBalance))
	}
	return kinds
}

func TestAPurchaseByWalletPaysExactlyAndACancellationGivesBackOnce(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, busy)
	id := s.Campaign(4)
	mina := s.Wallet(s.User("mina"), 1000)
	bought := s.Buy(fleet.Order{Campaign: id, User: s.User("mina"), Layer: 3, Quantity: 2, Wait: true, ByWallet: true, Key: "k"})
	if bought.State != job.Succeeded || bought.Result.Amount != 600 {
		t.Fatalf("%v %s", bought, bought.Body)
	}
	s.ExpectWallet(mina, 400, 0)
	events := history(s, mina)
	if e := events[1]; e.Kind != "purchase" || e.To != "sales" || e.Reference != "purchase:"+bought.ID.String() || e.Amount != 600 {
		t.Errorf("%+v", e)
	}
	document := fleet.As[struct {
		Payment struct{ Method, Reference string }
	}](t, s.Read("/v1/purchases/"+bought.Result.PurchaseID.String()))
	if document.Payment.Method != "wallet" || document.Payment.Reference != events[1].EntryID.String() {
		t.Errorf("the purchase says that it was paid %+v", document)
	}
	for range 2 {
		if again := s.Buy(fleet.Order{Campaign: id, User: s.User("mina"), Layer: 3, Quantity: 2, Wait: true, ByWallet: true, Key: "k"}); again.ID != bought.ID {
			t.Errorf("the same key: %v", again)
		}
	}
	if poor := s.Buy(fleet.Order{Campaign: id, User: s.User("mina"), Layer: 4, Quantity: 2, Wait: true, ByWallet: true}); poor.State != job.Failed || poor.Refusal() != "insufficient-funds" {
		t.Errorf("800 of 400: %v", poor)
	}
	if none := s.Buy(fleet.Order{Campaign: id, User: s.User("otto"), Wait: true, ByWallet: true}); none.State != job.Failed || none.Refusal() != "insufficient-funds" {
		t.Errorf("without a wallet: %v", none)
	}
	s.ExpectWallet(mina, 400, 0)
	answers := make([]fleet.Answer, 20)
	fleet.Together(len(answers), func(i int) { answers[i] = s.Cancel(s.App, bought.Result.PurchaseID, fmt.Sprint("cancel-", i), "") })
	if got := fleet.Count(answers); got["succeeded"] != 1 || got["state-conflict"] != 19 {
		t.Errorf("20 cancellations: %v", got)
	}
	s.ExpectWallet(mina, 1000, 0)
	if got := fmt.Sprint(kinds(s, mina)); got != "[credit 1000 purchase -600 refund 600]" {
		t.Errorf("the history is %s", got)
	}
	if again := s.Buy(fleet.Order{Campaign: id, User: s.User("mina"), Layer: 3, Quantity: 3, Wait: true, ByWallet: true}); again.State != job.Succeeded {
		t.Errorf("with the money that came back: %v", again)
	}
	s.ExpectWallet(mina, 100, 0)
}

// Every entry says who asked for it, and those of a purchase say which.
func TestAHistorySaysForWhichPurchaseAndForWhom(t *testing.T) {
	t.Parallel()
	s := withUsers(fleet.Shared(t, busy))
	id, user := s.Campaign(4), s.User("mina")
	mina := s.Wallet(user, 2000)
	token := fleet.TokenFor(t, user, "")
	post := func(credential, path string, body fleet.Fields) fleet.Answer {
		return s.Do(0, credential, http.MethodPost, path, map[string]string{"Idempotency-Key": uuid.NewString(), "Prefer": fleet.UntilFinal}, body)
	}
	bought := post(token, "/v1/campaigns/"+id.String()+"/purchases", fleet.Fields{"user_id": user, "selection": fleet.Fields{"layer": 4, "quantity": 4}, "payment": fleet.Fields{"method": "wallet"}})
	if bought.State != job.Succeeded {
		t.Fatalf("%v %s", bought, bought.Body)
	}
	cancel := "/v1/purchases/" + bought.Result.PurchaseID.String() + "/cancel"
	part, whole := post(s.App, cancel, fleet.Fields{"positions": []fleet.Fields{{"number": 7}}}), post(s.Operator, cancel, fleet.Fields{})
	signature := func(credential string) string { // as the documents of those who cancel have it
		by := fleet.As[struct {
			Cancellation struct{ By string }
			Partial      []struct{ By string } `json:"partial_cancellations"`
		}](t, s.Read("/v1/purchases/"+bought.Result.PurchaseID.String()))
		if credential == s.App {
			return by.Partial[0].By
		}
		return by.Cancellation.By
	}
	purchase := "refund:" + bought.Result.PurchaseID.String()
	want := []eventView{
		{Kind: "credit"},
		{Kind: "purchase", Reference: "purchase:" + bought.ID.String()},
		{Kind: "refund", Reference: purchase + ":" + part.ID.String(), Actor: signature(s.App)},
		{Kind: "refund", Reference: purchase, Actor: signature(s.Operator)},
	}
	got := history(s, mina)
	if len(got) != len(want) || whole.State != job.Succeeded {
		t.Fatalf("%+v", got)
	}
	for i, e := range got {
		role := []string{"", "user:", "app:", "operator:"}[i]
		if w := want[i]; e.Kind != w.Kind || w.Reference != "" && e.Reference != w.Reference || w.Actor != "" && e.Actor != w.Actor || !strings.HasPrefix(e.Actor, role) ||
			e.Actor == "system" || (i == 0) != (e.PurchaseID == nil) || i > 0 && *e.PurchaseID != bought.Result.PurchaseID {
			t.Errorf("entry %d: %+v, want %+v by %s", i, e, w, role)
		}
	}
	if !strings.HasSuffix(got[1].Actor, "/"+user) {
		t.Errorf("the buyer is not named: %s", got[1].Actor)
	}
	own := fleet.As[eventPage](t, s.Do(0, token, http.MethodGet, mina+"/events?from_version=1", nil, nil))
	for i, role := range []string{"app", "user", "app", "operator"} {
		if got := own.Events[i].Actor; i > 0 && got != role || strings.Contains(got, ":") {
			t.Errorf("she sees that it was %s", got)
		}
	}
}

func TestPurchasesOfOneUserAtOnceSpendItsMoneyOnce(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Workers: -1})
	id := s.Campaign(10)
	mina := s.Wallet("mina", 2*1000+999)
	orders := s.Crowd(12, func(i int) fleet.Order {
		if i < 5 {
			return fleet.Order{Campaign: id, User: "mina", Layer: 10, ByWallet: true}
		}
		return fleet.Order{Campaign: id, User: fmt.Sprint("other-", i), Layer: 9}
	})
	s.RunWorker()
	for i := range orders {
		if orders[i] = s.AwaitJob(0, orders[i].ID); i >= 5 && orders[i].State != job.Succeeded {
			t.Errorf("another: %v", orders[i])
		}
	}
	if got := fleet.Count(orders[:5]); got["succeeded"] != 2 || got["insufficient-funds"] != 3 {
		t.Errorf("five of 1000 with 2999: %v", got)
	}
	s.ExpectWallet(mina, 999, 0)
}
