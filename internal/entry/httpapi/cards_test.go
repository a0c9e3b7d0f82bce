package httpapi_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"triprize/internal/job"
	"triprize/internal/payment"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"
)

// The rules of a payment, as a purchase names it or another card for it, are those of one door.
func TestAPaymentHasWhatItsMethodNeedsAndNothingElse(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, cardsTaken)
	path := "/v1/campaigns/" + s.Campaign(3).String() + "/purchases"
	buy := func(payment string) fleet.Answer {
		return s.Execute(path, fleet.RawJSON(`{"user_id":"u","selection":{"quantity":1},"payment":{`+payment+`}}`))
	}
	const card, page = `"method":"card","payment_method":"pm_1"`, `,"return_url":"`
	for payment, says := range map[string]string{
		`"method":"card"`:                                                        "/payment/payment_method",
		`"method":"card","payment_method":""`:                                    "/payment/payment_method",
		`"method":"card","payment_method":null`:                                  "/payment/payment_method",
		`"method":"card","payment_method":"4242424242424242"`:                    "such as pm_1Q0PsIJvEtkwdCNYMSaVuRz6",
		`"method":"card","payment_method":"pm_a b"`:                              "/payment/payment_method",
		`"method":"card","payment_method":"pm_` + strings.Repeat("a", 253) + `"`: "/payment/payment_method",
		card + `,"reference":"order-1"`:                                          "/payment/reference",
		card + page + `shop.example"`:                                            "/payment/return_url",
		card + page + `javascript:alert(1)"`:                                     "/payment/return_url",
		card + page + `https:///x"`:                                              "/payment/return_url",
		card + page + `https://me:secret@shop.example"`:                          "/payment/return_url",
		card + page + `https://a/` + strings.Repeat("a", 2000) + `"`:             "/payment/return_url",
		card + `,"card_number":"4242424242424242"`:                               "card_number",
		`"method":"external","payment_method":"pm_1"`:                            "/payment/payment_method",
		`"method":"wallet","payment_method":"pm_1"`:                              "/payment/payment_method",
		`"method":"wallet","return_url":"https://shop.example"`:                  "/payment/return_url",
	} {
		wantAnswer(t, payment, buy(payment), 400, coded("invalid-request"), says)
	}
	a := buy(card + page + `https://shop.example/a?b=c"`)
	mustAnswer(t, "a good one", a, 202)
	wantEqual(t, "the worker reads", servers.Value[string](t, s.DB, `SELECT payload -> 'payment' FROM jobs WHERE id = $1`, a.ID), "{"+card+page+`https://shop.example/a?b=c"}`)
	wantEqual(t, "jobs", count(s, `SELECT count(*) FROM jobs WHERE client = $1`, s.Client("shop")), 1)
}

func TestWithoutAProviderCardsAreRefusedAtTheDoorAndTheKeyStaysFree(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, busy)
	id := s.Campaign(3)
	refused(t, "a card", orderByCard(s, s.App, id, "u", "a key"), 409, "cards-not-accepted")
	refused(t, "a webhook", sendEvent(s, event("evt_1"), signed(event("evt_1"), webhookSecret, time.Now())), 409, "cards-not-accepted")
	wantAnswer(t, "the same key with money that the app has", s.Buy(fleet.Order{Campaign: id, User: "u", Key: "a key", Wait: true}), job.Succeeded)
}

// declinedOf leaves a purchase of a user behind whose card was declined.
func declinedOf(s *fleet.System, campaign uuid.UUID, user string) (purchase, of uuid.UUID) {
	s.T.Helper()
	purchase, ref := fixture.Reserve(s.T, s.DB, campaign, user, 1, time.Hour)
	fixture.Advance(s.T, s.DB, purchase, payment.Confirming)
	fixture.Advance(s.T, s.DB, purchase, payment.CardDeclined)
	return adopted(s, purchase), ref.ID
}

