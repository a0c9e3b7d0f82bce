package e2e

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/job"
	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"
	"triprize/sandbox/stripesim"
)

// hasty are the settings by which payments go on in seconds.
var hasty = []string{
	"TRIPRIZE_PAYMENTS_LEASE=5s", "TRIPRIZE_PAYMENTS_STRIPE_TIMEOUT=2s", "TRIPRIZE_PAYMENTS_RECHECK=1s",
	"TRIPRIZE_SWEEPS_DUE_ITEMS_INTERVAL=200ms", "TRIPRIZE_SWEEPS_MISSED_EVENTS_INTERVAL=1s", "TRIPRIZE_SWEEPS_EXPIRED_RESERVATIONS_INTERVAL=500ms",
}

// cardSystem starts real processes beside a sandbox.
func cardSystem(t *testing.T, o fleet.Options, env ...string) *fleet.System {
	t.Helper()
	o.Binaries = true
	if o.Sandbox == nil {
		o.Sandbox = &stripesim.Settings{Later: 50 * time.Millisecond, Slow: 500 * time.Millisecond, Hang: 10 * time.Second, Late: 2 * time.Second,
			Reverse: time.Second, Retry: 100 * time.Millisecond}
	}
	o.Env = append(append([]string{}, hasty...), append(o.Env, env...)...)
	return fleet.Start(t, o)
}

// purchaseView is a purchase of the contract.
type purchaseView struct {
	State     string
	Timeline  []struct{ Event string }
	Refunds   []refundView
	Dispute   *struct{}
	Positions []struct {
		Layer  int `json:"layer"`
		Column int `json:"column"`
	}
}

type refundView struct {
	ID, State, Reason string
	Amount            int64
}

// Refund is the first of ours, nil when there is none.
func (p purchaseView) Refund() *refundView {
	if i := slices.IndexFunc(p.Refunds, func(r refundView) bool { return r.Reason != "out-of-band" }); i >= 0 {
		return &p.Refunds[i]
	}
	return nil
}

func (p purchaseView) happened(event string) bool {
	return slices.Contains(p.Timeline, struct{ Event string }{event})
}

func viewPurchase(s *fleet.System, id uuid.UUID) purchaseView {
	s.T.Helper()
	return fleet.As[purchaseView](s.T, s.Read("/v1/purchases/"+id.String()))
}

// buyByCard sends an order and returns its job, which may end in any way.
func buyByCard(s *fleet.System, campaign uuid.UUID, user, method string) uuid.UUID {
	s.T.Helper()
	a := s.Buy(fleet.Order{Campaign: campaign, User: user, Card: method})
	fleet.Want(s.T, http.StatusAccepted, a)
	return a.ID
}

// authenticate does what the buyer does at the page of an action, and returns where the
// browser is sent then.
func authenticate(t *testing.T, page, outcome string) (back string) {
	t.Helper()
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, Timeout: time.Minute}
	response, err := client.PostForm(page, url.Values{"outcome": {outcome}})
	servers.NoError(t, err)
	defer func() { _ = response.Body.Close() }()
	back = response.Header.Get("Location")
	if response.StatusCode != http.StatusSeeOther || !strings.Contains(back, "payment_intent=") {
		t.Errorf("the page of the action: %s, back to %q", response.Status, back)
	}
	return back
}

// awaitAction waits until a job asks for its buyer.
func awaitAction(s *fleet.System, id uuid.UUID) (j fleet.Answer) {
	s.T.Helper()
	servers.Eventually(s.T, "the job awaits an action", func() bool {
		j = s.Job(id)
		return j.State == job.AwaitingAction
	})
	if j.NextAction == nil || j.NextAction.Type != "redirect" || j.NextAction.URL == "" || !j.NextAction.ExpiresAt.After(time.Now()) {
		s.T.Errorf("next_action: %+v", j.NextAction)
	}
	return j
}

// awaitDecline waits until a job asks for another card.
func awaitDecline(s *fleet.System, id uuid.UUID) (j fleet.Answer) {
	s.T.Helper()
	servers.Eventually(s.T, "the job asks for another card", func() bool {
		j = s.Job(id)
		return j.State == job.AwaitingAction && j.NextAction != nil && j.NextAction.Type == "payment_method"
	})
	if a := j.NextAction; a.URL != "" || a.Decline == nil || a.Decline.Code == "" || !a.ExpiresAt.After(time.Now()) {
		s.T.Errorf("next_action: %+v", a)
	}
	return j
}

// bringCard pays a purchase with another card.
func bringCard(s *fleet.System, purchase uuid.UUID, method string) fleet.Answer {
	s.T.Helper()
	return s.Execute("/v1/purchases/"+purchase.String()+"/payment", fleet.Fields{"payment_method": method})
}

