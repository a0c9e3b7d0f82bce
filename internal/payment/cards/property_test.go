package cards_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"triprize/internal/domain/fault"
	"triprize/internal/domain/payprovider"
	"triprize/internal/job"
	"triprize/internal/lease"
	"triprize/internal/payment"
	"triprize/internal/payment/cards"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/property"
	"triprize/internal/testkit/provider"
)

// TestWhateverFailsOneIntentIsConfirmedAndNoMoneyIsForgotten disturbs one payment at
// every call: answers are lost before or after their effect, workers die, or stop while
// others go on and come back later, the time ends, the buyer cancels, authenticates or
// gives up or brings another card, slow methods end somehow. Then all is quiet, and:
//
//   - at most one intent of the purchase was ever confirmed;
//   - the payment is final;
//   - it is settled or refund_due exactly if the provider has the money, and cancelled
//     exactly if the provider has ended every intent that was ever confirmed;
//   - a payment whose positions were sold has its money, and one that was given up before
//     its capture is not settled.
func TestWhateverFailsOneIntentIsConfirmedAndNoMoneyIsForgotten(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	property.Check(t, func(rt *rapid.T) {
		m := &disturbance{bench: b, rt: rt, left: rapid.IntRange(0, 12).Draw(rt, "disturbances")}
		m.id = b.reserve(rapid.SampledFrom([]string{"pm_card_visa", "pm_at_once", "pm_declined_once", "pm_declined", "pm_action", "pm_processing", "pm_no_page", "pm_unknown"}).Draw(rt, "method"))
		for after, when := range map[bool]string{false: "before ", true: "after "} {
			b.sim.Hook(provider.Hook{Call: "any", After: after, Do: func(call string) error { return m.disturb(when + call) }})
		}
		for range rapid.IntRange(1, 8).Draw(rt, "steps") {
			m.step(0)
		}
		b.sim.Mend()
		m.quiet()
		m.check()
	})
}

// disturbance is what happens to one payment.
type disturbance struct {
	*bench
	rt    *rapid.T
	id    uuid.UUID
	left  int // calls that may still be disturbed
	depth int // of stopped workers
}

// died is what a worker panics with that dies.
type died struct{}

// untilItDies lets a worker lead a payment, until it dies.
func (b *bench) untilItDies(ctx context.Context, item lease.Item) (result cards.Result, dead bool, err error) {
	defer func() {
		if p := recover(); p != nil {
			if dead = p == any(died{}); !dead {
				panic(p)
			}
		}
	}()
	result, err = b.runner.Run(ctx, item)
	return result, false, err
}

// lead lets a worker lead the payment, dead or alive.
func (m *disturbance) lead() {
	m.endLease(m.id)
	if _, _, err := m.untilItDies(context.Background(), m.ref(m.id)); err != nil {
		m.rt.Fatalf("Run: %v", err)
	}
}

// step does one thing that can happen at any time.
func (m *disturbance) step(depth int) {
	purchase := m.id.String()
	switch rapid.SampledFrom([]string{"lead", "lead", "lead", "finalize", "time", "cancel", "authenticate", "abandon", "another", "another", "paid", "unpaid", "wake"}).Draw(m.rt, fmt.Sprintf("event at depth %d", depth)) {
	case "lead":
		m.lead()
	case "finalize":
		m.settle(m.id)
	case "time":
		m.endTime(m.id)
	case "cancel":
		m.giveUp(m.id)
	case "authenticate":
		m.sim.Move(purchase, payprovider.RequiresAction, payprovider.RequiresCapture)
	case "abandon":
		m.sim.Move(purchase, payprovider.RequiresAction, payprovider.RequiresPaymentMethod)
	case "another":
		m.another()
	case "paid":
		m.sim.Move(purchase, payprovider.Processing, payprovider.Succeeded)
	case "unpaid":
		m.sim.Move(purchase, payprovider.Processing, payprovider.RequiresPaymentMethod)
	case "wake":
		m.wake()
	}
}

// another has the buyer bring another card, if that is possible now.
func (m *disturbance) another() {
	method := rapid.SampledFrom([]string{"pm_card_visa", "pm_declined", "pm_action", "pm_at_once", "pm_processing", "pm_unknown"}).Draw(m.rt, "another method")
	done, err := commands(m.db, nil, new([]lease.Item)).Try(context.Background(), fixture.Command(job.KindPaymentTry), m.id, payment.Buyer{Client: "shop", ID: "buyer"}, method, nil)
	if err != nil {
		m.rt.Fatal(err)
	}
	if why := done.Job.Problem; why != nil && why.Code != fault.StateConflict {
		m.rt.Fatal(why)
	}
}

