package stripesim

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"
)

// stories lets happen what each says, in a sandbox of its own: commands, and what comes of the last one of a line. See [shop.do].
func stories(t *testing.T, all map[string]string) {
	t.Helper()
	for name, story := range all {
		t.Run(name, func(t *testing.T) {
			s := open(t, Settings{})
			s.tell(story)
		})
	}
}

func (s *shop) tell(story string) {
	s.t.Helper()
	for line := range strings.Lines(story) {
		commands, want, checked := strings.Cut(strings.TrimSpace(line), " → ")
		got := ""
		for command := range strings.SplitSeq(commands, "; ") {
			if command != "" {
				got = s.do(command)
			}
		}
		if checked && got != want {
			s.t.Errorf("%s\n     → %s\nwant → %s", commands, got, want)
		}
	}
}

// do sends a request with further parameters (and key=, the idempotency key), or lets something happen, and says what came of it:
// the status of the object and its amounts, or that of the answer and its code.
func (s *shop) do(command string) string {
	s.t.Helper()
	words := append(strings.Fields(command), "")
	path, form, key := "", url.Values{}, ""
	for _, word := range words[1:] {
		if name, value, ok := strings.Cut(word, "="); ok && name == "key" {
			key = value
		} else if ok {
			form.Set(name, value)
		}
	}
	is := words[1] == "true"
	switch words[0] {
	case "create": // METHOD; "auto": it is captured when it is confirmed
		path = "/v1/payment_intents"
		form.Set("payment_method", words[1])
		form["payment_method_types[]"] = []string{"card", "konbini"}
		for name, value := range map[string]string{"amount": "500", "currency": "jpy", "payment_method_options[card][capture_method]": "manual"} {
			if !form.Has(name) && !(words[2] == "auto" && value == "manual") {
				form.Set(name, value)
			}
		}
	case "confirm":
		path = "/v1/payment_intents/" + s.pi + "/confirm"
		form.Set("return_url", "https://shop.example/back?order=1")
	case "capture", "cancel":
		path = "/v1/payment_intents/" + s.pi + "/" + words[0]
	case "paid": // METHOD: a payment that is captured
		return s.do("create "+words[1]) + " " + s.do("confirm") + " " + s.do("capture")
	case "refund":
		path = "/v1/refunds"
		if !form.Has("payment_intent") {
			form.Set("payment_intent", s.pi)
		}
	case "uncancel": // no: cancel the refund
		path = "/v1/refunds/" + s.re + "/cancel"
	case "fetch":
		return s.answered(s.raw(http.MethodGet, "/v1/payment_intents/"+s.pi+"?expand[]=latest_charge", ""))
	case "refunded":
		return s.answered(s.raw(http.MethodGet, "/v1/refunds/"+s.re, ""))
	case "disputed":
		_, _, body := s.raw(http.MethodGet, "/v1/disputes?payment_intent="+s.pi, "")
		list, _ := body["data"].([]any)
		if len(list) == 0 {
			return "no dispute"
		}
		return s.answered(http.StatusOK, http.Header{}, list[0].(map[string]any))
	case "advance":
		d, err := time.ParseDuration(words[1])
		return said(errors.Join(err, s.server.Advance(d)))
	case "authenticate":
		return said(s.server.Authenticate(s.pi, is))
	case "finish":
		return said(s.server.Finish(s.pi, is))
	case "finish-refund":
		return said(s.server.FinishRefund(s.re, words[1]))
	case "close":
		return said(s.server.CloseDispute(s.du, is))
	case "escalate":
		return said(s.server.EscalateDispute(s.du))
	case "faults":
		var f Faults
		err := json.Unmarshal([]byte(words[1]), &f)
		return said(errors.Join(err, s.server.SetFaults(f)))
	case "totals":
		totals := s.server.Totals()
		intents, charges := s.counted()
		return fmt.Sprintf("%d of %d, %d intents, %d charges", totals.Captured["jpy"], totals.Refunded["jpy"], intents, charges)
	case "listed": // so many events, with a filter
		return fmt.Sprint(len(s.listed("/v1/events?limit=2&" + form.Encode())))
	case "heard": // so many webhooks, and of which types all are
		return strings.Join(slices.Sorted(slices.Values(s.types(len(strings.Fields(command))-1))), " ")
	default:
		s.t.Fatalf("%s?", command)
	}
	return s.post(path, form, key)
}

func said(err error) string {
	if err != nil {
		return "refused"
	}
	return "ok"
}

// post sends a form, which may have no answer.
func (s *shop) post(path string, form url.Values, key string) string {
	s.t.Helper()
	return s.answered(s.raw(http.MethodPost, path, form.Encode(), "Idempotency-Key", key))
}

// answered says what an answer has, and notes of which object it is.
func (s *shop) answered(status int, head http.Header, body map[string]any) string {
	s.t.Helper()
	if status == 0 {
		return "lost"
	}
	text := func(name string) string {
		value, _ := body[name].(string)
		return value
	}
	var words []string
	add := func(is bool, word string) {
		if is {
			words = append(words, word)
		}
	}
	if e, failed := body["error"].(map[string]any); failed {
		code, _ := e["code"].(string)
		declined, _ := e["decline_code"].(string)
		kind, _ := e["type"].(string)
		words = []string{fmt.Sprint(status), kind}
		add(code != "", code)
		add(declined != "", declined)
		add(e["payment_intent"] != nil, "with the intent")
	} else {
		words = []string{text("status")}
		switch id := text("id"); text("object") {
		case "payment_intent":
			s.pi = id
			add(body["amount_received"] != 0., fmt.Sprint("received=", body["amount_received"]))
			add(body["amount_capturable"] != 0., fmt.Sprint("capturable=", body["amount_capturable"]))
			failure, _ := body["last_payment_error"].(map[string]any)
			add(failure != nil, fmt.Sprint(failure["code"]))
			charge, _ := body["latest_charge"].(map[string]any)
			add(charge != nil, fmt.Sprintf("charge captured=%v refunded=%v disputed=%v", charge["captured"], charge["amount_refunded"], charge["disputed"]))
			add(text("cancellation_reason") != "", text("cancellation_reason"))
			add(text("payment_method") == "", "without a method")
			add(body["livemode"] != false, "live")
		case "refund":
			s.re = id
			add(true, fmt.Sprint(body["amount"]))
			add(text("failure_reason") != "", text("failure_reason"))
		case "dispute":
			s.du = id
			add(true, fmt.Sprint(body["amount"], " ", text("reason")))
			add(body["is_charge_refundable"] == true, "refundable")
		}
	}
	add(head.Get("Idempotent-Replayed") == "true", "replayed")
	if head.Get("Idempotent-Replayed") == "true" && (head.Get("Original-Request") == "" || head.Get("Original-Request") == head.Get("Request-Id")) {
		s.t.Errorf("the first request is not named: %v", head)
	}
	return strings.Join(words, " ")
}

// listed returns the ids, and the type of events, of all pages of a list.
func (s *shop) listed(path string) (all []string) {
	s.t.Helper()
	for after := ""; ; {
		status, _, body := s.raw(http.MethodGet, path+after, "")
		list, _ := body["data"].([]any)
		if status != http.StatusOK {
			s.t.Fatal(status, body)
		}
		for _, one := range list {
			o := one.(map[string]any)
			all = append(all, strings.TrimSpace(fmt.Sprint(o["id"], " ", o["type"])))
		}
		if body["has_more"] != true || strings.Contains(path, "ending_before") {
			return all
		}
		after = "&starting_after=" + strings.Fields(all[len(all)-1])[0]
	}
}
