package cards_test

import (
	"strings"
	"testing"
	"time"

	"triprize/internal/domain/payprovider"
	"triprize/internal/payment"
	"triprize/internal/payment/cards"
	"triprize/internal/testkit/fixture"
)

// A key that is refused is for an operator, at once; and when it is mended nobody has to do
// anything more.
func TestAPaymentWhoseKeyIsRefusedIsTheOperatorsAndGoesOnWithTheKey(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id := b.reserve("pm_card_visa")
	b.sim.before = func(call, _ string) error { // a restricted key, which may read
		if call == "capture" {
			e := failed(payprovider.KindForbidden, "")
			e.Message = "Having the 'rak_payment_intent_write' permission would allow this request to continue."
			return e
		}
		return nil
	}
	began := time.Now()
	for i := range 15 {
		p := b.want(id, cards.Waits, payment.Capturing)
		if p.WaitsFor() != payment.Operator || p.Reason() == nil || !strings.Contains(*p.Reason(), "rak_payment_intent_write") {
			t.Fatalf("it waits for %q: %v", p.WaitsFor(), p.Reason())
		}
		if wait := p.DueAt.Sub(began); i == 0 && wait > time.Minute || i > 10 && wait < 5*time.Minute || wait > 8*time.Minute {
			t.Errorf("after %d refusals it is looked at again after %s", i+1, wait)
		}
	}
	b.sim.before = func(string, string) error { return failed(payprovider.KindUnavailable, "") } // that is no answer
	if p := b.want(id, cards.Waits, payment.Capturing); p.WaitsFor() != payment.Operator {
		t.Errorf("while the provider is away it waits for %q", p.WaitsFor())
	}
	b.sim.before = nil
	if p := b.want(id, cards.Conclude, payment.Captured); p.WaitingFor != nil {
		t.Errorf("captured, it waits for %v", *p.WaitingFor)
	}
}

// What an operator has resolved as unpaid does not come back to the operators while the key
// is refused, and is looked at when it is mended.
func TestAResolvedPaymentWaitsForNobodyWhileTheKeyIsRefused(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	campaignID := fixture.Campaign(t, b.db, fixture.Draft(3))
	id, ref := fixture.Reserve(t, b.db, campaignID, "mina", 1, time.Hour)
	fixture.Advance(t, b.db, id, payment.Capturing)
	b.sim.before = func(string, string) error { return failed(payprovider.KindForbidden, "api_key_expired") }
	told := b.want(id, cards.Waits, payment.Capturing).LastError
	settles(t, b.db, id, payment.FoundUnpaid)
	fixture.Conclude(t, b.db, ref)
	for range 2 {
		p := b.want(id, cards.Waits, payment.Cancelled)
		if p.WaitingFor != nil || p.DueAt == nil || told == nil || *p.LastError != *told {
			t.Errorf("it waits for %v and is due at %v: %v", p.WaitingFor, p.DueAt, p.LastError)
		}
	}
	intent := *b.get(id).IntentID
	b.sim.before = nil
	b.sim.intents[intent] = &payprovider.Intent{ID: intent, Status: payprovider.Succeeded, Amount: b.get(id).Amount, Received: b.get(id).Amount, Currency: "JPY",
		Metadata: map[string]string{"purchase_id": id.String()}}
	b.want(id, cards.Conclude, payment.Captured) // there was money after all
}
