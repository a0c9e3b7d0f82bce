//go:build soak

package e2e

import (
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
)

// A purchase waits for its buyer, and the provider forgets all of it: what is asked of it
// then cannot be. Only an operator can end this, and does so by the tool.
func TestAPaymentThatIsGoneAtTheProviderIsEndedByAnOperator(t *testing.T) {
	t.Parallel()
	s := cardSystem(t, fleet.Options{})
	id := s.Campaign(3)
	ordered := buyByCard(s, id, "mina", "pm_card_authenticationRequired")
	bought := awaitAction(s, ordered).PurchaseID
	s.Sandbox.Stop()
	s.Sandbox.Start() // without a folder it has forgotten everything
	back := s.Do(0, s.App, http.MethodPost, "/v1/purchases/"+bought.String()+"/cancel", map[string]string{"Idempotency-Key": uuid.NewString()}, nil)
	if back.Status != http.StatusAccepted {
		t.Fatalf("%v %s", back, back.Body)
	}
	env := operating(s)
	servers.Eventually(t, "the payment waits for an operator", func() bool {
		stdout, _, _ := run(t, env, "payments", "list", "--waiting-for", "operator")
		return strings.Contains(stdout, bought.String())
	})
	if stdout, stderr, status := run(t, env, "payments", "retry", bought.String()); status != 0 || !strings.Contains(stdout, `"waiting_for":"operator"`) {
		t.Errorf("retry: %d %s%s", status, stdout, stderr)
	}
	servers.Eventually(t, "the payment is resolved", func() bool { // it is refused while a worker asks the provider once more
		_, stderr, status := run(t, env, "payments", "resolve", bought.String(), "--outcome", "unpaid", "--reason", "the sandbox was reset")
		if status != 0 && !strings.Contains(stderr, "retry in a moment") {
			t.Fatalf("settle: %s", stderr)
		}
		return status == 0
	})
	if j := s.AwaitJob(0, ordered); j.State != job.Failed || j.Problem.Code != "purchase-cancelled" {
		t.Errorf("the purchase ends with %v %s", j, j.Body)
	}
	if j := s.AwaitJob(0, back.ID); j.State != job.Succeeded {
		t.Errorf("the cancellation ends with %v %s", j, j.Body)
	}
	if a := s.Do(0, s.App, http.MethodGet, "/v1/purchases/"+bought.String(), nil, nil); !strings.Contains(string(a.Body), "unpaid, says operator:ops: the sandbox was reset") {
		t.Errorf("the timeline: %s", a.Body)
	}
	if free := s.CampaignNow(id).Counts.Available(); free != 6 {
		t.Errorf("%d positions are free", free)
	}
	if _, stderr, status := run(t, env, "payments", "resolve", bought.String(), "--outcome", "unpaid", "--reason", "r"); status != 1 || !strings.Contains(stderr, "state-conflict") {
		t.Errorf("again: %d %s", status, stderr)
	}
}

// The bank has the money of a disputed charge, and somebody refunds another one at the
// provider by hand: both are seen, and neither is paid back twice.
func TestWhatHappensAtTheProviderBesideUsIsSeenAndPaysNothingTwice(t *testing.T) {
	t.Parallel()
	s := cardSystem(t, fleet.Options{})
	id := s.Campaign(3)
	disputed, kept, sentBack := buyPaid(s, id, "alice", "pm_card_createDispute"), buyPaid(s, id, "bob", "pm_card_visa"), buyPaid(s, id, "carol", "pm_card_refundFail")
	servers.Eventually(t, "the dispute is recorded", func() bool { return viewPurchase(s, disputed).Dispute != nil })
	if j := s.AwaitJob(0, s.Cancel(s.App, disputed, uuid.NewString(), "").ID); j.State != job.Failed || j.Problem.Code != "purchase-disputed" {
		t.Errorf("an app cancels it: %v %s", j, j.Body)
	}
	if a := s.Cancel(s.Operator, disputed, uuid.NewString(), ""); a.Status != http.StatusOK || a.State != job.Succeeded {
		t.Errorf("an operator cancels it: %v %s", a, a.Body)
	}
	servers.Eventually(t, "its refund waits for an operator", func() bool {
		a := s.Do(0, s.Operator, http.MethodGet, "/v1/refunds?waiting_for=operator", nil, nil)
		return strings.Contains(string(a.Body), disputed.String()) && strings.Contains(string(a.Body), "disputed: the bank has the money")
	})
	refundByHand(s, kept)
	refundByHand(s, sentBack)
	servers.Eventually(t, "the refund by hand is in the timeline", func() bool { return viewPurchase(s, kept).happened("refunded-out-of-band") })
	servers.Eventually(t, "the one that fails later is in the timeline, and so is its failure", func() bool {
		p := viewPurchase(s, sentBack)
		return p.happened("refunded-out-of-band") && p.happened("out-of-band-refund-failed")
	})
	for _, bought := range []uuid.UUID{kept, sentBack} {
		if p := viewPurchase(s, bought); p.State != "completed" {
			t.Errorf("it is %s", p.State)
		}
	}
}