// endReservation ends the time that a purchase has for its payment.
func endReservation(s *fleet.System, ordered uuid.UUID) {
	s.T.Helper()
	servers.Exec(s.T, s.DB, `UPDATE payments SET deadline = now(), latest = now() WHERE purchase_id = $1`, ordered)
}

// noOtherCard lets the time for another card end.
func noOtherCard(_ *testing.T, s *fleet.System, id uuid.UUID) {
	s.T.Helper()
	awaitDecline(s, id)
	endReservation(s, id)
}

// cardCase is a payment method, and what its buyer sees.
type cardCase struct {
	method    string
	problem   string // of the job; empty: it succeeds
	decline   string // the provider's decline_code
	purchase  string // the state of the purchase at the end
	meanwhile func(t *testing.T, s *fleet.System, id uuid.UUID)
}

func bought(methods ...string) (cases []cardCase) {
	for _, m := range methods {
		cases = append(cases, cardCase{method: m, purchase: "completed"})
	}
	return cases
}

func declined(method, code string) cardCase {
	return cardCase{method: method, problem: "payment-declined", decline: code, purchase: "failed", meanwhile: noOtherCard}
}

var cardCases = append(bought(
	"pm_card_visa", "pm_card_mastercard", "pm_card_jcb", "pm_card_jp", "pm_card_createDispute", "pm_card_refundFail", "pm_card_pendingRefund",
	"pm_sandbox_timeout_after_charge", "pm_sandbox_500_once", "pm_sandbox_429", "pm_sandbox_slow",
	"pm_sandbox_webhook_never", "pm_sandbox_webhook_twice", "pm_sandbox_webhook_late", "pm_sandbox_webhook_reversed"),
	declined("pm_card_chargeDeclined", "generic_decline"),
	declined("pm_card_chargeDeclinedInsufficientFunds", "insufficient_funds"),
	declined("pm_card_chargeDeclinedLostCard", "lost_card"),
	declined("pm_card_chargeDeclinedStolenCard", "stolen_card"),
	declined("pm_card_chargeDeclinedExpiredCard", "expired_card"),
	declined("pm_card_chargeDeclinedIncorrectCvc", "incorrect_cvc"),
	declined("pm_card_chargeDeclinedProcessingError", "processing_error"),
	declined("pm_card_radarBlock", "fraudulent"),
	cardCase{method: "pm_card_unheardOf", problem: "payment-refused", purchase: "failed"},
	cardCase{method: "pm_card_authenticationRequired", purchase: "completed", meanwhile: func(t *testing.T, s *fleet.System, id uuid.UUID) {
		authenticate(t, awaitAction(s, id).NextAction.URL, "succeed")
	}},
	cardCase{method: "pm_card_threeDSecureRequired", problem: "payment-declined", decline: "payment_intent_authentication_failure", purchase: "failed", meanwhile: func(t *testing.T, s *fleet.System, id uuid.UUID) {
		authenticate(t, awaitAction(s, id).NextAction.URL, "fail")
		noOtherCard(t, s, id)
	}},
	cardCase{method: "pm_card_chargeDeclinedIncorrectCvc", purchase: "completed", meanwhile: func(t *testing.T, s *fleet.System, id uuid.UUID) {
		j := awaitDecline(s, id)
		if a := bringCard(s, j.PurchaseID, "pm_card_authenticationRequired"); a.Status != http.StatusAccepted || a.ID != id {
			t.Errorf("another card: %v %s", a, a.Body)
		}
		j = awaitAction(s, id)
		if a := bringCard(s, j.PurchaseID, "pm_card_visa"); a.Status != http.StatusAccepted || a.ID != id { // instead of that page
			t.Errorf("a third card: %v %s", a, a.Body)
		}
	}},
	cardCase{method: "pm_sandbox_processing", purchase: "completed", meanwhile: func(_ *testing.T, s *fleet.System, id uuid.UUID) {
		finishSlow(s, id, true)
	}},
	cardCase{method: "pm_sandbox_processing", problem: "payment-declined", decline: "payment_intent_payment_attempt_failed", purchase: "failed", meanwhile: func(_ *testing.T, s *fleet.System, id uuid.UUID) {
		finishSlow(s, id, false)
		noOtherCard(s.T, s, id)
	}},
)

// finishSlow ends the slow payment of a job once it is processing.
func finishSlow(s *fleet.System, id uuid.UUID, success bool) {
	s.T.Helper()
	servers.Eventually(s.T, "the slow payment is processing", func() bool {
		for _, p := range s.Sandbox.PaymentsOf(s.Job(id).PurchaseID.String()) {
			if p.Status == "processing" {
				if state := viewPurchase(s, s.Job(id).PurchaseID).State; state != "pending" {
					s.T.Errorf("while its payment is processing a purchase is %s", state)
				}
				return s.Sandbox.Finish(p.ID, success) == nil
			}
		}
		return false
	})
}

