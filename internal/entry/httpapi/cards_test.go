package httpapi_test

import (
	"net/http"
	"slices"
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

func TestAPaymentHasWhatItsMethodNeedsAndNothingElse(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, cardsTaken)
	path := "/v1/campaigns/" + s.Campaign(3).String() + "/purchases"
	for payment, says := range map[string]string{
		`{"method":"card"}`:                                                                                    "/payment/payment_method",
		`{"method":"card","payment_method":""}`:                                                                "/payment/payment_method",
		`{"method":"card","payment_method":null}`:                                                              "/payment/payment_method",
		`{"method":"card","payment_method":"4242424242424242"}`:                                                "such as pm_1Q0PsIJvEtkwdCNYMSaVuRz6",
		`{"method":"card","payment_method":"pm_a b"}`:                                                          "/payment/payment_method",
		`{"method":"card","payment_method":"pm_` + strings.Repeat("a", 253) + `"}`:                             "/payment/payment_method",
		`{"method":"card","payment_method":"pm_1","reference":"order-1"}`:                                      "/payment/reference",
		`{"method":"card","payment_method":"pm_1","return_url":"shop.example"}`:                                "/payment/return_url",
		`{"method":"card","payment_method":"pm_1","return_url":"javascript:alert(1)"}`:                         "/payment/return_url",
		`{"method":"card","payment_method":"pm_1","return_url":"https:///x"}`:                                  "/payment/return_url",
		`{"method":"card","payment_method":"pm_1","return_url":"https://me:secret@shop.example"}`:              "/payment/return_url",
		`{"method":"card","payment_method":"pm_1","return_url":"https://a/` + strings.Repeat("a", 2000) + `"}`: "/payment/return_url",
		`{"method":"card","payment_method":"pm_1","card_number":"4242424242424242"}`:                           "card_number",
		`{"method":"external","payment_method":"pm_1"}`:                                                        "/payment/payment_method",
		`{"method":"wallet","payment_method":"pm_1"}`:                                                          "/payment/payment_method",
		`{"method":"wallet","return_url":"https://shop.example"}`:                                              "/payment/return_url",
	} {
		a := s.Do(0, s.App, http.MethodPost, path, map[string]string{"Idempotency-Key": uuid.NewString()},
			fleet.RawJSON(`{"user_id":"u","selection":{"quantity":1},"payment":`+payment+`}`))
		if a.Status != http.StatusBadRequest || a.Refusal() != "invalid-request" || !strings.Contains(string(a.Body), says) {
			t.Errorf("%s: %v %s", payment, a, a.Body)
		}
	}
	a := s.Do(0, s.App, http.MethodPost, path, map[string]string{"Idempotency-Key": "good"},
		fleet.RawJSON(`{"user_id":"u","selection":{"quantity":1},"payment":{"method":"card","payment_method":"pm_1","return_url":"https://shop.example/a?b=c"}}`))
	if a.Status != http.StatusAccepted {
		t.Fatalf("%v %s", a, a.Body)
	}
	var payload string
	if err := s.DB.QueryRow(t.Context(), `SELECT payload -> 'payment' FROM jobs WHERE id = $1`, a.ID).Scan(&payload); err != nil ||
		payload != `{"method":"card","payment_method":"pm_1","return_url":"https://shop.example/a?b=c"}` {
		t.Errorf("the worker reads %s, %v", payload, err)
	}
	if n := count(s, `SELECT count(*) FROM jobs WHERE client = $1`, s.Client("shop")); n != 1 {
		t.Errorf("%d jobs", n)
	}
}