// refundByHand refunds a purchase at the provider, as somebody does in its dashboard.
func refundByHand(s *fleet.System, bought uuid.UUID) {
	s.T.Helper()
	refundPart(s, bought, s.Sandbox.PaymentsOf(bought.String())[0].Captured)
}

// refundAtProvider refunds an amount of an intent at the provider.
func refundAtProvider(s *fleet.System, intent string, amount money.Amount) fleet.Answer {
	s.T.Helper()
	return askProvider(s, "/v1/refunds", url.Values{"payment_intent": {intent}, "amount": {strconv.FormatInt(int64(amount), 10)}})
}

// askProvider sends a call of our own to the provider, as from its dashboard.
func askProvider(s *fleet.System, path string, form url.Values) fleet.Answer {
	s.T.Helper()
	request, err := http.NewRequest(http.MethodPost, s.Sandbox.URL+path, strings.NewReader(form.Encode()))
	if err != nil {
		s.T.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	request.Header.Set("Authorization", "Bearer "+fleet.SandboxKey)
	return fleet.Send(request)
}

// One card takes no money back, and one asks its buyer first: an operator sees to the
// first by the tool, and hears nothing of the second.
func TestAnOperatorSeesToTheRefundsThatNobodyElseCanEnd(t *testing.T) {
	t.Parallel()
	s := cardSystem(t, fleet.Options{})
	id := s.Campaign(3)
	refused, asks := buyPaid(s, id, "alice", "pm_card_refundFail"), buyPaid(s, id, "bob", "pm_sandbox_refund_requires_action")
	for _, bought := range []uuid.UUID{refused, asks} {
		s.AwaitJob(0, s.Cancel(s.App, bought, uuid.NewString(), "").ID)
	}
	servers.Eventually(t, "both refunds wait", func() bool {
		one, other := viewPurchase(s, refused).Refund(), viewPurchase(s, asks).Refund()
		return one.State == "failed" && other.State == "requires_action"
	})
	env := operating(s)
	stdout, _, _ := run(t, env, "refunds", "list")
	if !strings.Contains(stdout, refused.String()) || strings.Contains(stdout, asks.String()) {
		t.Errorf("the tool lists %s", stdout)
	}
	a := s.Do(0, s.Operator, http.MethodGet, "/v1/refunds?waiting_for=operator", nil, nil)
	if !strings.Contains(string(a.Body), refused.String()) || strings.Contains(string(a.Body), asks.String()) {
		t.Errorf("the api lists %s", a.Body)
	}
	refund := viewPurchase(s, refused).Refund().ID
	if stdout, stderr, status := run(t, env, "refunds", "resolve", refund, "--reason", "by bank transfer"); status != 0 || !strings.Contains(stdout, `"by":"operator:ops"`) {
		t.Errorf("settle: %d %s%s", status, stdout, stderr)
	}
	if p := viewPurchase(s, refused); p.State != "refunded" || p.Refund().State != "resolved" {
		t.Errorf("it is %s, its refund is %s", p.State, p.Refund().State)
	}
	other := viewPurchase(s, asks).Refund().ID
	if _, stderr, status := run(t, env, "refunds", "retry", other); status != 1 || !strings.Contains(stderr, "waiting_for is operator") {
		t.Errorf("a retry of what waits for its buyer: %d %s", status, stderr)
	}
}
