package e2e

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/google/uuid"

	"triprize/internal/store/job"
)

// kinds returns what happened to a wallet, oldest first.
func (s *system) kinds(path string) (kinds []string) {
	for _, e := range s.history(path, "from_version=1", func() {}) {
		kinds = append(kinds, fmt.Sprint(e.Kind, " ", e.DeltaBalance))
	}
	return kinds
}

// sales returns what wallets have paid for purchases, less what they got back, by
// the ledger and by the purchases.
func (s *system) sales() (ledger, purchases int64) {
	s.t.Helper()
	err := s.db.QueryRow(s.t.Context(), `
		SELECT (SELECT coalesce(sum(CASE kind WHEN 'purchase' THEN amount ELSE -amount END), 0)::bigint FROM ledger_entries WHERE kind IN ('purchase', 'refund')),
		       (SELECT coalesce(sum(amount), 0)::bigint FROM purchases WHERE payment_method = 'wallet' AND state = 'completed')`).Scan(&ledger, &purchases)
	if err != nil {
		s.t.Fatal(err)
	}
	return ledger, purchases
}

func TestAPurchaseByWalletPaysExactlyAndACancellationGivesBackOnce(t *testing.T) {
	t.Parallel()
	s := start(t, options{apis: 2, workers: 2})
	id := s.campaign(4)
	mina := s.wallet("mina", 1000)
	bought := s.buy(order{campaign: id, user: "mina", layer: 3, quantity: 2, wait: 20, byWallet: true, key: "k"})
	if bought.State != job.Succeeded || bought.Result.Amount != 600 {
		t.Fatalf("%v %s", bought, bought.body)
	}
	s.expectWallet(mina, 400, 0)
	events := s.history(mina, "", func() {})
	if e := events[0]; e.Kind != "purchase" || e.To != "sales" || e.Reference != "purchase:"+bought.ID.String() || e.Amount != 600 {
		t.Errorf("%+v", e)
	}
	document := as[struct {
		Payment struct{ Method, Reference string }
	}](t, s.see("/v1/purchases/"+bought.Result.PurchaseID.String()))
	if document.Payment.Method != "wallet" || document.Payment.Reference != events[0].EntryID.String() {
		t.Errorf("the purchase says that it was paid %+v", document)
	}
	for range 2 {
		if again := s.buy(order{campaign: id, user: "mina", layer: 3, quantity: 2, wait: 20, byWallet: true, key: "k"}); again.ID != bought.ID {
			t.Errorf("the same key: %v", again)
		}
	}
	if poor := s.buy(order{campaign: id, user: "mina", layer: 4, quantity: 2, wait: 20, byWallet: true}); poor.State != job.Failed || poor.code() != "insufficient-funds" {
		t.Errorf("800 of 400: %v", poor)
	}
	if none := s.buy(order{campaign: id, user: "otto", wait: 20, byWallet: true}); none.State != job.Failed || none.code() != "insufficient-funds" {
		t.Errorf("without a wallet: %v", none)
	}
	s.expectWallet(mina, 400, 0)
	answers := make([]answer, 20)
	together(len(answers), func(i int) { answers[i] = s.cancel(s.app, bought.Result.PurchaseID, fmt.Sprint("cancel-", i), "") })
	if got := tally(answers); got["succeeded"] != 1 || got["state-conflict"] != 19 {
		t.Errorf("20 cancellations: %v", got)
	}
	s.expectWallet(mina, 1000, 0)
	if got := fmt.Sprint(s.kinds(mina)); got != "[credit 1000 purchase -600 refund 600]" {
		t.Errorf("the history is %s", got)
	}
	if again := s.buy(order{campaign: id, user: "mina", layer: 3, quantity: 3, wait: 20, byWallet: true}); again.State != job.Succeeded {
		t.Errorf("with the money that came back: %v", again)
	}
	s.expectWallet(mina, 100, 0)
}

func TestPurchasesOfOneUserAtOnceSpendItsMoneyOnce(t *testing.T) {
	t.Parallel()
	s := start(t, options{workers: -1})
	id := s.campaign(10)
	mina := s.wallet("mina", 2*1000+999)
	orders := s.crowd(12, func(i int) order {
		if i < 5 {
			return order{campaign: id, user: "mina", layer: 10, byWallet: true}
		}
		return order{campaign: id, user: fmt.Sprint("other-", i), layer: 9}
	})
	s.startWorker()
	for i := range orders {
		if orders[i] = s.awaitJob(0, orders[i].ID); i >= 5 && orders[i].State != job.Succeeded {
			t.Errorf("another: %v", orders[i])
		}
	}
	if got := tally(orders[:5]); got["succeeded"] != 2 || got["insufficient-funds"] != 3 {
		t.Errorf("five of 1000 with 2999: %v", got)
	}
	s.expectWallet(mina, 999, 0)
}

