//go:build soak

package e2e

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/uuid"

	"triprize/internal/job"
	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"
	"triprize/sandbox/stripesim"
)

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
	lists := func(path string, bought uuid.UUID, reason string) bool {
		a := s.Do(0, s.Operator, http.MethodGet, path+"?waiting_for=operator", nil, nil)
		return strings.Contains(string(a.Body), bought.String()) && strings.Contains(string(a.Body), reason)
	}
	retry := func(path string) {
		t.Helper()
		if a := s.Do(0, s.Operator, http.MethodPost, path+"/retry", map[string]string{"Idempotency-Key": uuid.NewString()}, nil); a.Status != http.StatusOK {
			t.Errorf("%v %s", a, a.Body)
		}
	}
	returned := buyPaid(s, id, "mina", "pm_card_visa")
	key(stripesim.Key{Lacks: []string{"charge_write"}})
	s.AwaitJob(0, s.Cancel(s.App, returned, uuid.NewString(), "").ID)
	servers.Eventually(t, "the refund is the operators'", func() bool { return lists("/v1/refunds", returned, "rak_charge_write") })
	for range 6 { // more than failures open a breaker
		buyPaid(s, id, "gina", "pm_card_visa")
	}
	if a := s.Do(0, s.Operator, http.MethodPost, "/v1/sweeps/missing-permissions", nil, nil); a.Status != http.StatusOK || !strings.Contains(string(a.Body), `"missing":1`) {
		t.Errorf("the sweep: %v %s", a, a.Body)
	}
	key(stripesim.Key{})
	retry("/v1/refunds/" + viewPurchase(s, returned).Refund().ID)
	awaitPurchase(s, returned, "refunded")

	key(stripesim.Key{Expired: true})
	ordered := buyByCard(s, id, "otto", "pm_card_visa")
	servers.Eventually(t, "the purchase has begun", func() bool { return viewJob(s, ordered).PurchaseID != uuid.Nil })
	bought := viewJob(s, ordered).PurchaseID
	servers.Eventually(t, "the payment is the operators'", func() bool { return lists("/v1/payments", bought, "Expired API Key") })
	key(stripesim.Key{})
	retry("/v1/payments/" + bought.String())
	if a := s.AwaitJob(0, ordered); a.State != job.Succeeded {
		t.Errorf("with the key mended: %s", a)
	}
	if lists("/v1/payments", bought, "") || lists("/v1/refunds", returned, "") {
		t.Error("they wait for an operator still")
	}
}
