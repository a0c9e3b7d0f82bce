package stripesim

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/stripe/stripe-go/v85"
)

// lost is a call without an answer.
func lost(err error) bool {
	var e *stripe.Error
	return err != nil && !errors.As(err, &e)
}

func TestATimeoutAfterTheChargeHasChargedOnce(t *testing.T) {
	s := open(t, Settings{Hang: time.Hour})
	i := s.create(held("pm_sandbox_timeout_after_charge"))
	ctx, giveUp := context.WithCancel(t.Context())
	defer giveUp()
	p := &stripe.PaymentIntentConfirmParams{}
	p.SetIdempotencyKey("confirm:1")
	ended := make(chan error, 1)
	go func() {
		_, err := s.sc.V1PaymentIntents.Confirm(ctx, i.ID, p)
		ended <- err
	}()
	until(t, "the money is held", func() bool { return s.intent(i.ID).Status == "requires_capture" })
	select {
	case err := <-ended:
		t.Fatalf("it was answered: %v", err)
	default:
	}
	same := &stripe.PaymentIntentConfirmParams{}
	same.SetIdempotencyKey("confirm:1")
	until(t, "the key has its answer while the first request hangs", func() bool {
		i, err := s.sc.V1PaymentIntents.Confirm(t.Context(), i.ID, same)
		return err == nil && i.Status == "requires_capture"
	})
	giveUp()
	if err := <-ended; !lost(err) {
		t.Errorf("%v", err)
	}
	again, err := s.confirm(i.ID, "confirm:1")
	if err == nil {
		t.Errorf("another return_url is another request: %v", again)
	}
	if again, err = s.sc.V1PaymentIntents.Confirm(t.Context(), i.ID, same); err != nil || again.Status != "requires_capture" {
		t.Errorf("the key has no answer: %v, %v", again, err)
	}
	if _, n := s.counted(); n != 1 {
		t.Errorf("%d charges", n)
	}
}

func TestTwo429sAndThenItWorks(t *testing.T) {
	s := open(t, Settings{})
	i := s.create(held("pm_sandbox_429"))
	for range 2 {
		problem(t, second(s.confirm(i.ID, "confirm:1")), 429, "rate_limit")
	}
	if got, err := s.confirm(i.ID, "confirm:1"); err != nil || got.Status != "requires_capture" {
		t.Errorf("%v, %v", got, err)
	}
	if totals := s.server.Totals(); totals.RateLimited != 0 || totals.Injected != 2 {
		t.Errorf("%+v", totals)
	}
}

func TestASlowAnswerComesLate(t *testing.T) {
	s := open(t, Settings{Slow: time.Hour})
	i := s.create(held("pm_sandbox_slow"))
	ended := make(chan *stripe.PaymentIntent, 1)
	go func() {
		got, err := s.confirm(i.ID, "")
		if err != nil {
			t.Error(err)
		}
		ended <- got
	}()
	until(t, "the call is there", func() bool { return s.server.Totals().Endpoints["POST /v1/payment_intents/{id}/confirm"] == 1 })
	if got := s.intent(i.ID); got.Status != "requires_confirmation" {
		t.Errorf("%s", got.Status)
	}
	s.server.Release()
	if got := <-ended; got == nil || got.Status != "requires_capture" {
		t.Errorf("%v", got)
	}
}

func TestFaultsBeforeTheWorkDoNothingAndFaultsAfterItHaveDoneIt(t *testing.T) {
	for name, c := range map[string]struct {
		faults Faults
		status int // 0: no answer
		done   bool
		kept   bool // under the key
	}{
		"500 before":     {Faults{ErrorBefore: 1}, 500, false, true},
		"500 after":      {Faults{ErrorAfter: 1}, 500, true, true},
		"timeout before": {Faults{TimeoutBefore: 1, HangMS: 1}, 0, false, false},
		"timeout after":  {Faults{TimeoutAfter: 1, HangMS: 1}, 0, true, true},
		"429":            {Faults{TooMany: 1}, 429, false, false},
		"decline":        {Faults{Decline: 1}, 402, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, Settings{})
			i := s.create(held("pm_card_visa"))
			if err := s.server.SetFaults(c.faults); err != nil {
				t.Fatal(err)
			}
			_, err := s.confirm(i.ID, "confirm:1")
			var e *stripe.Error
			if c.status == 0 && !lost(err) || c.status != 0 && (!errors.As(err, &e) || e.HTTPStatusCode != c.status) {
				t.Errorf("%v", err)
			}
			if err := s.server.SetFaults(Faults{}); err != nil {
				t.Fatal(err)
			}
			if done := s.intent(i.ID).Status != "requires_confirmation"; done != c.done {
				t.Errorf("done: %t", done)
			}
			s.inside(func(kept *state) {
				if _, found := kept.keys["confirm:1"]; found != c.kept {
					t.Errorf("kept under its key: %t", found)
				}
			})
		})
	}
}

func TestOneSeedHasOneCourse(t *testing.T) {
	course := func(seed uint64) (all []outcome) {
		c := newChance()
		c.set(Faults{Seed: seed, ErrorBefore: 0.2, ErrorAfter: 0.2, TimeoutAfter: 0.2, TooMany: 0.2})
		for range 100 {
			o, _ := c.request()
			all = append(all, o)
		}
		return all
	}
	one, same, other := course(1), course(1), course(2)
	differs := false
	for i := range one {
		if one[i] != same[i] {
			t.Fatal("the same seed has another course")
		}
		differs = differs || one[i] != other[i]
	}
	if !differs {
		t.Error("another seed has the same course")
	}
}