func TestAUserBuysWithItsOwnWallet(t *testing.T) {
	t.Parallel()
	s := start(t, options{env: trusting.env})
	id := s.campaign(4)
	mina, otto := s.wallet("mina", 1000), s.wallet("otto", 1000)
	token := tokenFor(t, "mina", "")
	post := func(path string, body fields) answer {
		return s.do(0, token, http.MethodPost, path, map[string]string{"Idempotency-Key": uuid.NewString(), "Prefer": "wait=20"}, body)
	}
	path := "/v1/campaigns/" + id.String()
	buy := func(user, method string, selection fields) answer {
		return post(path+"/purchases", fields{"user_id": user, "selection": selection, "payment": fields{"method": method}})
	}
	if a := buy("mina", "external", fields{"quantity": 1}); a.status != http.StatusForbidden {
		t.Errorf("paid, she says: %v", a)
	}
	if a := buy("otto", "wallet", fields{"quantity": 1}); a.status != http.StatusForbidden {
		t.Errorf("in his name: %v", a)
	}
	if a := buy("mina", "wallet", fields{"layer": 2, "quantity": 1}); a.State != job.Succeeded {
		t.Errorf("%v %s", a, a.body)
	}
	s.expectWallet(mina, 800, 0)
	held := post(path+"/holds", fields{"user_id": "mina", "positions": []fields{{"layer": 3, "column": 1}, {"layer": 4, "column": 4}}})
	if held.status != http.StatusCreated {
		t.Fatalf("%v %s", held, held.body)
	}
	s.expectWallet(mina, 800, 0)
	if a := buy("mina", "wallet", fields{"hold_id": held.ID}); a.State != job.Succeeded || a.Result.Amount != 700 {
		t.Errorf("the hold: %v %s", a, a.body)
	}
	s.expectWallet(mina, 100, 0)
	if again := buy("mina", "wallet", fields{"hold_id": held.ID}); again.State != job.Failed {
		t.Errorf("the hold, once more: %v", again)
	}
	poor := post(path+"/holds", fields{"user_id": "mina", "positions": []fields{{"layer": 4, "column": 1}}})
	if a := buy("mina", "wallet", fields{"hold_id": poor.ID}); a.code() != "insufficient-funds" {
		t.Errorf("a hold that she cannot pay: %v", a)
	}
	if h := s.see("/v1/holds/" + poor.ID.String()); h.State != "active" {
		t.Errorf("it is %v", h)
	}
	s.tell(mina+"/credit", fields{"amount": 300})
	if a := buy("mina", "wallet", fields{"hold_id": poor.ID}); a.State != job.Succeeded {
		t.Errorf("with more money: %v", a)
	}
	s.expectWallet(mina, 0, 0)
	s.expectWallet(otto, 1000, 0)
}

func TestASaleThatWalletsPayEndsInOneDrawAndTheMoneyAddsUp(t *testing.T) {
	t.Parallel()
	s := start(t, options{apis: 2, workers: 2})
	id := s.campaign(8) // 36 positions
	const buyers = 12
	for i := range buyers {
		s.wallet(fmt.Sprint("buyer-", i), 8000)
	}
	answers := s.crowd(buyers*5, func(i int) order {
		return order{campaign: id, user: fmt.Sprint("buyer-", i%buyers), wait: 30, byWallet: true, api: i}
	})
	if got := tally(answers); got["succeeded"] != 36 || got["sold-out"] != buyers*5-36 {
		t.Errorf("%v", got)
	}
	s.awaitDrawn(30*time.Second, id)
	if n := s.draws(); n != 1 {
		t.Errorf("%d draws", n)
	}
	ledger, purchases := s.sales()
	if ledger != purchases || ledger != 100+200*2+300*3+400*4+500*5+600*6+700*7+800*8 {
		t.Errorf("the ledger has sold for %d, the purchases cost %d", ledger, purchases)
	}
}
