package stripesim

import (
	"slices"
	"testing"
	"time"

	"github.com/stripe/stripe-go/v85"
)

var ofAPayment = []string{"charge.captured", "charge.succeeded", "payment_intent.amount_capturable_updated", "payment_intent.created", "payment_intent.succeeded"}

func TestAWebhookIsSentAgainUntilItIsTaken(t *testing.T) {
	s := open(t, Settings{})
	s.answer(500)
	s.create(held("pm_card_visa"))
	s.types(1)
	until(t, "the failed try is noted", func() bool { return s.server.Totals().Undelivered == 1 })
	s.advance(2 * time.Hour)
	s.types(1)
	until(t, "the second failed try is noted", func() bool { return s.server.Totals().Undelivered == 2 })
	s.answer(200)
	s.advance(3 * time.Hour)
	s.types(1)
	until(t, "nothing is unsent", func() bool { return s.server.Totals().Unsent == 0 })
	s.advance(24 * time.Hour)
	if got := s.have(); len(got) != 3 || s.got[0].ID != s.got[2].ID {
		t.Errorf("%q", got)
	}
}

func TestThePaymentMethodDecidesHowWebhooksCome(t *testing.T) {
	t.Run("never", func(t *testing.T) {
		s := open(t, Settings{})
		s.paid("pm_sandbox_webhook_never")
		other := s.create(held("pm_card_visa")) // its event is the only one
		if got := s.types(1); !slices.Equal(got, []string{"payment_intent.created"}) || s.got[0].GetObjectValue("id") != other.ID {
			t.Errorf("%q", got)
		}
		if events := s.events(nil); len(events) != 6 {
			t.Errorf("a missed event is not in the list: %d", len(events))
		}
	})
	t.Run("twice", func(t *testing.T) {
		s := open(t, Settings{})
		s.paid("pm_sandbox_webhook_twice")
		if got := sorted(s.types(10)); !slices.Equal(got, sorted(append(slices.Clone(ofAPayment), ofAPayment...))) {
			t.Errorf("%q", got)
		}
	})
	t.Run("late", func(t *testing.T) {
		s := open(t, Settings{Late: time.Hour})
		s.paid("pm_sandbox_webhook_late")
		s.create(held("pm_card_visa")) // it overtakes them
		s.types(1)
		if n := s.server.Totals().Unsent; n < 5 {
			t.Errorf("%d are unsent", n)
		}
		s.advance(2 * time.Hour)
		s.types(5)
	})
	t.Run("reversed", func(t *testing.T) {
		s := open(t, Settings{})
		s.paid("pm_sandbox_webhook_reversed")
		want := []string{"payment_intent.succeeded", "charge.captured", "payment_intent.amount_capturable_updated", "charge.succeeded", "payment_intent.created"}
		if got := s.types(5); !slices.Equal(got, want) {
			t.Errorf("%q", got)
		}
	})
	t.Run("reversed, of a payment that does not end", func(t *testing.T) {
		s := open(t, Settings{})
		s.confirmed(s.create(held("pm_sandbox_webhook_reversed")).ID)
		s.advance(2 * time.Hour)
		if got := s.types(3); got[2] != "payment_intent.created" {
			t.Errorf("%q", got)
		}
	})
}

// events lists all events.
func (s *shop) events(p *stripe.EventListParams) (all []*stripe.Event) {
	s.t.Helper()
	if p == nil {
		p = &stripe.EventListParams{}
	}
	p.Limit = stripe.Int64(2)
	for e, err := range s.sc.V1Events.List(s.t.Context(), p).All(s.t.Context()) {
		if err != nil {
			s.t.Fatal(err)
		}
		all = append(all, e)
	}
	return all
}

func TestAListHasEverythingOnceTheNewestFirst(t *testing.T) {
	s := open(t, Settings{})
	var made []string
	for range 7 {
		made = append(made, s.create(held("pm_card_visa")).ID)
		s.advance(time.Second)
	}
	slices.Reverse(made)
	var listed []string
	for i, err := range s.sc.V1PaymentIntents.List(t.Context(), &stripe.PaymentIntentListParams{ListParams: stripe.ListParams{Limit: stripe.Int64(3)}}).All(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		listed = append(listed, i.ID)
	}
	if !slices.Equal(listed, made) {
		t.Errorf("%q, want %q", listed, made)
	}
	back := []string{}
	p := &stripe.PaymentIntentListParams{ListParams: stripe.ListParams{Limit: stripe.Int64(2), EndingBefore: stripe.String(made[5])}}
	for i, err := range s.sc.V1PaymentIntents.List(t.Context(), p).All(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		back = append(back, i.ID)
	}
	want := slices.Clone(made[:5])
	slices.Reverse(want)
	if !slices.Equal(back, want) {
		t.Errorf("ending before: %q, want %q", back, want)
	}
	from := s.intent(made[4]).Created
	for name, want := range map[string]int{"gte": 5, "gt": 4, "lte": 3, "lt": 2} {
		r := &stripe.RangeQueryParams{}
		switch name {
		case "gte":
			r.GreaterThanOrEqual = from
		case "gt":
			r.GreaterThan = from
		case "lte":
			r.LesserThanOrEqual = from
		case "lt":
			r.LesserThan = from
		}
		n := 0
		for _, err := range s.sc.V1PaymentIntents.List(t.Context(), &stripe.PaymentIntentListParams{CreatedRange: r}).All(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			n++
		}
		if n != want {
			t.Errorf("created %s: %d, want %d", name, n, want)
		}
	}
}

func TestEventsAreFilteredByTypeAndVanishAfterThirtyDays(t *testing.T) {
	s := open(t, Settings{})
	s.paid("pm_card_visa")
	if all := s.events(&stripe.EventListParams{Type: stripe.String("payment_intent.*")}); len(all) != 3 {
		t.Errorf("%d", len(all))
	}
	if all := s.events(&stripe.EventListParams{Types: stripe.StringSlice([]string{"charge.captured", "payment_intent.succeeded"})}); len(all) != 2 {
		t.Errorf("%d", len(all))
	}
	one := s.events(nil)[0]
	if e, err := s.sc.V1Events.Retrieve(t.Context(), one.ID, nil); err != nil || e.Type != one.Type || e.APIVersion != stripe.APIVersion || e.Livemode || e.Account != "" || e.Request.ID == "" {
		t.Errorf("%+v, %v", e, err)
	}
	s.advance(31 * 24 * time.Hour)
	until(t, "the events are gone", func() bool { return s.server.Totals().Events == 0 }) // a list that loses its cursor fails
	if all := s.events(nil); len(all) != 0 {
		t.Errorf("%d events are listed", len(all))
	}
	totals := s.server.Totals()
	s.inside(func(kept *state) {
		if len(totals.Intents) != 0 || kept.bytes > 1000 {
			t.Errorf("a payment that ended 30 days ago is kept: %+v, %d bytes", totals, kept.bytes)
		}
	})
}
