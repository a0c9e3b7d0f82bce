package stripe_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"triprize/internal/domain/payprovider"
)

// fault returns the error of a call.
func fault(t *testing.T, err error) *payprovider.Error {
	t.Helper()
	var e *payprovider.Error
	if !errors.As(err, &e) {
		t.Fatalf("got %v", err)
	}
	return e
}

// requests is how many requests the call makes: 1, or 3 when it is repeated.
func TestTheKindOfAnErrorSaysWhetherSomethingMayHaveBeenDone(t *testing.T) {
	t.Parallel()
	const replayed, advised = "Idempotent-Replayed", "Stripe-Should-Retry"
	type outcome struct {
		kind     payprovider.ErrorKind
		requests int
	}
	invalid := func(code string) string { return problem("invalid_request_error", code, "") }
	for name, c := range map[string]struct {
		answer      answer
		write, read outcome
		code        string
	}{
		"refused":                     {answer{400, invalid("parameter_missing"), nil}, outcome{"refused", 1}, outcome{"refused", 1}, "parameter_missing"},
		"refused without a code":      {answer{400, problem("invalid_request_error", "", ""), nil}, outcome{"refused", 1}, outcome{"refused", 1}, "invalid_request_error"},
		"not found":                   {answer{404, invalid("resource_missing"), nil}, outcome{"refused", 1}, outcome{"refused", 1}, "resource_missing"},
		"another state":               {answer{400, invalid("payment_intent_unexpected_state"), nil}, outcome{"conflict", 1}, outcome{"conflict", 1}, "payment_intent_unexpected_state"},
		"declined":                    {answer{402, problem("card_error", "card_declined", ""), nil}, outcome{"declined", 1}, outcome{"conflict", 1}, "card_declined"},
		"another request by this key": {answer{400, problem("idempotency_error", "", ""), nil}, outcome{"mismatch", 1}, outcome{"mismatch", 1}, "idempotency_error"},
		"under way by this key":       {answer{409, problem("idempotency_error", "idempotency_key_in_use", ""), nil}, outcome{"unknown", 3}, outcome{"unavailable", 3}, "idempotency_key_in_use"},
		"a bad key":                   {answer{401, invalid("api_key_expired"), nil}, outcome{"forbidden", 1}, outcome{"forbidden", 1}, "api_key_expired"},
		"a key of a proxy":            {answer{403, "no", nil}, outcome{"forbidden", 1}, outcome{"forbidden", 1}, ""},
		"too many requests":           {answer{429, invalid("rate_limit"), nil}, outcome{"limited", 1}, outcome{"limited", 1}, "rate_limit"},
		"too many, says a proxy":      {answer{429, "slow down", nil}, outcome{"limited", 1}, outcome{"limited", 1}, ""},
		"a lock":                      {answer{429, invalid("lock_timeout"), nil}, outcome{"limited", 3}, outcome{"limited", 3}, "lock_timeout"},
		"500, perhaps stored":         {answer{500, problem("api_error", "", ""), nil}, outcome{"unknown", 1}, outcome{"unavailable", 3}, "api_error"},
		"500, to be repeated":         {answer{500, problem("api_error", "", ""), map[string]string{advised: "true"}}, outcome{"unknown", 3}, outcome{"unavailable", 3}, "api_error"},
		"500, stored":                 {answer{500, problem("api_error", "", ""), map[string]string{replayed: "true", advised: "true"}}, outcome{"unknown", 1}, outcome{"unavailable", 1}, "api_error"},
		"500, stored, not JSON":       {answer{500, "oops", map[string]string{replayed: "true", advised: "true"}}, outcome{"unknown", 1}, outcome{"unavailable", 1}, ""},
		"503":                         {answer{503, problem("api_error", "", ""), nil}, outcome{"unknown", 3}, outcome{"unavailable", 3}, "api_error"},
		"503, not to be repeated":     {answer{503, problem("api_error", "", ""), map[string]string{advised: "false"}}, outcome{"unknown", 1}, outcome{"unavailable", 1}, "api_error"},
		"502 of a proxy":              {answer{502, "<html>bad gateway</html>", nil}, outcome{"unknown", 3}, outcome{"unavailable", 3}, ""},
		"a failed dependency":         {answer{424, invalid(""), nil}, outcome{"unknown", 3}, outcome{"unavailable", 3}, "invalid_request_error"},
		"a page of a proxy":           {answer{404, "<html>no such page</html>", nil}, outcome{"unknown", 3}, outcome{"unavailable", 3}, ""},
		"a redirect":                  {answer{302, "", map[string]string{"Location": "/v1/payment_intents/pi_2"}}, outcome{"unknown", 3}, outcome{"unavailable", 3}, ""},
		"not JSON":                    {answer{200, "{", nil}, outcome{"unknown", 3}, outcome{"unavailable", 3}, ""},
		"no object":                   {answer{200, "{}", nil}, outcome{"unknown", 3}, outcome{"unavailable", 3}, ""},
		"an id only":                  {answer{200, `"pi_1"`, nil}, outcome{"unknown", 3}, outcome{"unavailable", 3}, ""},
		"another object":              {answer{200, refund(), nil}, outcome{"unknown", 3}, outcome{"unavailable", 3}, ""},
		"a cut body":                  {answer{200, intent()[:100], map[string]string{"Content-Length": "700"}}, outcome{"unknown", 3}, outcome{"unavailable", 3}, ""},
		"a cut refusal":               {answer{400, invalid("a")[:20], map[string]string{"Content-Length": "700"}}, outcome{"unknown", 3}, outcome{"unavailable", 3}, ""},
		"a body without end":          {answer{200, `{"id":"` + strings.Repeat("a", 9<<20) + `"}`, nil}, outcome{"unknown", 3}, outcome{"unavailable", 3}, ""},
		"a lost connection":           {answer{-1, "", nil}, outcome{"unknown", 3}, outcome{"unavailable", 3}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for call, want := range map[string]outcome{"confirm": c.write, "fetch": c.read} {
				server := serve(t, c.answer)
				client := connect(t, settings(server.url))
				var err error
				if call == "confirm" {
					_, err = client.ConfirmIntent(t.Context(), "pi_1", "confirm:1", "pm_card_visa", "https://app.example/")
				} else {
					_, err = client.Intent(t.Context(), "pi_1")
				}
				e := fault(t, err)
				asked := server.requests()
				if e.Kind != want.kind || len(asked) != want.requests || e.Code != c.code || e.Call != call {
					t.Errorf("%s: got %+v after %d requests", call, e, len(asked))
				}
				if e.Replayed != (c.answer.header[replayed] != "") {
					t.Errorf("%s: replayed is %t", call, e.Replayed)
				}
				if (e.Kind == payprovider.KindLimited) != !e.RetryAt.IsZero() {
					t.Errorf("%s: retry at %s", call, e.RetryAt)
				}
				if status := max(c.answer.status, 0); e.Status != status && c.answer.status != 200 {
					t.Errorf("%s: status %d", call, e.Status)
				}
				for _, r := range asked {
					if call == "confirm" && r.header.Get("Idempotency-Key") != "confirm:1" {
						t.Errorf("repeated with the key %q", r.header.Get("Idempotency-Key"))
					}
				}
				if text := err.Error() + client.log.String(); strings.Contains(text, "hunter2") || strings.Contains(text, "<html>") {
					t.Errorf("%s: says what is secret, or a body: %s", call, text)
				}
				if client.counted(t, "triprize_stripe_calls_total", string(want.kind)) != 1 || client.counted(t, "triprize_stripe_request_duration_seconds", call) != float64(want.requests) {
					t.Errorf("%s: counted wrongly", call)
				}
			}
		})
	}
}