// expectReturn wants the browser of a buyer to come back where its order says.
func expectReturn(s *fleet.System, campaign uuid.UUID) {
	s.T.Helper()
	a := s.Execute("/v1/campaigns/"+campaign.String()+"/purchases", fleet.Fields{"user_id": "who-returns", "selection": fleet.Fields{"quantity": 1},
		"payment": fleet.Fields{"method": "card", "payment_method": "pm_card_authenticationRequired", "return_url": "https://shop.test/thanks?order=7"}})
	if back := authenticate(s.T, awaitAction(s, a.ID).NextAction.URL, "succeed"); !strings.HasPrefix(back, "https://shop.test/thanks?order=7&") {
		s.T.Errorf("the buyer is sent back to %q", back)
	}
	s.AwaitJob(0, a.ID)
}

// expectCard compares what the buyer sees, and what the provider has, with the case.
func expectCard(t *testing.T, s *fleet.System, c cardCase, j fleet.Answer) {
	t.Helper()
	var problem, decline string
	if j.Problem != nil {
		problem, decline = j.Problem.Code, j.Problem.DeclineCode
	}
	if problem != c.problem || decline != c.decline {
		t.Errorf("the job: %s, problem %q %q; want %q %q", j.State, problem, decline, c.problem, c.decline)
	}
	p := viewPurchase(s, j.PurchaseID)
	if p.State != c.purchase {
		t.Errorf("the purchase is %s, want %s", p.State, c.purchase)
	}
	var captured, open int
	for _, one := range s.Sandbox.PaymentsOf(j.PurchaseID.String()) {
		switch {
		case one.Captured > 0:
			captured++
		case one.Status != "canceled":
			open++
		}
	}
	if want := map[string]int{"completed": 1}[c.purchase]; captured != want || open > 0 && c.purchase != "completed" {
		t.Errorf("at the provider: %d captured, %d open", captured, open)
	}
	if !p.happened("reserved") || c.purchase == "completed" && !(p.happened("captured") && p.happened("completed")) {
		t.Errorf("the timeline: %+v", p.Timeline)
	}
}

// expectLedgersAgree compares our completed card purchases with the money that the
// provider keeps, to the yen, and every purchase by itself.
func expectLedgersAgree(s *fleet.System) {
	s.T.Helper()
	there := make(map[string]int64)
	for _, one := range s.Sandbox.Payments() {
		there[one.Metadata["purchase_id"]] += int64(one.Captured - one.Refunded)
		if one.Status == "requires_capture" {
			s.T.Errorf("intent %s: money is held for ever, its purchase is %s", one.ID, servers.Value[string](s.T, s.DB, `SELECT state FROM purchases WHERE id::text = $1`, one.Metadata["purchase_id"]))
		}
	}
	rows, err := s.DB.Query(s.T.Context(), `
		SELECT p.id::text, p.state, CASE WHEN p.state = 'completed' THEN p.amount - r.given ELSE least(r.resolved, y.received - r.given) END -- less: paid twice
		FROM purchases p JOIN payments y ON y.purchase_id = p.id CROSS JOIN LATERAL (
			SELECT coalesce(sum(amount) FILTER (WHERE state = 'succeeded'), 0) AS given,
			       coalesce(sum(amount) FILTER (WHERE state = 'resolved'), 0) AS resolved
			FROM refunds WHERE purchase_id = p.id) r
		WHERE p.payment_method = 'card'`)
	servers.NoError(s.T, err)
	var id, state string
	var here int64
	if _, err := pgx.ForEachRow(rows, []any{&id, &state, &here}, func() error {
		if there[id] != here {
			s.T.Errorf("purchase %s is %s: the provider keeps %d, and should %d", id, state, there[id], here)
		}
		delete(there, id)
		return nil
	}); err != nil {
		s.T.Fatal(err)
	}
	for id, kept := range there {
		s.T.Errorf("the provider keeps %d of purchase %q, which there is not", kept, id)
	}
}

// buyPaid buys by card and returns the purchase, which is completed.
func buyPaid(s *fleet.System, campaign uuid.UUID, user, method string) uuid.UUID {
	s.T.Helper()
	id := buyByCard(s, campaign, user, method)
	fleet.WantSucceeded(s.T, s.AwaitJob(0, id))
	return s.Job(id).PurchaseID
}

func awaitPurchase(s *fleet.System, id uuid.UUID, state string) (p purchaseView) {
	s.T.Helper()
	servers.Eventually(s.T, "the purchase is "+state, func() bool {
		p = viewPurchase(s, id)
		return p.State == state
	})
	return p
}
