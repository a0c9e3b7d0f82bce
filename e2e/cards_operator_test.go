package e2e

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"triprize/internal/store/job"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/fleet"
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
	env := []string{"TRIPRIZE_POSTGRES_URL=" + s.Settings.Postgres.URL, "TRIPRIZE_REDIS_URL=" + s.Settings.Redis.URL}
	for stdout := ""; !strings.Contains(stdout, bought.String()); time.Sleep(100 * time.Millisecond) {
		if t.Context().Err() != nil {
			t.Fatal("it never waits for an operator")
		}
		stdout, _, _ = run(t, env, "payments", "list", "--waiting-for", "operator")
	}
	if stdout, stderr, status := run(t, env, "payments", "retry", bought.String()); status != 0 || !strings.Contains(stdout, `"waiting_for":"operator"`) {
		t.Errorf("retry: %d %s%s", status, stdout, stderr)
	}
	for status := 1; status != 0; time.Sleep(100 * time.Millisecond) { // it is refused while a worker asks the provider once more
		var stderr string
		if _, stderr, status = run(t, env, "payments", "settle", bought.String(), "--outcome", "unpaid", "--reason", "the sandbox was reset", "--by", "otto"); status != 0 &&
			!strings.Contains(stderr, "read it again") {
			t.Fatalf("settle: %s", stderr)
		}
	}
	if j := s.AwaitJob(0, ordered); j.State != job.Failed || j.Problem.Code != "purchase-cancelled" {
		t.Errorf("the purchase ends with %v %s", j, j.Body)
	}
	if j := s.AwaitJob(0, back.ID); j.State != job.Succeeded {
		t.Errorf("the cancellation ends with %v %s", j, j.Body)
	}
	if a := s.Do(0, s.App, http.MethodGet, "/v1/purchases/"+bought.String(), nil, nil); !strings.Contains(string(a.Body), "unpaid, says operator:triprize/otto: the sandbox was reset") {
		t.Errorf("the timeline: %s", a.Body)
	}
	if free := s.CampaignNow(id).Counts.Available(); free != 6 {
		t.Errorf("%d positions are free", free)
	}
	if _, stderr, status := run(t, env, "payments", "settle", bought.String(), "--outcome", "unpaid", "--reason", "r", "--by", "otto"); status != 1 || !strings.Contains(stderr, "state-conflict") {
		t.Errorf("again: %d %s", status, stderr)
	}
}

// The bank has the money of a disputed charge, and somebody refunds another one at the
// provider by hand: both are seen, and neither is paid back twice.
func TestWhatHappensAtTheProviderBesideUsIsSeenAndPaysNothingTwice(t *testing.T) {
	t.Parallel()
	s := cardSystem(t, fleet.Options{})
	id := s.Campaign(3)
	disputed, kept := buyPaid(s, id, "alice", "pm_card_createDispute"), buyPaid(s, id, "bob", "pm_card_visa")
	fixture.Eventually(t, "the dispute is recorded", func() bool { return viewPurchase(s, disputed).Dispute != nil })
	if j := s.AwaitJob(0, s.Cancel(s.App, disputed, uuid.NewString(), "").ID); j.State != job.Failed || j.Problem.Code != "purchase-disputed" {
		t.Errorf("an app cancels it: %v %s", j, j.Body)
	}
	if a := s.Cancel(s.Operator, disputed, uuid.NewString(), ""); a.Status != http.StatusOK || a.State != job.Succeeded {
		t.Errorf("an operator cancels it: %v %s", a, a.Body)
	}
	fixture.Eventually(t, "its refund waits for an operator", func() bool {
		a := s.Do(0, s.Operator, http.MethodGet, "/v1/refunds?waiting_for=operator", nil, nil)
		return strings.Contains(string(a.Body), disputed.String()) && strings.Contains(string(a.Body), "disputed: the bank has the money")
	})
	intent := s.Sandbox.PaymentsOf(kept.String())[0].ID
	request, err := http.NewRequest(http.MethodPost, s.Sandbox.URL+"/v1/refunds", strings.NewReader("payment_intent="+intent))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	request.Header.Set("Authorization", "Bearer "+fleet.SandboxKey)
	if a := fleet.Send(request); a.Status != http.StatusOK {
		t.Fatalf("the refund by hand: %v %s", a, a.Body)
	}
	fixture.Eventually(t, "the refund by hand is in the timeline", func() bool { return viewPurchase(s, kept).happened("refunded-elsewhere") })
	if p := viewPurchase(s, kept); p.State != "completed" {
		t.Errorf("it is %s", p.State)
	}
}