// The newest payment that is new says whether the key is refused: a restricted one may be forbidden other calls only.
func TestAKeyIsRefusedUntilANewPaymentIsMadeWithIt(t *testing.T) {
	t.Parallel()
	forbidden := answer{403, problem("invalid_request_error", "", ""), nil}
	client := connect(t, settings(serve(t, forbidden, forbidden, answer{200, intent(), nil}).url))
	read := func() { _, _ = client.Intent(t.Context(), "pi_1") }
	create := func() {
		_, _ = client.CreateIntent(t.Context(), wanted)
	}
	for i, do := range []func(){read, create, create} {
		if do(); client.KeyRefused() != (i == 1) {
			t.Errorf("after call %d: %t", i+1, client.KeyRefused())
		}
	}
}

func TestADeclineSaysWhyAndWhatTheBuyerCanDo(t *testing.T) {
	t.Parallel()
	server := serve(t,
		answer{402, problem("card_error", "card_declined", `,"decline_code":"insufficient_funds","advice_code":"try_again_later"`), nil},
		answer{200, intent("status", `"requires_payment_method"`, "last_payment_error",
			`{"type":"card_error","code":"expired_card","decline_code":"","advice_code":"confirm_card_data","message":"Expired."}`), nil},
		answer{402, problem("card_error", "card_declined", `,"decline_code":"generic_decline"`), nil})
	client := connect(t, settings(server.url))
	_, err := client.ConfirmIntent(t.Context(), "pi_1", "confirm:1", "pm_card_visa", "")
	if e := fault(t, err); e.Kind != payprovider.KindDeclined || *e.Decline != (payprovider.Decline{Code: "card_declined", DeclineCode: "insufficient_funds", Advice: "try_again_later", Message: "Key … said no"}) {
		t.Errorf("got %+v", e.Decline)
	}
	i, err := client.Intent(t.Context(), "pi_1")
	if err != nil || i.Status != payprovider.RequiresPaymentMethod || *i.Decline != (payprovider.Decline{Code: "expired_card", Advice: "confirm_card_data", Message: "Expired."}) {
		t.Errorf("got %+v, %v", i, err)
	}
	_, err = client.CaptureIntent(t.Context(), "pi_1", "capture:1", 1000)
	if e := fault(t, err); e.Kind != payprovider.KindConflict || e.Decline.DeclineCode != "generic_decline" {
		t.Errorf("a capture that is declined: got %+v", e)
	}
	if server.requests()[0].form.Has("return_url") {
		t.Error("sent an empty return_url")
	}
}

