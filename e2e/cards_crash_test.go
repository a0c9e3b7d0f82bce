//go:build soak

package e2e

import (
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"triprize/internal/job"
	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"
)

// cardMoments are the boundaries between the steps of a payment, by the card that leads
// there. Package cards has the moments.
var cardMoments = map[string][]string{
	"pm_card_visa": {
		"sale.commit", "sale.committed", "payments.claim", "payments.claimed", "payments.create.call", "payments.create.called",
		"payments.confirming.store", "payments.confirming.stored", "payments.confirm.call", "payments.confirm.called",
		"payments.capturing.store", "payments.capturing.stored", "payments.capture.call", "payments.capture.called",
		"payments.captured.store", "payments.captured.stored", "conclusion.commit", "conclusion.committed",
	},
	"pm_card_chargeDeclined": {
		"payments.expiring.store", "payments.expiring.stored", "payments.cancel.call", "payments.cancel.called",
		"payments.ended.store", "payments.ended.stored",
	},
}

// crashAt lets a worker take a payment that is killed or stopped at a moment, and another
// worker end it. It returns the job as it was before the stopped worker went on.
func crashAt(t *testing.T, s *fleet.System, card, moment, action string) (ended jobView) {
	t.Helper()
	campaign := s.Campaign(3)
	if strings.Contains(card, "Declined") { // and it is the last card that may come
		servers.Exec(t, s.DB, `ALTER TABLE payments ALTER COLUMN tries SET DEFAULT 4`)
	}
	doomed := s.RunWorker("TRIPRIZE_TEST_FAILPOINTS=" + moment + "=" + action)
	id := buyByCard(s, campaign, "alice", card)
	if action == "kill" {
		servers.Eventually(t, "the worker dies at "+moment, func() bool { return doomed.PID() == 0 })
	} else {
		servers.Eventually(t, "the worker stops at "+moment, func() bool { return isStopped(doomed) })
		servers.Exec(t, s.DB, `UPDATE payments SET deadline = now(), latest = now()`)
	}
	s.RunWorker()
	s.AwaitJob(0, id)
	ended = viewJob(s, id)
	if action == "stop" { // hours later, for all that it knows: its lease, its reservation and its job are over
		if err := doomed.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		if err := doomed.Stop(syscall.SIGTERM, 5*time.Minute); err != nil { // what it was about to do is done then
			t.Error(err)
		}
	}
	expectEnd(t, s, card, ended, viewJob(s, id))
	return ended
}

// expectEnd checks what has become of the only purchase of a system: it was charged
// once and sold, or it was not charged and is not sold. A worker that came back changed
// nothing.
func expectEnd(t *testing.T, s *fleet.System, card string, ended, now jobView) {
	t.Helper()
	if ended.State != now.State || !ended.State.Final() {
		t.Errorf("the job was %s and is %s", ended.State, now.State)
	}
	intents := s.Sandbox.PaymentsOf(now.PurchaseID.String())
	var charged, confirmed int
	for _, one := range intents {
		if one.Captured > 0 {
			charged++
		}
		if one.Charge != "" {
			confirmed++
		}
	}
	sold := viewPurchase(s, now.PurchaseID).State == "completed"
	if sold != (now.State == job.Succeeded) || charged > 1 || sold != (charged == 1) || confirmed > 1 {
		t.Errorf("the job is %s, sold: %t, charged %d times, %d intents confirmed of %d", now.State, sold, charged, confirmed, len(intents))
	}
	if strings.Contains(card, "Declined") && now.State == job.Succeeded {
		t.Error("a declined card has bought")
	}
	expectLedgersAgree(s)
}

func TestAWorkerKilledAnywhereInAPaymentChargesOnce(t *testing.T) {
	t.Parallel()
	for card, moments := range cardMoments {
		for _, moment := range someOf(moments) {
			t.Run(moment, func(t *testing.T) {
				t.Parallel()
				s := cardSystem(t, fleet.Options{Workers: -1})
				if ended := crashAt(t, s, card, moment, "kill"); card == "pm_card_visa" && ended.State != job.Succeeded {
					t.Errorf("the job is %s: %+v", ended.State, ended.Problem)
				}
			})
		}
	}
}

