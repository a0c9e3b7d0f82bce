package stripesim

import (
	"context"
	"errors"
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
