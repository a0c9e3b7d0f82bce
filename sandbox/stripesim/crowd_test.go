package stripesim

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stripe/stripe-go/v85"
)

func TestOneKeyFiftyTimesInParallelIsOnePayment(t *testing.T) {
	s := open(t, Settings{})
	ids := make(chan string, 50)
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			for { // one is told that the key is in use, and asks again
				i, err := s.sc.V1PaymentIntents.Create(t.Context(), keyed("pi:1"))
				var e *stripe.Error
				if errors.As(err, &e) && e.HTTPStatusCode == 409 {
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				ids <- i.ID
				return
			}
		})
	}
	all.Wait()
	close(ids)
	different := make(map[string]bool)
	for id := range ids {
		different[id] = true
	}
	if intents, _ := s.counted(); len(different) != 1 || intents != 1 {
		t.Errorf("%d answers, %d payments", len(different), intents)
	}
}

// chaos is a crowd that pays, cancels and gives back with every method, while faults
// befall it.
func (s *shop) chaos(seed uint64) {
	if err := s.server.SetFaults(Faults{Seed: seed, Decline: 0.1, ErrorBefore: 0.05, ErrorAfter: 0.05, TimeoutBefore: 0.02, TimeoutAfter: 0.02, TooMany: 0.05, HangMS: 1, WebhookLost: 0.1, WebhookTwice: 0.1}); err != nil {
		s.t.Fatal(err)
	}
	var all sync.WaitGroup
	methods := Methods()
	for n := range 8 {
		dice := rand.New(rand.NewPCG(seed, uint64(n)))
		all.Go(func() {
			for range 12 {
				i, err := s.sc.V1PaymentIntents.Create(s.t.Context(), held(methods[dice.IntN(len(methods))]))
				if err != nil {
					continue
				}
				for range 6 {
					switch dice.IntN(5) {
					case 0, 1:
						_, _ = s.confirm(i.ID, fmt.Sprint("confirm:", i.ID, dice.IntN(2)))
					case 2:
						_, _ = s.sc.V1PaymentIntents.Capture(s.t.Context(), i.ID, &stripe.PaymentIntentCaptureParams{AmountToCapture: stripe.Int64(1 + dice.Int64N(500))})
					case 3:
						_, _ = s.refund(i.ID, 1+dice.Int64N(300))
					case 4:
						_ = s.server.Authenticate(i.ID, dice.IntN(2) == 0) // most payments need no action
						_ = s.server.Finish(i.ID, dice.IntN(2) == 0)       // most are not processing
						if dice.IntN(3) == 0 {
							_, _ = s.sc.V1PaymentIntents.Cancel(s.t.Context(), i.ID, nil)
						}
					}
				}
			}
		})
	}
	all.Wait()
	if err := s.server.SetFaults(Faults{}); err != nil {
		s.t.Fatal(err)
	}
	s.advance(3 * time.Hour)
}

func TestWhateverACrowdDoesTheBooksAgree(t *testing.T) {
	settings := Settings{Dir: t.TempDir(), Hang: time.Millisecond}
	s := open(t, settings)
	s.chaos(rand.Uint64())
	before := s.server.Totals()
	s = s.reopen(settings)
	s.inside(func(kept *state) { booked(t, kept, before) })
}

// booked compares the charges with the refunds, the payments and the totals.
func booked(t *testing.T, kept *state, before Totals) {
	t.Helper()
	var captured, refunded int64
	charges := make(map[string]*charge)
	for _, c := range kept.charges.list {
		charges[c.ID] = c
		captured += c.Received
		if c.Captured {
			refunded += c.Refunded
		}
		if c.Refunded < 0 || c.Refunded > c.whole() || c.Received > c.Amount || c.Captured && c.Status != succeeded {
			t.Errorf("%+v", c)
		}
	}
	for _, e := range kept.events.list {
		if !slices.Contains(eventTypes, e.Type) {
			t.Errorf("events of type %s cannot be chosen", e.Type)
		}
	}
	given := make(map[string]int64)
	for _, r := range kept.refunds.list {
		if r.Status != failed && r.Status != canceled {
			given[r.Charge] += r.Amount
		}
	}
	taken := make(map[string]int)
	for id, c := range charges {
		if c.Refunded != given[id] {
			t.Errorf("%s has refunded %d, its refunds are %d", id, c.Refunded, given[id])
		}
		if c.Captured {
			taken[c.Intent]++
		}
	}
	for _, i := range kept.intents.list {
		c := charges[i.Charge]
		if (i.Status == succeeded) != (i.Received > 0) || i.Status == succeeded && (c == nil || c.Received != i.Received) || taken[i.ID] > 1 ||
			(i.Status == requiresCapture) != (i.Capturable > 0) || len(i.Held) > 0 && i.over() {
			t.Errorf("%+v", i)
		}
	}
	if captured == 0 || before.Captured["jpy"] != captured || before.Refunded["jpy"] != refunded {
		t.Errorf("captured %d, refunded %d; before the restart %+v", captured, refunded, before)
	}
}
