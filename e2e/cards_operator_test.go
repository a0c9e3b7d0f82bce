package e2e

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"triprize/internal/store/job"
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
	back := s.Cancel(s.App, bought, uuid.NewString(), "no longer wanted")
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
