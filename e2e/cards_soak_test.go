//go:build soak

package e2e

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/google/uuid"

	"triprize/internal/domain/money"
	"triprize/internal/job"
	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"
	"triprize/sandbox/stripesim"
)

// askProvider sends a call of our own to the provider, as from its dashboard.
func askProvider(api, key, method, path string, form url.Values) fleet.Answer {
	request, err := http.NewRequest(method, api+path, strings.NewReader(form.Encode()))
	if err != nil {
		return fleet.Answer{Err: err}
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	request.Header.Set("Authorization", "Bearer "+key)
	return fleet.Send(request)
}

// refundAtProvider refunds an amount of an intent at the provider.
func refundAtProvider(s *fleet.System, intent string, amount money.Amount) fleet.Answer {
	form := url.Values{"payment_intent": {intent}, "amount": {strconv.FormatInt(int64(amount), 10)}}
	return askProvider(s.Sandbox.URL, fleet.SandboxKey, http.MethodPost, "/v1/refunds", form)
}

// refundByHand refunds a purchase at the provider, as somebody does in its dashboard.
func refundByHand(s *fleet.System, bought uuid.UUID) {
	s.T.Helper()
	paid := s.Sandbox.PaymentsOf(bought.String())[0]
	if a := refundAtProvider(s, paid.ID, paid.Captured); a.Status != http.StatusOK {
		s.T.Fatalf("the refund by hand: %v %s", a, a.Body)
	}
}

// listed tells whether a list of what waits for an operator has all of these texts.
func listed(s *fleet.System, path string, texts ...string) bool {
	a := s.Do(0, s.Operator, http.MethodGet, path+"?waiting_for=operator", nil, nil)
	for _, text := range texts {
		if !fleet.Contains(a.Body, text) {
			return false
		}
	}
	return true
}

// cancelled asks for the cancellation of a purchase as the app, and returns how its job ends.
func cancelled(s *fleet.System, bought uuid.UUID) fleet.Answer {
	return s.AwaitJob(0, s.Cancel(s.App, bought, uuid.NewString(), "").ID)
}

func TestEveryTestCardEndsAsTheGuideSays(t *testing.T) {
	t.Parallel()
	s := cardSystem(t, fleet.Options{Workers: 2})
	campaign := s.Campaign(20)
	t.Run("cards", func(t *testing.T) {
		for i, c := range cardCases {
			t.Run(fmt.Sprintf("%s-%d", c.method, i), func(t *testing.T) {
				t.Parallel()
				id := buyByCard(s, campaign, fmt.Sprintf("buyer-%d", i), c.method)
				if c.meanwhile != nil {
					c.meanwhile(t, s, id)
				}
				s.AwaitJob(0, id)
				expectCard(t, s, c, viewJob(s, id))
			})
		}
	})
	if n := s.Sandbox.Totals().RateLimited; n != 0 {
		t.Errorf("%d calls were refused as too many", n)
	}
	expectReturn(s, campaign)
	expectLedgersAgree(s)
}

// One card takes no money back, one asks its buyer first, and of one the bank has the money: an operator sees to the
// first and the last, and hears nothing of the other.
func TestARefundThatTheProviderRefusesWaitsForAnOperator(t *testing.T) {
	t.Parallel()
	s := cardSystem(t, fleet.Options{})
	id, env := s.Campaign(3), operating(s)
	refused, asks, disputed := buyPaid(s, id, "alice", "pm_card_refundFail"), buyPaid(s, id, "bob", "pm_sandbox_refund_requires_action"), buyPaid(s, id, "carol", "pm_card_createDispute")
	servers.Eventually(t, "the dispute is recorded", func() bool { return viewPurchase(s, disputed).Dispute != nil })
	if j := cancelled(s, disputed); j.State != job.Failed || j.Problem.Code != "purchase-disputed" {
		t.Errorf("an app cancels what is disputed: %v %s", j, j.Body)
	}
	if a := s.Cancel(s.Operator, disputed, uuid.NewString(), ""); a.Status != http.StatusOK || a.State != job.Succeeded {
		t.Errorf("an operator cancels it: %v %s", a, a.Body)
	}
	cancelled(s, refused)
	cancelled(s, asks)
	state := func(bought uuid.UUID) string { return viewPurchase(s, bought).Refund().State }
	servers.Eventually(t, "the refunds wait", func() bool {
		return state(refused) == "failed" && state(asks) == "requires_action" && viewPurchase(s, refused).State == "refunding"
	})
	servers.Eventually(t, "they are listed", func() bool {
		return listed(s, "/v1/refunds", refused.String(), disputed.String(), "disputed: the bank has the money")
	})
	stdout, _, _ := run(t, env, "refunds", "list")
	if !strings.Contains(stdout, refused.String()) || strings.Contains(stdout, asks.String()) || listed(s, "/v1/refunds", asks.String()) {
		t.Errorf("the tool lists %s", stdout)
	}
	refund, intent := viewPurchase(s, refused).Refund().ID, s.Sandbox.PaymentsOf(refused.String())[0].ID
	if a := s.Post("/v1/refunds/"+refund+"/retry", nil); a.Status != http.StatusOK {
		t.Errorf("the retry: %s, %s", a, a.Body)
	}
	servers.Eventually(t, "it was tried again, and has failed", func() bool { return len(s.Sandbox.RefundsOf(intent)) == 2 && state(refused) == "failed" })
	if a := s.Execute("/v1/refunds/"+refund+"/resolve", fleet.Fields{"reason": "by me"}); a.Status != http.StatusForbidden {
		t.Errorf("an app resolves a refund of a card: %s", a)
	}
	servers.Eventually(t, "an operator resolves it", func() bool { // it is refused while a worker has it
		stdout, _, status := run(t, env, "refunds", "resolve", refund, "--reason", "by bank transfer")
		return status == 0 && strings.Contains(stdout, `"by":"operator:ops"`)
	})
	if p := viewPurchase(s, refused); p.State != "refunded" || p.Refund().State != "resolved" || !p.happened("refund-resolved") {
		t.Errorf("%+v", p)
	}
	if _, stderr, status := run(t, env, "refunds", "retry", viewPurchase(s, asks).Refund().ID); status != 1 || !strings.Contains(stderr, "waiting_for is operator") {
		t.Errorf("a retry of what waits for its buyer: %d %s", status, stderr)
	}
}

// A restricted key loses the right to refund, and later the key expires: operators see what
// waits for it and why, payments go on without the refunds, and a mended key ends all of it.
func TestAKeyThatIsRefusedIsForOperatorsAndHoldsUpNothingElse(t *testing.T) {
	t.Parallel()
	s := cardSystem(t, fleet.Options{})
	id := s.Campaign(10)
	key := func(k stripesim.Key) {
		if err := s.Sandbox.SetKey(k); err != nil {
			t.Fatal(err)
		}
	}
	retry := func(path string) {
		t.Helper()
		if a := s.Post(path+"/retry", nil); a.Status != http.StatusOK {
			t.Errorf("%v %s", a, a.Body)
		}
	}
	returned := buyPaid(s, id, "mina", "pm_card_visa")
	key(stripesim.Key{Lacks: []string{"charge_write"}})
	cancelled(s, returned)
	servers.Eventually(t, "the refund is the operators'", func() bool { return listed(s, "/v1/refunds", returned.String(), "rak_charge_write") })
	for range 6 { // more than failures open a breaker
		buyPaid(s, id, "gina", "pm_card_visa")
	}
	if a := s.Do(0, s.Operator, http.MethodPost, "/v1/sweeps/missing-permissions", nil, nil); a.Status != http.StatusOK || !fleet.Contains(a.Body, `"missing":1`) {
		t.Errorf("the sweep: %v %s", a, a.Body)
	}
	key(stripesim.Key{})
	retry("/v1/refunds/" + viewPurchase(s, returned).Refund().ID)
	awaitPurchase(s, returned, "refunded")

	key(stripesim.Key{Expired: true})
	ordered := buyByCard(s, id, "otto", "pm_card_visa")
	servers.Eventually(t, "the purchase has begun", func() bool { return viewJob(s, ordered).PurchaseID != uuid.Nil })
	bought := viewJob(s, ordered).PurchaseID.String()
	servers.Eventually(t, "the payment is the operators'", func() bool { return listed(s, "/v1/payments", bought, "Expired API Key") })
	key(stripesim.Key{})
	retry("/v1/payments/" + bought)
	if a := s.AwaitJob(0, ordered); a.State != job.Succeeded {
		t.Errorf("with the key mended: %s", a)
	}
	if listed(s, "/v1/payments", bought) || listed(s, "/v1/refunds", returned.String()) {
		t.Error("they wait for an operator still")
	}
}

// A purchase waits for its buyer, and the provider forgets all of it: what is asked of it
// then cannot be. Only an operator can end this, and does so by the tool.
func TestAPaymentThatIsGoneAtTheProviderIsEndedByAnOperator(t *testing.T) {
	t.Parallel()
	s := cardSystem(t, fleet.Options{})
	id, env := s.Campaign(3), operating(s)
	ordered := buyByCard(s, id, "mina", "pm_card_authenticationRequired")
	bought := awaitAction(s, ordered).PurchaseID
	s.Sandbox.Stop()
	s.Sandbox.Start() // without a folder it has forgotten everything
	back := s.Execute("/v1/purchases/"+bought.String()+"/cancel", nil)
	if back.Status != http.StatusAccepted {
		t.Fatalf("%v %s", back, back.Body)
	}
	servers.Eventually(t, "the payment waits for an operator", func() bool {
		stdout, _, _ := run(t, env, "payments", "list", "--waiting-for", "operator")
		return strings.Contains(stdout, bought.String())
	})
	if stdout, stderr, status := run(t, env, "payments", "retry", bought.String()); status != 0 || !strings.Contains(stdout, `"waiting_for":"operator"`) {
		t.Errorf("retry: %d %s%s", status, stdout, stderr)
	}
	resolve := []string{"payments", "resolve", bought.String(), "--outcome", "unpaid", "--reason", "the sandbox was reset"}
	servers.Eventually(t, "the payment is resolved", func() bool { // it is refused while a worker asks the provider once more
		_, stderr, status := run(t, env, resolve...)
		if status != 0 && !strings.Contains(stderr, "retry in a moment") {
			t.Fatalf("resolve: %s", stderr)
		}
		return status == 0
	})
	if j := s.AwaitJob(0, ordered); j.State != job.Failed || j.Refusal() != "purchase-cancelled" {
		t.Errorf("the purchase ends with %v %s", j, j.Body)
	}
	if j := s.AwaitJob(0, back.ID); j.State != job.Succeeded {
		t.Errorf("the cancellation ends with %v %s", j, j.Body)
	}
	if a := s.Read("/v1/purchases/" + bought.String()); !fleet.Contains(a.Body, "unpaid, says operator:ops: the sandbox was reset") {
		t.Errorf("the timeline: %s", a.Body)
	}
	if free := s.CampaignNow(id).Counts.Available(); free != 6 {
		t.Errorf("%d positions are free", free)
	}
	if _, stderr, status := run(t, env, resolve...); status != 1 || !strings.Contains(stderr, "state-conflict") {
		t.Errorf("again: %d %s", status, stderr)
	}
}

func TestACancelledCampaignGivesEveryYenBack(t *testing.T) {
	t.Parallel()
	s := cardSystem(t, fleet.Options{Workers: 2})
	campaign := s.Campaign(5)
	wallet := s.Wallet("wanda", 100_000)
	card := buyPaid(s, campaign, "carl", "pm_card_visa")
	slow := buyByCard(s, campaign, "anna", "pm_card_authenticationRequired")
	awaiting := awaitAction(s, slow)
	if a := s.Buy(fleet.Order{Campaign: campaign, User: "wanda", ByWallet: true, Wait: true}); a.State != job.Succeeded {
		t.Fatal(a)
	}
	external := s.Buy(fleet.Order{Campaign: campaign, User: "otto", Wait: true})
	ended := s.Do(0, s.Operator, http.MethodPost, "/v1/campaigns/"+campaign.String()+"/cancel",
		map[string]string{"Idempotency-Key": uuid.NewString(), "Prefer": fleet.UntilFinal}, fleet.Fields{"reason": "the hall has burnt down"})
	if ended.State != job.Succeeded {
		t.Fatalf("%s %s", ended, ended.Body)
	}
	awaitPurchase(s, card, "refunded")
	if a := s.AwaitJob(0, slow); a.Refusal() != "campaign-not-active" {
		t.Errorf("the job that awaited its buyer: %s", a)
	}
	if p := viewPurchase(s, awaiting.PurchaseID); p.State != "failed" {
		t.Errorf("its purchase is %s", p.State)
	}
	s.ExpectWallet(wallet, 100_000, 0)
	list := fleet.As[struct {
		Refunds []struct {
			ID, State, Method string
			PurchaseID        uuid.UUID `json:"purchase_id"`
		}
	}](t, s.Do(0, s.Operator, http.MethodGet, "/v1/campaigns/"+campaign.String()+"/refunds", nil, nil))
	states := make(map[string]string)
	for _, r := range list.Refunds {
		states[r.Method] = r.State
		if r.Method != "external" {
			continue
		}
		if r.PurchaseID != external.Result.PurchaseID {
			t.Errorf("the refund for the app to do is of %s", r.PurchaseID)
		}
		if a := s.Execute("/v1/refunds/"+r.ID+"/resolve", fleet.Fields{"reason": "paid out at the till"}); a.Status != http.StatusOK {
			t.Errorf("an app resolves its own: %s %s", a, a.Body)
		}
	}
	if want := "map[card:succeeded external:listed wallet:succeeded]"; fmt.Sprint(states) != want {
		t.Errorf("refunds %v, want %s", states, want)
	}
	if counts := s.CampaignNow(campaign).Counts; counts.Sold != 0 || counts.Reserved != 0 {
		t.Errorf("%+v", counts)
	}
	expectLedgersAgree(s)
}

func TestMoneyThatComesLateFollowsThePolicy(t *testing.T) {
	t.Parallel()
	s := cardSystem(t, fleet.Options{})
	for name, policy := range map[string]struct {
		campaign uuid.UUID
		state    string
		step     string
		code     string // of the job
	}{
		"refund":   {s.Campaign(3), "refunded", "payment-late", "reservation-expired"},
		"reassign": {lenient(s, 3), "completed", "reassigned", ""}, // the policy late_payment
	} {
		id, purchase := buyLate(s, policy.campaign)
		if state := viewJob(s, id).State; state.Final() {
			t.Errorf("%s: the job is %s before the provider has decided", name, state)
		}
		if err := s.Sandbox.Finish(s.Sandbox.PaymentsOf(purchase.String())[0].ID, true); err != nil {
			t.Fatal(err)
		}
		if p := awaitPurchase(s, purchase, policy.state); !p.happened(policy.step) {
			t.Errorf("%s: %+v", name, p.Timeline)
		}
		if a := s.AwaitJob(0, id); a.Refusal() != policy.code {
			t.Errorf("%s: the job ends as %v", name, a)
		}
	}
	expectLedgersAgree(s)
}

// buyLate buys with a slow payment whose positions are free again before the provider has decided.
func buyLate(s *fleet.System, campaign uuid.UUID) (ordered, bought uuid.UUID) {
	s.T.Helper()
	ordered = buyByCard(s, campaign, "alice", "pm_sandbox_processing")
	servers.Eventually(s.T, "the provider has it", func() bool {
		return servers.Value[bool](s.T, s.DB, `SELECT EXISTS (SELECT FROM payments WHERE job_id = $1 AND phase = 'processing')`, ordered)
	})
	endReservation(s, ordered)
	bought = viewJob(s, ordered).PurchaseID
	servers.Eventually(s.T, "the positions are free again", func() bool { return viewPurchase(s, bought).happened("released") })
	return ordered, bought
}
