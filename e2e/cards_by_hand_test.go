//go:build soak

package e2e

import (
	"net/http"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"

	"triprize/internal/domain/money"
	"triprize/internal/job"
	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"
	"triprize/sandbox/stripesim"
)

// The provider has paid a refund, and its event came while the key was refused; then an operator pays it by bank.
func TestARefundThatWasResolvedIsLookedForWhenTheKeyIsBack(t *testing.T) {
	t.Parallel()
	s := cardSystem(t, fleet.Options{Sandbox: &stripesim.Settings{Later: time.Hour, Retry: 100 * time.Millisecond}})
	bought := buyPaid(s, s.Campaign(3), "alice", "pm_card_pendingRefund")
	s.AwaitJob(0, s.Cancel(s.App, bought, uuid.NewString(), "").ID)
	servers.Eventually(t, "the refund is pending", func() bool { return viewPurchase(s, bought).Refund().State == "pending" })
	refund, there := viewPurchase(s, bought).Refund().ID, s.Sandbox.RefundsOf(s.Sandbox.PaymentsOf(bought.String())[0].ID)[0].ID
	if err := s.Sandbox.SetKey(stripesim.Key{Expired: true}); err != nil {
		t.Fatal(err)
	}
	if err := s.Sandbox.FinishRefund(there, "succeeded"); err != nil {
		t.Fatal(err)
	}
	servers.Eventually(t, "its event is worked off, and it waits for an operator", func() bool {
		return servers.Value[bool](t, s.DB, `SELECT EXISTS (SELECT FROM payment_events WHERE object_id = $1 AND status = 'succeeded' AND handled_at IS NOT NULL)
			AND NOT EXISTS (SELECT FROM payment_events WHERE handled_at IS NULL) AND (SELECT stuck FROM refunds WHERE provider_id = $1)`, there)
	})
	servers.Eventually(t, "an operator resolves it", func() bool { // it is refused while a worker asks the provider
		return s.Post("/v1/refunds/"+refund+"/resolve", fleet.Fields{"reason": "by bank transfer"}).Status == http.StatusOK
	})
	if err := s.Sandbox.SetKey(stripesim.Key{}); err != nil {
		t.Fatal(err)
	}
	servers.Eventually(t, "it is known that the money was paid twice", func() bool {
		return servers.Value[bool](t, s.DB, `SELECT EXISTS (SELECT FROM refunds WHERE provider_id = $1 AND reason = 'out-of-band' AND state = 'succeeded')
			AND EXISTS (SELECT FROM refunds WHERE state = 'resolved' AND failure LIKE 'paid twice%' AND due_at IS NULL)`, there)
	})
	if p := viewPurchase(s, bought); p.State != "refunded" || !p.happened("refunded-out-of-band") {
		t.Errorf("%+v", p)
	}
}

// A worker ends after the capture, somebody refunds all by hand, and its event is worked off before another worker
// has heard of the capture.
func TestARefundByHandIsNotedThoughItsEventComesBeforeTheCapture(t *testing.T) {
	t.Parallel()
	s := cardSystem(t, fleet.Options{Workers: -1})
	doomed := s.RunWorker("TRIPRIZE_TEST_FAILPOINTS=payments.capture.called=kill")
	id := buyByCard(s, s.Campaign(3), "alice", "pm_card_visa")
	servers.Eventually(t, "the worker dies", func() bool { return doomed.PID() == 0 })
	bought := viewJob(s, id).PurchaseID
	servers.Exec(t, s.DB, `UPDATE payments SET lease_until = clock_timestamp() + interval '1 hour', due_at = clock_timestamp() + interval '1 hour'`)
	refundByHand(s, bought)
	s.RunWorker()
	servers.Eventually(t, "its event is worked off", func() bool {
		return servers.Value[bool](t, s.DB, `SELECT EXISTS (SELECT FROM payment_events WHERE type = 'refund.created' AND handled_at IS NOT NULL)`)
	})
	servers.Exec(t, s.DB, `UPDATE payments SET lease_until = clock_timestamp(), due_at = clock_timestamp()`)
	if a := s.AwaitJob(0, id); a.State != job.Succeeded {
		t.Fatal(a)
	}
	servers.Eventually(t, "the refund by hand is known", func() bool { return viewPurchase(s, bought).happened("refunded-out-of-band") })
	if p := viewPurchase(s, bought); p.State != "completed" || p.AmountRefunded != p.Amount {
		t.Errorf("%+v", p)
	}
	expectLedgersAgree(s)
}

// A worker stops between the key of a part's refund and the call, somebody refunds a half of it by hand, and another
// worker goes on, and then the first.
func TestAPartIsNotOverpaidByAWorkerThatWasStoppedBeforeItsCall(t *testing.T) {
	t.Parallel()
	s := cardSystem(t, fleet.Options{Workers: -1})
	seller := s.RunWorker()
	a := s.Buy(fleet.Order{Campaign: s.Campaign(3), User: "alice", Quantity: 2, Card: "pm_card_visa"})
	if ended := s.AwaitJob(0, a.ID); ended.State != job.Succeeded {
		t.Fatal(ended)
	}
	bought := viewJob(s, a.ID).PurchaseID
	if err := seller.Stop(syscall.SIGTERM, time.Minute); err != nil {
		t.Fatal(err)
	}
	doomed := s.RunWorker("TRIPRIZE_TEST_FAILPOINTS=refunds.attempt.stored=stop")
	part := s.Do(0, s.App, http.MethodPost, "/v1/purchases/"+bought.String()+"/cancel", map[string]string{"Idempotency-Key": uuid.NewString()},
		fleet.Fields{"positions": viewPurchase(s, bought).Positions[:1]})
	if part.Status != http.StatusAccepted {
		t.Fatalf("%v %s", part, part.Body)
	}
	servers.Eventually(t, "the worker stops", func() bool { return isStopped(doomed) })
	price := servers.Value[int64](t, s.DB, `SELECT amount FROM refunds`)
	refundPart(s, bought, money.Amount(price/2))
	servers.Exec(t, s.DB, `UPDATE refunds SET lease_until = clock_timestamp(), due_at = clock_timestamp() WHERE number IS NOT NULL`)
	s.RunWorker()
	servers.Eventually(t, "the rest is refunded", func() bool {
		return servers.Value[bool](t, s.DB, `SELECT EXISTS (SELECT FROM refunds WHERE number IS NOT NULL AND state = 'succeeded')`)
	})
	if err := doomed.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if err := doomed.Stop(syscall.SIGTERM, 5*time.Minute); err != nil { // what it was about to do is done then
		t.Error(err)
	}
	if back := s.Sandbox.PaymentsOf(bought.String())[0].Refunded; back != money.Amount(price) {
		t.Errorf("%d are back, and %d was the part", back, price)
	}
	expectLedgersAgree(s)
}
