package stripesim

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stripe/stripe-go/v85"
)

func keyed(key string) *create {
	p := held("pm_card_visa")
	p.SetIdempotencyKey(key)
	return p
}

func TestOneKeyHasOneAnswer(t *testing.T) {
	s := open(t, Settings{})
	one, two := s.create(keyed("pi:1")), s.create(keyed("pi:1"))
	if one.ID != two.ID || one.LastResponse.Header.Get("Idempotent-Replayed") != "" || two.LastResponse.Header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("%s, %s, %v", one.ID, two.ID, two.LastResponse.Header)
	}
	if two.LastResponse.Header.Get("Original-Request") != one.LastResponse.Header.Get("Request-Id") || one.LastResponse.Header.Get("Request-Id") == "" {
		t.Error("the first request is not named")
	}
	if n, _ := s.counted(); n != 1 {
		t.Errorf("%d intents", n)
	}
	other := keyed("pi:1")
	other.Amount = stripe.Int64(501)
	_, err := s.sc.V1PaymentIntents.Create(t.Context(), other)
	if e := problem(t, err, 400, ""); e.Type != stripe.ErrorTypeIdempotency {
		t.Errorf("other parameters: %v", e)
	}
	_, err = s.confirm(one.ID, "pi:1")
	if e := problem(t, err, 400, ""); e.Type != stripe.ErrorTypeIdempotency {
		t.Errorf("another endpoint: %v", e)
	}
}

func TestAKeyIsForgottenAfterADayAndChargesAgain(t *testing.T) {
	s := open(t, Settings{})
	one := s.create(keyed("pi:1"))
	s.advance(23*time.Hour + 50*time.Minute)
	if two := s.create(keyed("pi:1")); two.ID != one.ID {
		t.Error("forgotten before a day is over")
	}
	s.advance(20 * time.Minute) // what is old was just looked for, and is not looked for again
	if two := s.create(keyed("pi:1")); two.ID == one.ID {
		t.Error("remembered after a day")
	}
}

func TestADeclineIsKeptUnderItsKey(t *testing.T) {
	s := open(t, Settings{})
	i := s.create(held("pm_card_chargeDeclined"))
	first := problem(t, second(s.confirm(i.ID, "confirm:1")), 402, "card_declined")
	again := problem(t, second(s.confirm(i.ID, "confirm:1")), 402, "card_declined")
	if _, n := s.counted(); again.ChargeID != first.ChargeID || n != 1 {
		t.Errorf("the card was charged again: %s, %s", first.ChargeID, again.ChargeID)
	}
}

func TestAStored500IsReplayedAndAnotherKeyWorks(t *testing.T) {
	s := open(t, Settings{})
	i := s.create(held("pm_sandbox_500_once"))
	for range 3 {
		problem(t, second(s.confirm(i.ID, "confirm:1")), 500, "")
	}
	if got := s.intent(i.ID); got.Status != "requires_confirmation" {
		t.Errorf("%s", got.Status)
	}
	if got, err := s.confirm(i.ID, "confirm:2"); err != nil || got.Status != "requires_capture" {
		t.Errorf("%v, %v", got, err)
	}
}

func TestAKeyInUseIsRefused(t *testing.T) {
	s := open(t, Settings{Slow: time.Hour})
	i := s.create(held("pm_sandbox_slow"))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = s.confirm(i.ID, "confirm:1") // it ends with the server
	}()
	until(t, "the key is in use", func() bool {
		s.server.mu.Lock()
		defer s.server.mu.Unlock()
		return s.server.inUse["confirm:1"]
	})
	e := problem(t, second(s.confirm(i.ID, "confirm:1")), 409, "idempotency_key_in_use")
	if e.Type != stripe.ErrorTypeIdempotency {
		t.Errorf("%v", e)
	}
	s.server.Release()
	<-ended
}

func TestWrongRequestsAreRefusedAsAtStripe(t *testing.T) {
	s := open(t, Settings{})
	const intents = "/v1/payment_intents"
	for form, want := range map[string]string{
		"currency=jpy":                                       "parameter_missing amount",
		"amount=500":                                         "parameter_missing currency",
		"amount=49&currency=jpy":                             "amount_too_small amount",
		"amount=0&currency=krw":                              "amount_too_small amount",
		"amount=100000000&currency=jpy":                      "amount_too_large amount",
		"amount=-5&currency=jpy":                             "parameter_invalid_integer amount",
		"amount=5.5&currency=jpy":                            "parameter_invalid_integer amount",
		"amount=500&currency=yen":                            " currency",
		"amount=500&currency=":                               "parameter_invalid_empty currency",
		"amount=500&currency=jpy&colour=red":                 "parameter_unknown colour",
		"amount=500&currency=jpy&customer=cus_1":             "parameter_unknown customer",
		"amount=500&currency=jpy&metadata[a][b]=1":           "parameter_unknown metadata[a][b]",
		"amount=500&currency=jpy&payment_method=pm_1":        "resource_missing payment_method",
		"amount=500&currency=jpy&confirm=yes":                " confirm",
		"amount=500&currency=jpy&capture_method=never":       " capture_method",
		"amount=500&currency=jpy&expand[]=customer":          " expand",
		"amount=500&amount=600&currency=jpy":                 " amount",
		"amount=500&currency=jpy&confirm=true":               "payment_intent_unexpected_state ",
		"amount=500&currency=jpy&return_url=https://a.test/": " return_url",
		"amount=500&currency=jpy&payment_method_types[]=card&payment_method=pm_sandbox_processing":    "payment_intent_incompatible_payment_method payment_method",
		"amount=500&currency=jpy&payment_method_types[]=card&automatic_payment_methods[enabled]=true": "parameters_exclusive automatic_payment_methods",
		"amount=500&currency=jpy&payment_method=pm_card_visa&confirm=true":                            " return_url",
		"amount=500&currency=jpy&metadata[" + strings.Repeat("x", 41) + "]=1":                         " metadata[" + strings.Repeat("x", 41) + "]",
	} {
		status, head, body := s.raw(http.MethodPost, intents, form, "Idempotency-Key", "same for all")
		e, _ := body["error"].(map[string]any)
		code, _ := e["code"].(string)
		param, _ := e["param"].(string)
		if status != 400 || e["type"] != "invalid_request_error" || e["message"] == "" || code+" "+param != want || head.Get("Stripe-Should-Retry") != "false" {
			t.Errorf("%s: %d %v", form, status, body)
		}
	}
	if n, _ := s.counted(); n != 0 {
		t.Errorf("%d intents were made", n)
	}
	for path, want := range map[string]int{"/v1/nothing": 404, intents + "/pi_1": 404, intents + "?limit=0": 400, intents + "?limit=101": 400, intents + "?starting_after=pi_1": 400, "/v1/events?type=a&types[]=b": 400} {
		if status, head, body := s.raw(http.MethodGet, path, ""); status != want || head.Get("Request-Id") == "" || body["error"] == nil {
			t.Errorf("%s: %d %v", path, status, body)
		}
	}
	for _, header := range [][]string{{"Authorization", "Bearer sk_test_wrong"}, {"Authorization", ""}, {"Stripe-Account", "acct_1"}, {"Stripe-Version", "2020-08-27"}, {"Content-Type", "application/json"}} {
		if status, _, body := s.raw(http.MethodPost, intents, "amount=500&currency=jpy", header...); status < 400 || status > 403 || strings.Contains(string(must(json.Marshal(body))), testKey) {
			t.Errorf("%s: %d %v", header, status, body)
		}
	}
}

func must(raw []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return raw
}