func TestWhoIsAwayAnswersNothingUseful(t *testing.T) {
	s := open(t, Settings{})
	i := s.create(held("pm_card_visa"))
	for mode, want := range map[Away]func(error) bool{
		Unavailable: func(err error) bool { var e *stripe.Error; return errors.As(err, &e) && e.HTTPStatusCode == 503 },
		Silent:      lost,
	} {
		if err := s.server.SetAway(mode); err != nil {
			t.Fatal(err)
		}
		if _, err := s.confirm(i.ID, ""); !want(err) {
			t.Errorf("%s: %v", mode, err)
		}
	}
	if err := s.server.SetAway(Here); err != nil {
		t.Fatal(err)
	}
	if got := s.intent(i.ID); got.Status != "requires_confirmation" {
		t.Errorf("%s", got.Status)
	}
	if s.server.SetAway("abroad") == nil {
		t.Error("an unknown way to be away was taken")
	}
}

func TestMoreThanTheLimitIsRefusedAndCounted(t *testing.T) {
	s := open(t, Settings{Rate: 1_000_000, EndpointRate: 1})
	refused := 0
	for range 50 { // one a second, of one endpoint
		_, err := s.sc.V1PaymentIntents.Retrieve(t.Context(), "pi_nobody", nil)
		var e *stripe.Error
		if errors.As(err, &e) && e.HTTPStatusCode == 429 && e.Code == "rate_limit" {
			refused++
		}
	}
	if refused == 0 || int64(refused) != s.server.Totals().RateLimited {
		t.Errorf("%d, %+v", refused, s.server.Totals())
	}
	if _, err := s.sc.V1Accounts.Retrieve(t.Context(), nil); err != nil {
		t.Errorf("another endpoint: %v", err)
	}
}

func TestTheControlsNeedTheKeyAndRefuseNonsense(t *testing.T) {
	s := open(t, Settings{})
	for _, c := range []struct {
		method, path, body string
		want               int
	}{
		{"GET", "/sandbox/totals", "", 200},
		{"PUT", "/sandbox/faults", `{"seed": 7, "decline": 0.04, "error_before": 0.05, "latency_ms": 1}`, 200},
		{"GET", "/sandbox/faults", "", 200},
		{"PUT", "/sandbox/faults", `{"decline": 2}`, 400},
		{"PUT", "/sandbox/faults", `{"error_before": 0.6, "error_after": 0.6}`, 400},
		{"PUT", "/sandbox/faults", `{"declines": 1}`, 400},
		{"PUT", "/sandbox/faults", `{} {}`, 400},
		{"PUT", "/sandbox/faults", `{"latency_ms": -1}`, 400},
		{"DELETE", "/sandbox/faults", "", 200},
		{"PUT", "/sandbox/away", `{"mode": "gone"}`, 400},
		{"PUT", "/sandbox/key", `{"lacks": ["charge_write"]}`, 200},
		{"PUT", "/sandbox/key", `{"lacks": ["charge"]}`, 400},
		{"PUT", "/sandbox/key", `{"lacks": ["money_write"]}`, 400},
		{"POST", "/sandbox/clock", `{"advance_seconds": 60}`, 200},
		{"POST", "/sandbox/clock", `{"advance_seconds": -1}`, 400},
		{"PUT", "/sandbox/webhook", `{"url": "nowhere"}`, 400},
		{"PUT", "/sandbox/webhook", `{"url": "http://127.0.0.1:1/"}`, 400},
		{"PUT", "/sandbox/webhook", `{"url": ""}`, 200},
		{"POST", "/sandbox/payment_intents/pi_1/finish", `{"outcome": "succeed"}`, 404},
		{"POST", "/sandbox/payment_intents/pi_1/finish", `{"outcome": "maybe"}`, 400},
		{"POST", "/sandbox/refunds/re_1/finish", `{"status": "failed"}`, 404},
		{"POST", "/sandbox/charges/ch_1/dispute", "", 404},
		{"POST", "/sandbox/disputes/du_1/escalate", "", 404},
		{"POST", "/sandbox/disputes/du_1/close", `{"status": "won"}`, 404},
		{"POST", "/sandbox/events/evt_1/resend", "", 404},
	} {
		if status, _, body := s.raw(c.method, c.path, c.body); status != c.want {
			t.Errorf("%s %s %s: %d %v", c.method, c.path, c.body, status, body)
		}
		if status, _, _ := s.raw(c.method, c.path, c.body, "Authorization", "Bearer sk_test_another"); status != http.StatusUnauthorized {
			t.Errorf("%s %s without the key: %d", c.method, c.path, status)
		}
	}
}

func TestSettingsThatCannotWorkAreRefused(t *testing.T) {
	for name, settings := range map[string]Settings{
		"no key":            {},
		"a live key":        {Key: "sk_live_0123456789"},
		"a short key":       {Key: "sk_test_1"},
		"a webhook URL":     {Key: testKey, WebhookURL: "ftp://127.0.0.1", WebhookSecret: "whsec_1"},
		"no webhook secret": {Key: testKey, WebhookURL: "http://127.0.0.1:1"},
		"a type of events":  {Key: testKey, WebhookEvents: []string{"payment_intent.suceeded"}},
		"a duration":        {Key: testKey, Slow: -1},
	} {
		if s, err := New(settings); err == nil {
			_ = s.Close()
			t.Errorf("%s was taken", name)
		}
	}
}