func TestAWorkerStoppedAnywhereInAPaymentPastEveryDeadlineChargesNothing(t *testing.T) {
	t.Parallel()
	for card, moments := range cardMoments {
		for _, moment := range someOf(moments) {
			if strings.HasPrefix(moment, "sale.") || strings.HasPrefix(moment, "conclusion.") {
				continue // Postgres ends a transaction whose worker is stopped: see TestAWorkerStoppedInsideABatch…
			}
			t.Run(moment, func(t *testing.T) {
				t.Parallel()
				crashAt(t, cardSystem(t, fleet.Options{Workers: -1}), card, moment, "stop")
			})
		}
	}
}

// The first card is declined, and the second one pays. The worker dies around the one or the other.
func TestAWorkerKilledAroundADeclineChargesTheOtherCardOnce(t *testing.T) {
	t.Parallel()
	const first, second = "pm_card_chargeDeclined", "pm_card_mastercard"
	for _, moment := range someOf([]string{
		"payments.confirm.called@" + first, "payments.declined.store@" + first, "payments.declined.stored@" + first,
		"payments.claimed@" + second, "payments.confirm.call@" + second, "payments.confirm.called@" + second, "payments.capturing.store@" + second,
	}) {
		t.Run(moment, func(t *testing.T) {
			t.Parallel()
			s := cardSystem(t, fleet.Options{Workers: -1})
			doomed := s.RunWorker("TRIPRIZE_TEST_FAILPOINTS=" + moment + "=kill")
			id := buyByCard(s, s.Campaign(3), "alice", first)
			if strings.HasSuffix(moment, first) {
				servers.Eventually(t, "the worker dies at "+moment, func() bool { return doomed.PID() == 0 })
				s.RunWorker()
			}
			if a := bringCard(s, awaitDecline(s, id).PurchaseID, second); a.Status != http.StatusAccepted {
				t.Fatalf("%v %s", a, a.Body)
			}
			if strings.HasSuffix(moment, second) {
				servers.Eventually(t, "the worker dies at "+moment, func() bool { return doomed.PID() == 0 })
				s.RunWorker()
			}
			s.AwaitJob(0, id)
			ended := viewJob(s, id)
			expectEnd(t, s, second, ended, ended)
			if ended.State != job.Succeeded {
				t.Errorf("the job is %s: %+v", ended.State, ended.Problem)
			}
		})
	}
}

func TestAnAPIKilledBeforeItAnswersAWebhookLosesNothing(t *testing.T) {
	t.Parallel()
	s := cardSystem(t, fleet.Options{}, "TRIPRIZE_PAYMENTS_RECHECK=10m") // without an event nobody looks
	campaign := s.Campaign(3)
	id := buyByCard(s, campaign, "alice", "pm_card_authenticationRequired")
	page := awaitAction(s, id).NextAction.URL
	if err := s.APIs[0].Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	authenticate(t, page, "succeed") // its webhook finds nobody, and is sent again
	s.RunAPI()
	s.Sandbox.SendTo(s.URLs[1] + "/webhooks/stripe")
	if a := s.AwaitJob(1, id); a.State != job.Succeeded || a.Status != http.StatusOK {
		t.Errorf("the job: %s", a)
	}
}

// seeds is how many random runs a test makes.
func seeds() uint64 {
	if testing.Short() {
		return 2
	}
	return 20
}

// first is where short runs begin: each takes other moments.
var first = rand.IntN(4)

// someOf returns all moments, or every fourth in a short run. The names of the tests tell
// which.
func someOf(moments []string) (some []string) {
	if !testing.Short() {
		return moments
	}
	for i, m := range slices.Sorted(slices.Values(moments)) {
		if i%4 == first {
			some = append(some, m)
		}
	}
	return some
}
