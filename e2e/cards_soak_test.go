//go:build soak

package e2e

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
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
	fleet.Want(s.T, http.StatusOK, refundAtProvider(s, paid.ID, paid.Captured))
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
	s := cardSystem(t, fleet.Options{Workers: 2}, "TRIPRIZE_PAYMENTS_STRIPE_RATE=40") // half of it for each
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
				expectCard(t, s, c, s.Job(id))
			})
		}
	})
	if n := s.Sandbox.Totals().RateLimited; n != 0 {
		t.Errorf("%d calls were refused as too many", n)
	}
	expectReturn(s, campaign)
	expectLedgersAgree(s)
}

// Of the crowd some cards are declined, and their buyers bring another; the provider fails before and after it has done what
// it was asked for.
func TestACrowdOfCardBuyersIsServedThroughDeclinesAndErrors(t *testing.T) {
	t.Parallel()
	s := cardSystem(t, fleet.Options{Workers: 2, Sandbox: &stripesim.Settings{Rate: -1, EndpointRate: -1}}, "TRIPRIZE_PAYMENTS_STRIPE_RATE=1000")
	const buyers = 171
	id, ends := s.Campaign(18), make(map[string]int)
	s.Sandbox.Set(stripesim.Faults{Seed: 7, Decline: 0.04, ErrorBefore: 0.025, ErrorAfter: 0.025})
	for _, a := range s.Crowd(buyers, func(i int) fleet.Order {
		return fleet.Order{Campaign: id, User: fmt.Sprint("buyer-", i), Card: "pm_card_visa"}
	}) {
		fleet.Want(t, http.StatusAccepted, a)
		end := fleet.Answer{}
		for !end.State.Final() {
			if end = s.Do(0, s.App, http.MethodGet, "/v1/jobs/"+a.ID.String(), map[string]string{"Prefer": fleet.UntilFinal}, nil); end.State == job.AwaitingAction {
				ends["declined"]++
				fleet.Want(t, http.StatusAccepted, bringCard(s, end.PurchaseID, "pm_card_visa"))
			}
		}
		ends[cmp.Or(end.Refusal(), string(end.State))]++
	}
	if ends["declined"] == 0 || ends["succeeded"] != buyers {
		t.Errorf("%v", ends)
	}
	expectLedgersAgree(s)
}

// One card takes no money back, one asks its buyer first, and of one the bank has the money: an operator sees to the
// first and the last, and hears nothing of the other.
func TestARefundThatTheProviderRefusesWaitsForAnOperator(t *testing.T) {
	t.Parallel()
	s := cardSystem(t, fleet.Options{})
	id := s.Campaign(3)
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
	if listed(s, "/v1/refunds", asks.String()) {
		t.Error("what waits for its buyer is listed")
	}
	refund, intent := viewPurchase(s, refused).Refund().ID, s.Sandbox.PaymentsOf(refused.String())[0].ID
	fleet.Want(t, http.StatusOK, s.Post("/v1/refunds/"+refund+"/retry", nil))
	servers.Eventually(t, "it was tried again, and has failed", func() bool { return len(s.Sandbox.RefundsOf(intent)) == 2 && state(refused) == "failed" })
	fleet.Want(t, http.StatusForbidden, s.Execute("/v1/refunds/"+refund+"/resolve", fleet.Fields{"amount": 1, "reason": "by me"}))
	servers.Eventually(t, "an operator resolves it", func() bool { // it is refused while a worker has it
		a := s.Post("/v1/refunds/"+refund+"/resolve", fleet.Fields{"amount": viewPurchase(s, refused).Refund().Amount, "reason": "by bank transfer"})
		return a.Status == http.StatusOK && fleet.Contains(a.Body, `"by":"operator:ops"`)
	})
	if p := viewPurchase(s, refused); p.State != "refunded" || p.Refund().State != "resolved" || !p.happened("refund-resolved") {
		t.Errorf("%+v", p)
	}
	if a := s.Post("/v1/refunds/"+viewPurchase(s, asks).Refund().ID+"/retry", nil); a.Status != http.StatusConflict || !fleet.Contains(a.Body, "waiting_for is operator") {
		t.Errorf("a retry of what waits for its buyer: %v %s", a, a.Body)
	}
}

// A restricted key loses the right to refund, and later the key expires: operators see what
// waits for it and why, payments go on without the refunds, and a mended key ends all of it.
func TestAKeyThatIsRefusedIsForOperatorsAndHoldsUpNothingElse(t *testing.T) {
	t.Parallel()
	s := cardSystem(t, fleet.Options{})
	id := s.Campaign(10)
	key := func(k stripesim.Key) { servers.NoError(t, s.Sandbox.SetKey(k)) }
	retry := func(path string) { fleet.Want(t, http.StatusOK, s.Post(path+"/retry", nil)) }
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
	servers.Eventually(t, "the purchase has begun", func() bool { return s.Job(ordered).PurchaseID != uuid.Nil })
	bought := s.Job(ordered).PurchaseID.String()
	servers.Eventually(t, "the payment is the operators'", func() bool { return listed(s, "/v1/payments", bought, "Expired API Key") })
	key(stripesim.Key{})
	retry("/v1/payments/" + bought)
	fleet.WantSucceeded(t, s.AwaitJob(0, ordered))
	if listed(s, "/v1/payments", bought) || listed(s, "/v1/refunds", returned.String()) {
		t.Error("they wait for an operator still")
	}
}