func TestAnotherCardIsForThePurchaseThatAwaitsItAndTheAnswerIsItsJob(t *testing.T) {
	t.Parallel()
	s := withUsers(fleet.Shared(t, cardsTaken))
	id, mina := s.Campaign(3), s.User("mina")
	token := fleet.TokenFor(t, mina, "")
	bought, of := declinedOf(s, id, mina)
	try := func(purchase uuid.UUID, body, key string) fleet.Answer {
		return s.Do(0, token, http.MethodPost, "/v1/purchases/"+purchase.String()+"/payment", map[string]string{"Idempotency-Key": key}, fleet.RawJSON(body))
	}
	for body, says := range map[string]string{
		`{}`:                                     "/payment_method",
		`{"payment_method":""}`:                  "/payment_method",
		`{"payment_method":"4242424242424242"}`:  "/payment_method",
		`{"payment_method":"pm_1","method":"x"}`: "/method",
		`{"payment_method":"pm_1","return_url":"https://me:secret@shop.example"}`: "/return_url",
	} {
		wantAnswer(t, body, try(bought, body, uuid.NewString()), 400, says)
	}
	if j := decoded[jobView](s, s.Do(0, s.Operator, http.MethodGet, "/v1/jobs/"+of.String(), nil, nil)); j.NextAction == nil || j.NextAction.Type != "payment_method" || j.NextAction.URL != "" || j.NextAction.Decline == nil {
		t.Errorf("the job asks for %+v", j.NextAction)
	}

	const body, another = `{"payment_method":"pm_card_visa","return_url":"https://shop.test/again"}`, `{"payment_method":"pm_2"}`
	wantAnswer(t, "another card", try(bought, body, "k"), 202, of, job.Queued, `"next_action":null`, valued{"Location", "/v1/jobs/" + of.String()})
	wantAnswer(t, "repeated", try(bought, body, "k"), 202, of, isReplayed)
	if p := fixture.Payment(t, s.DB, bought); p.Phase != payment.Confirming || p.PaymentMethod != "pm_card_visa" || p.ReturnURL == nil || *p.ReturnURL != "https://shop.test/again" || p.Tries != 1 {
		t.Errorf("%+v", p)
	}
	wantAnswer(t, "while it is tried", try(bought, another, uuid.NewString()), 409, coded("state-conflict"))
	wantAnswer(t, "the key of another card", try(bought, another, "k"), 422)
	wantAnswer(t, "a purchase without a card", try(adopted(s, fixture.Buy(t, s.DB, id, mina, 0, 1)), another, uuid.NewString()), 409, "not paid by card")
	many, _ := declinedOf(s, id, mina)
	exec(s, `INSERT INTO payment_steps (purchase_id, event, declined_client, declined_user) SELECT id, 'declined', client, user_id FROM purchases, generate_series(1, 10) WHERE id = $1`, many)
	wantAnswer(t, "after ten declines", try(many, another, uuid.NewString()), 409, coded("decline-limit-exceeded"), `"retry_at"`)
}

const redirect = `{"next_action":{"type":"redirect","url":"https://bank.example/3ds?a=b&c=d","expires_at":"2030-01-01T00:00:00Z"}}`

type nextAction struct {
	Type, URL string
	Decline   *struct{ Code string }
}

type jobView struct {
	State      string
	NextAction *nextAction `json:"next_action"`
	Problem    *struct {
		Code, Advice string
		DeclineCode  string `json:"decline_code"`
	}
}