func (m *disturbance) wake() {
	if _, err := payment.Wake(context.Background(), m.db, []uuid.UUID{m.id}); err != nil {
		m.rt.Fatal(err)
	}
}

func (m *disturbance) disturb(where string) error {
	if m.left == 0 {
		return nil
	}
	kinds := []string{"nothing", "nothing", "unknown", "dies", "stops"}
	if where[0] == 'b' {
		kinds = append(kinds, "away", "limited", "stored")
	}
	switch rapid.SampledFrom(kinds).Draw(m.rt, where) {
	case "unknown":
		m.left--
		return provider.Failed(payprovider.KindUnknown, "")
	case "away":
		m.left--
		return provider.Failed(payprovider.KindUnavailable, "")
	case "limited":
		m.left--
		return provider.Failed(payprovider.KindLimited, "")
	case "stored": // the fault will come back under every key that was used so far
		m.left--
		p := m.get(m.id)
		for key, call := range map[string]string{fmt.Sprintf("pi:%s:%d", m.id, p.Attempt): "create", fmt.Sprintf("confirm:%s:%d", m.id, p.Attempt): "confirm",
			fmt.Sprintf("confirm:%s:%d:method-%d", m.id, p.Attempt, p.Tries): "confirm", "capture:" + m.id.String(): "capture", "cancel:" + m.id.String(): "cancel"} {
			m.sim.Store(call, key, nil, provider.Failed(payprovider.KindUnknown, "stored"))
		}
	case "dies":
		m.left--
		panic(died{})
	case "stops": // for longer than its lease, while others go on
		m.left--
		if m.depth < 3 {
			m.depth++
			for range rapid.IntRange(1, 4).Draw(m.rt, "meanwhile") {
				m.step(m.depth)
			}
			m.depth--
		}
	}
	return nil
}

// quiet lets everything end: the time is over, the bank decides, events come.
func (m *disturbance) quiet() {
	m.sim.Move(m.id.String(), payprovider.Processing, rapid.SampledFrom([]payprovider.IntentStatus{payprovider.Succeeded, payprovider.RequiresPaymentMethod}).Draw(m.rt, "the bank says"))
	m.endTime(m.id)
	m.wake()
	for range 12 {
		m.lead()
		m.settle(m.id)
	}
	if p := m.get(m.id); p.DueAt != nil {
		m.wake()
		m.lead()
	}
}

func (m *disturbance) check() {
	p, purchase := m.get(m.id), m.id.String()
	if !p.Phase.Final() || p.DueAt != nil {
		m.rt.Fatalf("the payment is %s, due at %v, and waits for %q", p.Phase, p.DueAt, deref(p.WaitingFor))
	}
	intents, confirmed := m.sim.Of(purchase)
	if confirmed > 1 {
		m.rt.Fatalf("%d intents were confirmed", confirmed)
	}
	money := 0
	for _, in := range intents {
		switch {
		case in.Status == payprovider.Succeeded:
			money++
			if p.IntentID == nil || *p.IntentID != in.ID {
				m.rt.Fatalf("%s has the money, and the payment's intent is %q", in.ID, deref(p.IntentID))
			}
		case in.Status != payprovider.Canceled && in.Status != payprovider.RequiresConfirmation:
			m.rt.Fatalf("%s is %s at the end, the payment %s", in.ID, in.Status, p.Phase)
		case in.Status == payprovider.RequiresConfirmation && p.IntentID != nil && *p.IntentID == in.ID:
			m.rt.Fatalf("%s could still be confirmed", in.ID)
		}
	}
	if (money == 1) != (p.Phase == payment.Settled || p.Phase == payment.RefundDue) {
		m.rt.Fatalf("%d intents have the money, and the payment is %s", money, p.Phase)
	}
	if p.Phase == payment.Settled && p.Ending != nil {
		m.rt.Fatalf("settled, although it was given up: %s", *p.Ending)
	}
	if len(m.sim.Broken) > 0 {
		m.rt.Fatal(m.sim.Broken)
	}
}

func deref[T ~string](s *T) T {
	if s == nil {
		return ""
	}
	return *s
}