// A purchase waits for its buyer, and the provider forgets all of it: what is asked of it
// then cannot be. Only an operator can end this.
func TestAPaymentThatIsGoneAtTheProviderIsEndedByAnOperator(t *testing.T) {
	t.Parallel()
	s := cardSystem(t, fleet.Options{})
	id := s.Campaign(3)
	ordered := buyByCard(s, id, "mina", "pm_card_authenticationRequired")
	bought := awaitAction(s, ordered).PurchaseID
	s.Sandbox.Stop()
	s.Sandbox.Start() // without a folder it has forgotten everything
	back := s.Execute("/v1/purchases/"+bought.String()+"/cancel", nil)
	fleet.Want(t, http.StatusAccepted, back)
	servers.Eventually(t, "the payment waits for an operator", func() bool {
		return listed(s, "/v1/payments", bought.String())
	})
	payment := "/v1/payments/" + bought.String()
	if a := s.Post(payment+"/retry", nil); a.Status != http.StatusOK || !fleet.Contains(a.Body, `"waiting_for":"operator"`) {
		t.Errorf("retry: %v %s", a, a.Body)
	}
	resolve := func() fleet.Answer {
		version := servers.Value[int](t, s.DB, `SELECT version FROM payments WHERE purchase_id = $1`, bought)
		return s.Post(payment+"/resolve", fleet.Fields{"outcome": "unpaid", "version": version, "reason": "the sandbox was reset"})
	}
	servers.Eventually(t, "the payment is resolved", func() bool { // it is refused while a worker asks the provider once more, and when it has
		a := resolve()
		if a.Status != http.StatusOK && !fleet.Contains(a.Body, "retry in a moment") && !fleet.Contains(a.Body, "read it again") {
			t.Fatalf("resolve: %v %s", a, a.Body)
		}
		return a.Status == http.StatusOK
	})
	if j := s.AwaitJob(0, ordered); j.State != job.Failed || j.Refusal() != "purchase-cancelled" {
		t.Errorf("the purchase ends with %v %s", j, j.Body)
	}
	fleet.WantSucceeded(t, s.AwaitJob(0, back.ID))
	if a := s.Read("/v1/purchases/" + bought.String()); !fleet.Contains(a.Body, "unpaid, says operator:ops: the sandbox was reset") {
		t.Errorf("the timeline: %s", a.Body)
	}
	if free := s.CampaignNow(id).Counts.Available(); free != 6 {
		t.Errorf("%d positions are free", free)
	}
	if a := resolve(); a.Status != http.StatusConflict || !fleet.Contains(a.Body, `"code":"state-conflict"`) {
		t.Errorf("again: %v %s", a, a.Body)
	}
}

// cardMoments are the boundaries between the steps of a payment, by the card that leads
// there. Package cards has the moments.
var cardMoments = map[string][]string{
	"pm_card_visa": {
		"sale.commit", "sale.committed", "payments.claim", "payments.claimed", "payments.create.call", "payments.create.called",
		"payments.confirming.store", "payments.confirming.stored", "payments.confirm.call", "payments.confirm.called",
		"payments.capturing.store", "payments.capturing.stored", "payments.capture.call", "payments.capture.called",
		"payments.captured.store", "payments.captured.stored", "settlement.commit", "settlement.committed",
	},
	"pm_card_chargeDeclined": {
		"payments.expiring.store", "payments.expiring.stored", "payments.cancel.call", "payments.cancel.called",
		"payments.ended.store", "payments.ended.stored",
	},
}

// crashAt lets a worker take a payment that is killed or stopped at a moment, and another
// worker end it. It returns the job as it was before the stopped worker went on.
func crashAt(t *testing.T, s *fleet.System, card, moment, action string) (ended fleet.Answer) {
	t.Helper()
	campaign := s.Campaign(3)
	if strings.Contains(card, "Declined") { // and it is the last card that may come
		servers.Exec(t, s.DB, `ALTER TABLE payments ALTER COLUMN tries SET DEFAULT 4`)
	}
	doomed := s.RunWorker("TRIPRIZE_TEST_FAILPOINTS=" + moment + "=" + action)
	id := buyByCard(s, campaign, "alice", card)
	if action == "kill" {
		died(t, "the worker at "+moment, doomed)
	} else {
		servers.Eventually(t, "the worker stops at "+moment, func() bool { return isStopped(doomed) })
		servers.Exec(t, s.DB, `UPDATE payments SET deadline = now(), latest = now()`)
	}
	s.RunWorker()
	s.AwaitJob(0, id)
	ended = s.Job(id)
	if action == "stop" { // hours later, for all that it knows: its lease, its reservation and its job are over
		servers.NoError(t, doomed.Signal(syscall.SIGCONT))
		servers.NoError(t, doomed.Stop(syscall.SIGTERM, 5*time.Minute)) // what it was about to do is done then
	}
	expectEnd(t, s, card, ended, s.Job(id))
	return ended
}

// expectEnd checks what has become of the only purchase of a system: it was charged
// once and sold, or it was not charged and is not sold. A worker that came back changed
// nothing.
func expectEnd(t *testing.T, s *fleet.System, card string, ended, now fleet.Answer) {
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
			if strings.HasPrefix(moment, "sale.") || strings.HasPrefix(moment, "settlement.") {
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
				died(t, "the worker at "+moment, doomed)
				s.RunWorker()
			}
			fleet.Want(t, http.StatusAccepted, bringCard(s, awaitDecline(s, id).PurchaseID, second))
			if strings.HasSuffix(moment, second) {
				died(t, "the worker at "+moment, doomed)
				s.RunWorker()
			}
			s.AwaitJob(0, id)
			ended := s.Job(id)
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
	servers.NoError(t, s.APIs[0].Signal(syscall.SIGKILL))
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