// The wait of a request would last for minutes: an answer before is because of the state.
func TestWhoWaitsIsToldAtOnceThatTheBuyerHasToAct(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, cardsTaken).With()
	id := s.Campaign(3)
	accepted := orderByCard(s, s.App, id, "u", "k")
	waiting := make(chan fleet.Answer, 2)
	wait := func(prefer string) {
		before := s.Metric(0, "triprize_http_requests_in_flight")
		go func() {
			waiting <- s.Do(0, s.App, http.MethodGet, "/v1/jobs/"+accepted.ID.String(), map[string]string{"Prefer": prefer}, nil)
		}()
		s.AwaitMetric(0, "triprize_http_requests_in_flight", before+1)
		s.AwaitMetric(0, "triprize_jobs_waited_for", 1)
	}
	check := func(what string, a fleet.Answer, status int, applied string) {
		t.Helper()
		j := decoded[jobView](s, a)
		if a.Status != status || j.State != "awaiting_action" || j.NextAction == nil || j.NextAction.Type != "redirect" || j.NextAction.URL != "https://bank.example/3ds?a=b&c=d" ||
			a.Header.Get("Preference-Applied") != applied || a.Header.Get("Retry-After") == "" {
			t.Errorf("%s: %v %s, %v", what, a, a.Body, a.Header)
		}
	}
	wait("wait=170")
	announced(s, accepted.ID, "awaiting_action", redirect)
	check("who waited", <-waiting, http.StatusAccepted, "wait=170")
	check("who waits now", s.Do(0, s.App, http.MethodGet, "/v1/jobs/"+accepted.ID.String(), map[string]string{"Prefer": "wait=170"}, nil), http.StatusAccepted, "wait=170")
	check("who only asks", s.Job(accepted.ID), http.StatusOK, "")
	check("who repeats the request", orderByCard(s, s.App, id, "u", "k", "Prefer", "wait=170; until=final"), http.StatusAccepted, "wait=170")

	wait("wait=170; until=final")
	announced(s, accepted.ID, "awaiting_action", strings.Replace(redirect, "3ds", "again", 1)) // no end
	announced(s, accepted.ID, "queued", `{"waiting":{"reason":"the provider is away","retry_at":"2030-01-01T00:00:00Z"}}`)
	announced(s, accepted.ID, "failed", redirect)
	a := <-waiting
	j := decoded[jobView](s, a)
	if a.Status != http.StatusOK || j.State != "failed" || j.NextAction != nil || a.Header.Get("Preference-Applied") != "wait=170; until=final" {
		t.Errorf("who waited for the end: %v %s", a, a.Body)
	}
	if p := j.Problem; p == nil || p.Code != "payment-declined" || p.DeclineCode != "insufficient_funds" || p.Advice != "try_again_later" {
		t.Errorf("the problem is %s", a.Body)
	}
}

func TestTheStreamOfAJobTellsWhatItAwaitsAndWaitsFor(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, cardsTaken)
	accepted := orderByCard(s, s.App, s.Campaign(3), "u", "k")
	follow := func(lastID string) *fleet.Listener { return s.Listen(0, s.App, fleet.JobEvents(accepted.ID), lastID) }
	want := func(l *fleet.Listener, state, part string) (lastID string) {
		t.Helper()
		f := l.WantEvent()
		if !strings.Contains(f.Data, `"state":"`+state+`"`) || !strings.Contains(f.Data, part) {
			t.Errorf("%+v, want %s, %s", f, state, part)
		}
		return f.ID
	}
	const waiting = `"waiting":{"reason":"the provider is away","retry_at":"2030-01-01T00:00:00Z"}`
	l := follow("")
	want(l, "queued", `"waiting":null`)
	announced(s, accepted.ID, "queued", "{"+waiting+"}")
	want(l, "queued", `"retry_at":"2030-01-01T00:00:00Z",`+waiting)
	announced(s, accepted.ID, "queued", "{"+strings.Replace(waiting, "01-01", "01-02", 1)+"}")
	again := want(l, "queued", `"retry_at":"2030-01-02T00:00:00Z"`)
	l.WantSilence(2)
	announced(s, accepted.ID, "awaiting_action", redirect)
	seen := want(l, "awaiting_action", `"type":"redirect"`)
	if seen == again || again == "queued" {
		t.Errorf("the events have the ids %s and %s", again, seen)
	}
	l.HangUp()

	back, late := follow(seen), follow(again)
	back.WantSilence(2)
	want(late, "awaiting_action", `"type":"redirect"`) // what was missed
	announced(s, accepted.ID, "failed", redirect)
	for _, l := range []*fleet.Listener{back, late} {
		want(l, "failed", `"next_action":null`)
		l.WantEnd()
	}
}