func TestWithoutAProviderCardsAreRefusedAtTheDoorAndTheKeyStaysFree(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, busy)
	id := s.Campaign(3)
	a := orderByCard(s, s.App, id, "u", "a key")
	if a.Status != http.StatusConflict || a.Refusal() != "cards-not-accepted" {
		t.Fatalf("%v %s", a, a.Body)
	}
	fleet.CheckProblem(t, a)
	if a := sendEvent(s, event("evt_1"), signed(event("evt_1"), webhookSecret, time.Now())); a.Status != http.StatusConflict || a.Refusal() != "cards-not-accepted" {
		t.Errorf("a webhook: %v %s", a, a.Body)
	}
	if a := s.Buy(fleet.Order{Campaign: id, User: "u", Key: "a key", Wait: true}); a.State != job.Succeeded {
		t.Errorf("the same key with money that the app has: %v", a)
	}
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
	path := "/v1/purchases/" + bought.String() + "/payment"
	try := func(credential, body string, header ...string) fleet.Answer {
		headers := map[string]string{"Idempotency-Key": uuid.NewString()}
		for pair := range slices.Chunk(header, 2) {
			headers[pair[0]] = pair[1]
		}
		return s.Do(0, credential, http.MethodPost, path, headers, fleet.RawJSON(body))
	}
	for body, says := range map[string]string{
		`{}`:                                     "/payment_method",
		`{"payment_method":""}`:                  "/payment_method",
		`{"payment_method":"4242424242424242"}`:  "/payment_method",
		`{"payment_method":"pm_1","method":"x"}`: "/method",
		`{"payment_method":"pm_1","return_url":"https://me:secret@shop.example"}`: "/return_url",
	} {
		if a := try(token, body); a.Status != http.StatusBadRequest || !strings.Contains(string(a.Body), says) {
			t.Errorf("%s: %v %s", body, a, a.Body)
		}
	}
	if a := try(fleet.TokenFor(t, s.User("otto"), ""), `{"payment_method":"pm_1"}`); a.Status != http.StatusNotFound {
		t.Errorf("of somebody else: %v", a)
	}
	if j := decoded[jobView](s, s.Do(0, s.Operator, http.MethodGet, "/v1/jobs/"+of.String(), nil, nil)); j.NextAction == nil || j.NextAction.Type != "payment_method" || j.NextAction.URL != "" || j.NextAction.Decline == nil {
		t.Errorf("the job asks for %+v", j.NextAction)
	}

	const body = `{"payment_method":"pm_card_visa","return_url":"https://shop.test/again"}`
	first := try(token, body, "Idempotency-Key", "k")
	if j := decoded[jobView](s, first); first.Status != http.StatusAccepted || first.ID != of || j.State != "queued" || j.NextAction != nil || first.Header.Get("Location") != "/v1/jobs/"+of.String() {
		t.Fatalf("%v %s %v", first, first.Body, first.Header)
	}
	p := fixture.Payment(t, s.DB, bought)
	if p.Phase != payment.Confirming || p.PaymentMethod != "pm_card_visa" || p.ReturnURL == nil || *p.ReturnURL != "https://shop.test/again" || p.Tries != 1 {
		t.Errorf("%+v", p)
	}
	again := try(token, body, "Idempotency-Key", "k")
	if again.Status != http.StatusAccepted || again.ID != of || again.Header.Get("Idempotent-Replayed") != "true" || fixture.Payment(t, s.DB, bought).Tries != 1 {
		t.Errorf("repeated: %v %s", again, again.Body)
	}
	if a := try(token, `{"payment_method":"pm_2"}`); a.Status != http.StatusConflict || a.Refusal() != "state-conflict" {
		t.Errorf("while it is tried: %v %s", a, a.Body)
	}
	if a := try(token, `{"payment_method":"pm_2"}`, "Idempotency-Key", "k"); a.Status != http.StatusUnprocessableEntity {
		t.Errorf("the key of another card: %v %s", a, a.Body)
	}

	paid := adopted(s, fixture.Buy(t, s.DB, id, mina, 0, 1))
	if a := s.Execute("/v1/purchases/"+paid.String()+"/payment", fleet.Fields{"payment_method": "pm_1"}); a.Status != http.StatusConflict || !strings.Contains(string(a.Body), "not paid by card") {
		t.Errorf("a purchase without a card: %v %s", a, a.Body)
	}
	many, _ := declinedOf(s, id, mina)
	exec(s, `INSERT INTO payment_steps (purchase_id, event, declined_client, declined_user) SELECT id, 'declined', client, user_id FROM purchases, generate_series(1, 10) WHERE id = $1`, many)
	a := s.Execute("/v1/purchases/"+many.String()+"/payment", fleet.Fields{"payment_method": "pm_1"})
	if a.Status != http.StatusConflict || a.Refusal() != "decline-limit-exceeded" || !strings.Contains(string(a.Body), `"retry_at"`) {
		t.Errorf("after ten declines: %v %s", a, a.Body)
	}
}

// The request waits until its card has an end, or the buyer has to act again.
func TestARequestWithAnotherCardCanWaitForItsEnd(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, cardsTaken)
	bought, of := declinedOf(s, s.Campaign(3), s.User("mina"))
	tried := make(chan fleet.Answer)
	go func() {
		tried <- s.Execute("/v1/purchases/"+bought.String()+"/payment", fleet.Fields{"payment_method": "pm_card_visa"}, "Prefer", "wait=170")
	}()
	servers.Eventually(t, "the card is tried", func() bool { return fixture.Payment(t, s.DB, bought).Phase == payment.Confirming })
	announced(s, of, "awaiting_action", redirect)
	if a := <-tried; a.Status != http.StatusAccepted || a.State != job.AwaitingAction || a.ID != of {
		t.Errorf("%v %s", a, a.Body)
	}
	announced(s, of, "queued", "null")
}

const redirect = `{"next_action":{"type":"redirect","url":"https://bank.example/3ds?a=b&c=d","expires_at":"2030-01-01T00:00:00Z"}}`

