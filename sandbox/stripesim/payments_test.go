package stripesim

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"triprize/internal/testkit/servers"
)

func TestPaymentsGoThroughTheStatesOfStripe(t *testing.T) {
	stories(t, map[string]string{
		"held and captured": `create pm_card_visa → requires_confirmation
			confirm → requires_capture capturable=500
			capture → succeeded received=500
			fetch → succeeded received=500 charge captured=true refunded=0 disputed=false
			totals → 500 of 0, 1 intents, 1 charges
			heard 1 2 3 4 5 → charge.captured charge.succeeded payment_intent.amount_capturable_updated payment_intent.created payment_intent.succeeded
			capture → 400 invalid_request_error payment_intent_unexpected_state with the intent
			confirm → 400 invalid_request_error payment_intent_unexpected_state with the intent
			cancel → 400 invalid_request_error payment_intent_unexpected_state with the intent`,
		"captured when it is confirmed": `create pm_card_jcb auto; confirm → succeeded received=500`,
		"held by capture_method":        `create pm_card_mastercard auto capture_method=manual; confirm → requires_capture capturable=500`,
		"cancelled": `create pm_card_visa; cancel cancellation_reason=abandoned → canceled abandoned
			confirm → 400 invalid_request_error payment_intent_unexpected_state with the intent
			cancel → 400 invalid_request_error payment_intent_unexpected_state with the intent`,
		"cancelled when it is held": `create pm_card_visa; capture → 400 invalid_request_error payment_intent_unexpected_state with the intent
			confirm; cancel → canceled
			fetch → canceled charge captured=false refunded=500 disputed=false
			totals → 0 of 0, 1 intents, 1 charges`,
		"released after seven days": `create pm_card_visa; confirm; advance 144h; fetch → requires_capture capturable=500 charge captured=false refunded=0 disputed=false
			advance 25h; fetch → canceled charge captured=false refunded=500 disputed=false automatic`,
		"captured in part": `create pm_card_visa; confirm; capture amount_to_capture=501 → 400 invalid_request_error amount_too_large
			capture amount_to_capture=300 → succeeded received=300
			refund amount=301 → 400 invalid_request_error`,
		"a slow one that ends when it is told to": `create pm_sandbox_processing; confirm → processing
			confirm → 400 invalid_request_error payment_intent_unexpected_state with the intent
			cancel → 400 invalid_request_error payment_intent_unexpected_state with the intent
			finish true; fetch → succeeded received=500 charge captured=true refunded=0 disputed=false
			finish true → refused`,
		"a slow one that fails":               `create pm_sandbox_processing; confirm; finish false; fetch → requires_payment_method payment_intent_payment_attempt_failed charge captured=false refunded=0 disputed=false without a method`,
		"a slow one that ends after its time": `create pm_sandbox_processing; confirm; fetch; advance 4m; fetch → succeeded received=500 charge captured=true refunded=0 disputed=false`,
		"refunded in parts": `paid pm_card_visa; refund amount=200 → succeeded 200
			refund amount=301 → 400 invalid_request_error
			refund → succeeded 300
			refund amount=1 → 400 invalid_request_error charge_already_refunded
			totals → 500 of 500, 1 intents, 1 charges`,
		"a refund of what is held": `create pm_card_visa; refund → 400 invalid_request_error
			confirm; refund → 400 invalid_request_error payment_intent_unexpected_state with the intent
			refund payment_intent=pi_nobody → 404 invalid_request_error resource_missing`,
		"a refund fails after it has succeeded": `paid pm_card_refundFail; refund → succeeded 500
			advance 2h; refunded → failed 500 expired_or_canceled_card
			totals → 500 of 0, 1 intents, 1 charges
			refund → succeeded 500
			heard 1 2 3 4 5 6 7 8 9 10 11 → charge.captured charge.refunded charge.refunded charge.succeeded payment_intent.amount_capturable_updated payment_intent.created payment_intent.succeeded refund.created refund.created refund.failed refund.updated`,
		"a pending refund": `paid pm_card_pendingRefund; refund → pending 500
			advance 2h; refunded → succeeded 500
			uncancel → 400 invalid_request_error`,
		"a refund that needs an action": `paid pm_sandbox_refund_requires_action; refund → requires_action 500
			uncancel → canceled 500 merchant_request
			refund; finish-refund succeeded → ok
			refunded → succeeded 500`,
		"a dispute": `paid pm_card_createDispute; advance 2h; fetch → succeeded received=500 charge captured=true refunded=0 disputed=true
			disputed → needs_response 500 fraudulent
			refund → 400 invalid_request_error charge_disputed
			close true; close false → refused
			refund → succeeded 500
			heard 1 2 3 4 5 6 7 8 9 10 11 → charge.captured charge.dispute.closed charge.dispute.created charge.dispute.funds_reinstated charge.dispute.funds_withdrawn charge.refunded charge.succeeded payment_intent.amount_capturable_updated payment_intent.created payment_intent.succeeded refund.created`,
		"an inquiry": `paid pm_card_createDisputeInquiry; advance 2h; disputed → warning_needs_response 500 fraudulent refundable
			refund → succeeded 500
			escalate → refused`,
		"an inquiry that the bank escalates": `paid pm_card_createDisputeInquiry; advance 2h; disputed; close true; escalate → ok
			disputed → needs_response 500 fraudulent
			refund → 400 invalid_request_error charge_disputed
			escalate → refused
			heard 1 2 3 4 5 6 7 8 9 → charge.captured charge.dispute.closed charge.dispute.created charge.dispute.funds_withdrawn charge.dispute.updated charge.succeeded payment_intent.amount_capturable_updated payment_intent.created payment_intent.succeeded`,
		"declined": `create pm_card_chargeDeclinedInsufficientFunds; confirm → 402 card_error card_declined insufficient_funds with the intent
			fetch → requires_payment_method card_declined charge captured=false refunded=0 disputed=false without a method
			confirm → 400 invalid_request_error payment_intent_unexpected_state with the intent
			confirm payment_method=pm_card_visa → requires_capture capturable=500`,
		"its events are listed, whether they are sent or not": `create pm_sandbox_webhook_never; confirm; capture; listed → 5
			listed type=payment_intent.* → 3
			listed types[]=charge.captured → 1`,
		"webhooks that come twice":    `paid pm_sandbox_webhook_twice; heard 1 2 3 4 5 6 7 8 9 10 → charge.captured charge.captured charge.succeeded charge.succeeded payment_intent.amount_capturable_updated payment_intent.amount_capturable_updated payment_intent.created payment_intent.created payment_intent.succeeded payment_intent.succeeded`,
		"webhooks that never come":    `paid pm_sandbox_webhook_never; create pm_card_visa; heard 1 → payment_intent.created`,
		"webhooks that are overtaken": `paid pm_sandbox_webhook_late; create pm_card_visa; heard 1 → payment_intent.created`,
	})
}