func TestAPurchaseByCardShowsItsPaymentItsRefundAndWhatHappened(t *testing.T) {
	t.Parallel()
	s := withUsers(fleet.Shared(t, cardsTaken))
	id, _ := fixture.BuyByCard(t, s.DB, s.Campaign(3), s.User("mina"), 3, 1)
	adopted(s, id)
	exec(s, `UPDATE payments SET dispute = '{"id":"dp_1","status":"needs_response","reason":"fraudulent"}', disputed_at = clock_timestamp() WHERE purchase_id = $1`, id)
	refund := insertRefund(s, id, "card", "failed")
	exec(s, `UPDATE purchases SET state = 'refunding' WHERE id = $1`, id)
	exec(s, `INSERT INTO payment_steps (purchase_id, event, detail) VALUES ($1, 'refund-failed', 'expired_or_canceled_card')`, id)
	exec(s, `INSERT INTO refunds (id, purchase_id, campaign_id, user_id, method, amount, currency, reason, state, provider_id, finished_at)
		SELECT 'ffffffff-ffff-4fff-8fff-ffffffffffff', id, campaign_id, user_id, 'card', 1, currency, 'out-of-band', 'succeeded', 're_hand', clock_timestamp() FROM purchases WHERE id = $1`, id)
	type view struct {
		Payment struct {
			Method, Reference string
			PaymentMethod     string `json:"payment_method"`
			ExpiresAt         string `json:"expires_at"`
		}
		AmountRefunded int `json:"amount_refunded"`
		Refunds        []struct {
			ID               uuid.UUID
			Reason           string
			Amount           int
			State, Reference string
			Failure          string
		}
		Dispute  struct{ ID, Status string }
		Timeline []struct{ Event, Detail string }
	}
	for credential, detail := range map[string]string{s.Operator: "expired_or_canceled_card", fleet.TokenFor(t, s.User("mina"), ""): ""} {
		one := decoded[view](s, s.Do(0, credential, http.MethodGet, "/v1/purchases/"+id.String(), nil, nil))
		list := decoded[struct{ Purchases []view }](s, s.Do(0, credential, http.MethodGet, "/v1/users/"+s.User("mina")+"/purchases", nil, nil))
		want := fmt.Sprintf("[{{card pi_%[1]s pm_card_visa } 1 [{%[2]s campaign-cancelled 299 failed re_%[1]s %[3]s} {ffffffff-ffff-4fff-8fff-ffffffffffff out-of-band 1 succeeded re_hand }] {dp_1 needs_response} [{created } {reserved } {completed } {refund-failed %[3]s}]}]",
			id, refund, detail)
		for what, shown := range map[string][]view{"alone": {one}, "in the list": list.Purchases} {
			wantEqual(t, fmt.Sprintf("%s, with the detail %q", what, detail), fmt.Sprint(shown), want)
		}
	}
	exec(s, `UPDATE purchases SET state = 'completed' WHERE id = $1`, id) // as its positions are
	// What the bank has taken counts once: an operator who resolves the refund afterwards says that the buyer has it.
	for when, want := range map[string]string{"after": "{101 200}", "before": "{301 200}"} {
		exec(s, `UPDATE refunds SET state = 'resolved', resolved_by = 'operator:ops', resolve_reason = 'lost', finished_at = clock_timestamp() WHERE id = $1`, refund)
		exec(s, `UPDATE payments SET amount_disputed = 200, disputed_at = clock_timestamp() - CASE $2::text WHEN 'after' THEN 1 ELSE -1 END * interval '1 minute' WHERE purchase_id = $1`, id, when)
		type amounts struct {
			Refunded int `json:"amount_refunded"`
			Disputed int `json:"amount_disputed"`
		}
		wantEqual(t, "resolved "+when+" the dispute", fmt.Sprint(decoded[amounts](s, s.Do(0, s.Operator, http.MethodGet, "/v1/purchases/"+id.String(), nil, nil))), want)
	}
}