type nextAction struct {
	Type, URL string
	Decline   *struct{ Code string }
}

type jobView struct {
	State      string
	PurchaseID *uuid.UUID  `json:"purchase_id"`
	NextAction *nextAction `json:"next_action"`
	RetryAt    *time.Time  `json:"retry_at"`
	Waiting    *struct {
		Reason  string
		RetryAt time.Time `json:"retry_at"`
	}
	Refunds *struct{ Total, Done, Waiting int }
	Problem *struct {
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

func TestAPurchaseRequestThatWaitsEndsWithTheAction(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, cardsTaken)
	id := s.Campaign(3)
	bought := make(chan fleet.Answer)
	go func() { bought <- orderByCard(s, s.App, id, "u", "k", "Prefer", "wait=170") }()
	var accepted uuid.UUID
	servers.Eventually(t, "the job is there", func() bool {
		return s.DB.QueryRow(t.Context(), `SELECT id FROM jobs WHERE client = $1`, s.Client("shop")).Scan(&accepted) == nil
	})
	announced(s, accepted, "awaiting_action", redirect)
	if a := <-bought; a.Status != http.StatusAccepted || a.State != job.AwaitingAction || a.ID != accepted {
		t.Errorf("%v %s", a, a.Body)
	}
	announced(s, accepted, "failed", "null")
}

func TestTheStreamOfAJobTellsWhatItAwaitsAndWaitsFor(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, cardsTaken)
	accepted := orderByCard(s, s.App, s.Campaign(3), "u", "k")
	l := s.Listen(0, s.App, fleet.JobEvents(accepted.ID), "")
	want := func(l *fleet.Listener, what, state, part string) fleet.Frame {
		t.Helper()
		f := l.WantEvent()
		if !strings.Contains(f.Data, `"state":"`+state+`"`) || !strings.Contains(f.Data, part) {
			t.Errorf("%s: %+v", what, f)
		}
		return f
	}
	want(l, "first", "queued", `"waiting":null`)
	announced(s, accepted.ID, "queued", `{"waiting":{"reason":"the provider is away","retry_at":"2030-01-01T00:00:00Z"}}`)
	want(l, "it waits", "queued", `"retry_at":"2030-01-01T00:00:00Z","waiting":{"reason":"the provider is away","retry_at":"2030-01-01T00:00:00Z"}`)
	announced(s, accepted.ID, "queued", `{"waiting":{"reason":"the provider is away","retry_at":"2030-01-02T00:00:00Z"}}`)
	again := want(l, "it waits for longer", "queued", `"reason":"the provider is away"`)
	l.WantSilence(2)
	announced(s, accepted.ID, "awaiting_action", redirect)
	seen := want(l, "the buyer has to act", "awaiting_action", `"type":"redirect"`)
	if seen.ID == again.ID || again.ID == "queued" {
		t.Errorf("the events have the ids %s and %s", again.ID, seen.ID)
	}
	l.HangUp()

	back := s.Listen(0, s.App, fleet.JobEvents(accepted.ID), seen.ID)
	back.WantSilence(2)
	late := s.Listen(0, s.App, fleet.JobEvents(accepted.ID), again.ID)
	want(late, "what was missed", "awaiting_action", `"type":"redirect"`)
	announced(s, accepted.ID, "failed", redirect)
	for _, l := range []*fleet.Listener{back, late} {
		want(l, "the end", "failed", `"next_action":null`)
		l.WantEnd()
	}
}

// The queue of payments is judged for cards only, and the others for all.
func TestAQueueOfPaymentsThatIsTooLongRefusesCardsOnly(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Workers: -1, Schedulers: -1, Env: takingCards})
	id := s.Campaign(3)
	before := orderByCard(s, s.App, id, "u", "before")
	if before.Status != http.StatusAccepted {
		t.Fatal(before)
	}
	purchase := uuid.New()
	t.Cleanup(func() { exec(s, `DELETE FROM payments WHERE purchase_id = $1`, purchase) }) // before the audit: there is no such purchase
	exec(s, `INSERT INTO payments (purchase_id, job_id, campaign_id, amount, currency, payment_method, deadline, latest, kept_since, created_at)
		VALUES ($1, $2, $3, 100, 'JPY', 'pm_1', clock_timestamp(), clock_timestamp(), clock_timestamp(), clock_timestamp() - interval '1 hour')`, purchase, uuid.New(), id)
	servers.Eventually(t, "the wait is known", func() bool { return s.Metric(0, `triprize_queue_wait_seconds{kind="payment"}`) > 3000 })
	a := orderByCard(s, s.App, id, "u", "after")
	if a.Status != http.StatusServiceUnavailable || a.Refusal() != "overloaded" || a.Header.Get("Retry-After") != "60" {
		t.Errorf("by card: %v %s", a, a.Body)
	}
	if a := orderByCard(s, s.App, id, "u", "before"); a.Status != http.StatusAccepted || a.ID != before.ID {
		t.Errorf("an earlier request again: %v", a)
	}
	for _, byWallet := range []bool{false, true} {
		if a := s.Buy(fleet.Order{Campaign: id, User: "u", ByWallet: byWallet}); a.Status != http.StatusAccepted {
			t.Errorf("by wallet %t: %v", byWallet, a)
		}
	}
	exec(s, `DELETE FROM payments WHERE purchase_id = $1`, purchase)
	s.AwaitMetric(0, `triprize_queue_wait_seconds{kind="payment"}`, 0)
	if a := orderByCard(s, s.App, id, "u", "after"); a.Status != http.StatusAccepted {
		t.Errorf("the same request later: %v", a)
	}
}