func TestAKeyHasOneAnswer(t *testing.T) {
	const first = `create pm_card_visa; faults `
	stories(t, map[string]string{
		"for a day": `create pm_card_visa key=k → requires_confirmation
			create pm_card_visa key=k → requires_confirmation replayed
			create pm_card_visa amount=501 key=k → 400 idempotency_error
			confirm key=k → 400 idempotency_error
			advance 23h50m; create pm_card_visa key=k; totals → 0 of 0, 1 intents, 0 charges
			advance 20m; create pm_card_visa key=k; totals → 0 of 0, 2 intents, 0 charges`,
		"a decline": `create pm_card_chargeDeclined; confirm key=k → 402 card_error card_declined generic_decline with the intent
			confirm key=k → 402 card_error card_declined generic_decline with the intent replayed
			totals → 0 of 0, 1 intents, 1 charges`,
		"a 500 that is stored": `create pm_sandbox_500_once; confirm key=k; confirm key=k → 500 api_error replayed
			fetch → requires_confirmation
			confirm key=k2 → requires_capture capturable=500`,
		"500 before the work": first + `{"error_before":1}; confirm key=k → 500 api_error
			faults {}; fetch → requires_confirmation
			confirm key=k → 500 api_error replayed`,
		"500 after the work": first + `{"error_after":1}; confirm key=k → 500 api_error
			faults {}; fetch → requires_capture capturable=500 charge captured=false refunded=0 disputed=false
			confirm key=k → 500 api_error replayed`,
		"no answer before the work": first + `{"timeout_before":1,"hang_ms":1}; confirm key=k → lost
			faults {}; fetch → requires_confirmation
			confirm key=k → requires_capture capturable=500`,
		"no answer after the work": first + `{"timeout_after":1,"hang_ms":1}; confirm key=k → lost
			faults {}; fetch → requires_capture capturable=500 charge captured=false refunded=0 disputed=false
			confirm key=k → requires_capture capturable=500 replayed`,
		"too many requests": first + `{"too_many":1}; confirm key=k → 429 invalid_request_error rate_limit
			faults {}; fetch → requires_confirmation
			confirm key=k → requires_capture capturable=500`,
		"declined by a fault": first + `{"decline":1}; confirm key=k → 402 card_error card_declined generic_decline with the intent
			faults {}; fetch → requires_payment_method card_declined charge captured=false refunded=0 disputed=false without a method
			confirm key=k → 402 card_error card_declined generic_decline with the intent replayed`,
	})
}

func TestAKeyInUseIsRefused(t *testing.T) {
	s := open(t, Settings{Slow: time.Hour})
	s.do("create pm_sandbox_slow")
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.do("confirm key=k") // it ends with the server
	}()
	servers.Eventually(t, "the key is in use", func() bool {
		s.server.mu.Lock()
		defer s.server.mu.Unlock()
		return s.server.inUse["k"]
	})
	if got := s.do("confirm key=k"); got != "409 idempotency_error idempotency_key_in_use" {
		t.Error(got)
	}
	s.server.Release()
	<-ended
}

func TestAWebhookIsSentAgainUntilItIsTaken(t *testing.T) {
	s := open(t, Settings{})
	s.answer(500)
	s.do("create pm_card_visa")
	s.types(1)
	servers.Eventually(t, "the failed try is noted", func() bool { return s.server.Totals().Undelivered == 1 })
	s.do("advance 2h")
	s.types(1)
	servers.Eventually(t, "the second failed try is noted", func() bool { return s.server.Totals().Undelivered == 2 })
	s.answer(200)
	s.do("advance 3h")
	s.types(1)
	servers.Eventually(t, "nothing is unsent", func() bool { return s.server.Totals().Unsent == 0 })
	s.do("advance 24h")
	if got := s.have(); len(got) != 3 || s.got[0].ID != s.got[2].ID {
		t.Errorf("%q", got)
	}
}

func TestWhatEndedThirtyDaysAgoIsForgotten(t *testing.T) {
	s := open(t, Settings{})
	s.tell("paid pm_card_visa; advance 744h")
	servers.Eventually(t, "the payment and its events are gone", func() bool { return s.server.Totals().Events == 0 && len(s.server.Totals().Intents) == 0 })
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