// A dispute has its amount, fee and dates, and purchases are found by it, over the API and in the console.
func TestADisputeIsShownAndFindsItsPurchase(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, cardsTaken)
	id := s.Campaign(3)
	lost, _ := fixture.BuyByCard(t, s.DB, id, s.User("mina"), 3, 1)
	kept, _ := fixture.BuyByCard(t, s.DB, id, s.User("otto"), 2, 1)
	adopted(s, lost)
	adopted(s, kept)
	dispute := "du_" + lost.String()
	exec(s, `INSERT INTO disputes (id, purchase_id, status, reason, refundable, lost, amount, currency, fee, fee_currency, opened_at, closed_at)
		VALUES ($1, $2, 'lost', 'fraudulent', false, true, 300, 'JPY', 1550, 'EUR', '2026-11-03T10:00:00Z', '2026-12-24T18:30:00Z')`, dispute, lost)
	exec(s, `UPDATE payments SET amount_disputed = 300, disputed_at = clock_timestamp(), dispute = (SELECT json_build_object('id', id, 'status', status, 'reason', reason, 'refundable', refundable,
		'amount', amount, 'currency', currency, 'fee', fee, 'fee_currency', fee_currency, 'opened_at', opened_at, 'closed_at', closed_at) FROM disputes d WHERE d.id = $1) WHERE purchase_id = $2`, dispute, lost)
	wantAnswer(t, "the purchase", s.Do(0, s.Operator, http.MethodGet, "/v1/purchases/"+lost.String(), nil, nil), 200,
		`"amount":300,"currency":"JPY","fee":1550,"fee_currency":"EUR","at":"2026-11-03T10:00:00Z","closed_at":"2026-12-24T18:30:00Z"`)
	list := func(query string) fleet.Answer {
		return s.Do(0, s.Operator, http.MethodGet, "/v1/campaigns/"+id.String()+"/purchases?"+query, nil, nil)
	}
	for filter, found := range map[string]bool{"lost": true, "any": true, "open": false, "won": false} {
		wantEqual(t, filter, fleet.Contains(list("dispute="+filter).Body, lost.String()), found)
	}
	wantAnswer(t, "what is not disputed", list("dispute=any"), 200, without(kept.String()))
	wantAnswer(t, "of a state", list("dispute=any&state=refunded"), 200, without(lost.String()))
	wantAnswer(t, "an outcome that is none", list("dispute=drawn"), 400)
	wantAnswer(t, "by its intent", list("dispute=any&reference=pi_"+lost.String()), 200, lost.String())
	wantAnswer(t, "by that of another", list("dispute=any&reference=pi_"+kept.String()), 200, without(lost.String()))
	wantAnswer(t, "by a reference of nobody", list("dispute=any&reference=order-1"), 200, without(lost.String()))
	b := signIn(s)
	wantAnswer(t, "its page", b.get("/purchases/"+lost.String()), 200, dispute+"</code> lost, <bdi>fraudulent</bdi>: 300 JPY, fee 15.50 EUR; opened", "2026-11-03 10:00:00Z", ", closed", "2026-12-24 18:30:00Z")
	wantAnswer(t, "the list", b.get("/campaigns/"+id.String()+"?dispute=lost"), 200, `/console/purchases/`+lost.String(), without(`/console/purchases/`+kept.String()), `?dispute=lost" aria-current="page"`)
	wantAnswer(t, "an empty list", b.get("/campaigns/"+id.String()+"?dispute=open"), 200, "None of these.", without(`/console/purchases/`+lost.String()))
}

func TestAPolicySaysWhatALostDisputeDoes(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, cardsTaken)
	for policy, want := range map[string]string{"": "keep", "keep": "keep", "release": "release"} {
		body := fleet.CampaignBody(3)
		if policy != "" {
			body["policies"] = fleet.Fields{"disputes": policy}
		}
		made := s.Post("/v1/campaigns", body)
		mustAnswer(t, policy, made, http.StatusCreated, `"disputes":"`+want+`"`)
		path := "/v1/campaigns/" + made.ID.String()
		mustAnswer(t, "published", s.Post(path+"/publish", nil), http.StatusOK)
		wantAnswer(t, "changed afterwards", s.Do(0, s.Operator, http.MethodPatch, path, map[string]string{"Idempotency-Key": uuid.NewString()}, fleet.Fields{"policies": fleet.Fields{"disputes": "release"}}), http.StatusConflict)
	}
	body := fleet.CampaignBody(3)
	body["policies"] = fleet.Fields{"disputes": "burn"}
	wantAnswer(t, "another word", s.Post("/v1/campaigns", body), http.StatusBadRequest, "/policies/disputes")
}