func TestAPurchaseByCardShowsItsPaymentItsRefundAndWhatHappened(t *testing.T) {
	t.Parallel()
	s := withUsers(fleet.Shared(t, cardsTaken))
	id, _ := fixture.BuyByCard(t, s.DB, s.Campaign(3), s.User("mina"), 3, 1)
	adopted(s, id)
	exec(s, `UPDATE payments SET dispute = '{"id":"dp_1","status":"needs_response","reason":"fraudulent"}', disputed_at = clock_timestamp() WHERE purchase_id = $1`, id)
	refund := insertRefund(s, id, "card", "failed")
	exec(s, `INSERT INTO payment_steps (purchase_id, event, detail) VALUES ($1, 'refund-failed', 'expired_or_canceled_card')`, id)
	exec(s, `INSERT INTO refunds (id, purchase_id, campaign_id, user_id, method, amount, currency, reason, state, provider_id, finished_at)
		SELECT 'ffffffff-ffff-4fff-8fff-ffffffffffff', id, campaign_id, user_id, 'card', 1, currency, 'out-of-band', 'succeeded', 're_hand', clock_timestamp() FROM purchases WHERE id = $1`, id)
	type view struct {
		Payment struct {
			Method, Reference string
			PaymentMethod     string     `json:"payment_method"`
			ExpiresAt         *time.Time `json:"expires_at"`
		}
		AmountRefunded int `json:"amount_refunded"`
		Refunds        []struct {
			ID        uuid.UUID
			Reason    string
			Amount    int
			State     string
			Reference string
			Failure   *string
		}
		Dispute  *struct{ ID, Status, Reason string }
		Timeline []struct{ Event, Detail string }
	}
	for who, credential := range map[string]string{"operator": s.Operator, "user": fleet.TokenFor(t, s.User("mina"), "")} {
		one := decoded[view](s, s.Do(0, credential, http.MethodGet, "/v1/purchases/"+id.String(), nil, nil))
		list := decoded[struct{ Purchases []view }](s, s.Do(0, credential, http.MethodGet, "/v1/users/"+s.User("mina")+"/purchases", nil, nil))
		if len(list.Purchases) != 1 {
			t.Fatalf("%s sees %d purchases", who, len(list.Purchases))
		}
		for _, p := range []view{one, list.Purchases[0]} {
			if p.Payment.Method != "card" || p.Payment.Reference != "pi_"+id.String() || p.Payment.PaymentMethod != "pm_card_visa" || p.Payment.ExpiresAt != nil {
				t.Errorf("%s: the payment is %+v", who, p.Payment)
			}
			if p.AmountRefunded != 1 || len(p.Refunds) != 2 || p.Refunds[1].Reason != "out-of-band" || p.Refunds[1].Amount != 1 || p.Refunds[1].State != "succeeded" {
				t.Errorf("%s: %d are back, the refunds are %+v", who, p.AmountRefunded, p.Refunds)
			}
			if len(p.Refunds) == 0 || p.Refunds[0].ID != refund || p.Refunds[0].State != "failed" || p.Refunds[0].Reference == "" || (p.Refunds[0].Failure == nil) != (who == "user") {
				t.Errorf("%s: the refunds are %+v", who, p.Refunds)
			}
			if p.Dispute == nil || p.Dispute.ID != "dp_1" || p.Dispute.Status != "needs_response" {
				t.Errorf("%s: the dispute is %+v", who, p.Dispute)
			}
			var events []string
			for _, e := range p.Timeline {
				events = append(events, e.Event)
				if (e.Detail != "") != (who == "operator" && e.Event == "refund-failed") {
					t.Errorf("%s: %s has the detail %q", who, e.Event, e.Detail)
				}
			}
			if !slices.Equal(events, []string{"created", "reserved", "completed", "refund-failed"}) {
				t.Errorf("%s: the timeline is %v", who, events)
			}
		}
	}
}