// The first request reached Stripe, and its answer was lost: what the repetition is told decides, if it is about the request.
func TestTheRepetitionOfALostRequestSaysWhatBecameOfIt(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		second answer
		kind   payprovider.ErrorKind // empty: it is done
	}{
		"limited":   {answer{429, problem("invalid_request_error", "rate_limit", ""), map[string]string{"Retry-After": "300"}}, payprovider.KindUnknown},
		"forbidden": {answer{401, problem("invalid_request_error", "", ""), nil}, payprovider.KindUnknown},
		"done":      {answer{200, intent("status", `"canceled"`), map[string]string{"Idempotent-Replayed": "true"}}, ""},
		"conflict":  {answer{400, problem("invalid_request_error", "payment_intent_unexpected_state", ""), nil}, payprovider.KindConflict},
	} {
		server := serve(t, answer{status: -1}, c.second)
		i, err := connect(t, settings(server.url)).CancelIntent(t.Context(), "pi_1", "cancel:1")
		if n := len(server.requests()); n != 2 || c.kind == "" && (err != nil || i.Status != payprovider.Canceled) {
			t.Errorf("%s: got %+v, %v after %d requests", name, i, err, n)
		}
		if c.kind == "" {
			continue
		}
		if e := fault(t, err); e.Kind != c.kind || (name == "limited") != (time.Until(e.RetryAt) > 0) {
			t.Errorf("%s: got %v, retry at %s", name, e, e.RetryAt)
		}
	}
}

func TestACallThatIsGivenUpBeforeItWasSentDidNothing(t *testing.T) {
	t.Parallel()
	server := serve(t, answer{200, intent(), nil})
	client := connect(t, settings(server.url))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := client.CaptureIntent(ctx, "pi_1", "capture:1", 1000)
	if e := fault(t, err); e.Kind != payprovider.KindLimited || len(server.requests()) != 0 {
		t.Errorf("got %v after %d requests", err, len(server.requests()))
	}
}

// A write without a key of ours would get one of the library's, and an empty id would be a list.
func TestWhatStripeWouldMisreadIsNotSent(t *testing.T) {
	t.Parallel()
	server := serve(t, answer{200, intent(), nil})
	client := connect(t, settings(server.url))
	for name, call := range map[string]func() error{
		"no id":      func() error { _, err := client.Intent(t.Context(), ""); return err },
		"no key":     func() error { _, err := client.CancelIntent(t.Context(), "pi_1", ""); return err },
		"a long key": func() error { _, err := client.CancelIntent(t.Context(), "pi_1", strings.Repeat("k", 256)); return err },
		"no intent":  func() error { _, err := client.RefundsOf(t.Context(), ""); return err },
		"of nothing": func() error { _, err := client.CreateRefund(t.Context(), payprovider.NewRefund{Key: "k"}); return err },
	} {
		if e := fault(t, call()); e.Kind != payprovider.KindRefused || len(server.requests()) != 0 {
			t.Errorf("%s: got %v after %d requests", name, e, len(server.requests()))
		}
	}
}
