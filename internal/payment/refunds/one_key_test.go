package refunds_test

import (
	"errors"
	"testing"

	"triprize/internal/domain/payprovider"
	"triprize/internal/job"
	"triprize/internal/payment"
	"triprize/internal/payment/refunds"
	"triprize/internal/purchase"
	"triprize/internal/testkit/fixture"
)

// A worker stops between the key and the call, somebody gives a half back by hand, and another worker goes on: the
// call over the whole part, which comes last, makes nothing.
func TestTheRestOfAPartIsAskedForWithTheKeyOfTheWhole(t *testing.T) {
	t.Parallel()
	w, campaignID, at := partsWorld(t)
	price := w.provider.captured / 4
	w.id = w.cancel(campaignID, at[0])
	w.provider.fault = func(call string) (error, bool) {
		if call == "create" && len(w.provider.creates) == 1 { // the first worker stops here
			w.provider.mu.Unlock()
			w.byHand(price/2, payprovider.RefundSucceeded)
			w.sql(`UPDATE refunds SET lease_until = clock_timestamp() WHERE id = $1`)
			if result := w.run(); result != refunds.Finished {
				t.Errorf("the second worker: %s", result)
			}
			w.provider.mu.Lock()
		}
		return nil, false
	}
	if result := w.run(); result != refunds.Nothing {
		t.Errorf("the stopped worker: %s", result)
	}
	r := w.expect(payment.RefundSucceeded, purchase.Completed, 2)
	if back := w.provider.returned(); back != price || r.Amount != price/2 || len(w.provider.creates) != 2 || w.provider.creates[0].Key != w.provider.creates[1].Key {
		t.Errorf("%d are back, of %d: %+v, asked for %+v", back, price, r, w.provider.creates)
	}
	fixture.Sound(t, w.db)
}

// What has become of a call over the whole part, of which nobody knows, when a half is given back by hand.
func TestACallOverMoreThanIsLeftIsNeverDoubled(t *testing.T) {
	t.Parallel()
	replayed := *errLost
	replayed.Replayed = true
	refused := &payprovider.Error{Kind: payprovider.KindRefused, Code: "insufficient_funds"}
	for name, c := range map[string]struct {
		first  error                              // its answer
		then   func(w *world, k string, a answer) // before the call over the rest
		halves int                                // that are back in the end
		keys   int
		rings  float64
	}{
		"it has never arrived": {errLost, nil, 2, 1, 0},
		"it arrives just before the other": {errLost, func(w *world, k string, a answer) {
			w.provider.add(400, payprovider.RefundSucceeded, w.provider.creates[0].Metadata)
			a.at = len(w.provider.refunds) - 1
			w.provider.keys[k] = a
		}, 3, 1, 1},
		"its fault is stored under the key": {errLost, func(w *world, k string, a answer) { a.err = &replayed; w.provider.keys[k] = a }, 2, 2, 0},
		"it was refused":                    {refused, func(w *world, k string, a answer) { a.err = refused; w.provider.keys[k] = a }, 2, 2, 0},
	} {
		w, campaignID, at := partsWorld(t)
		registry := w.counting()
		if w.provider.captured/4 != 400 {
			t.Fatal("a half is not 200")
		}
		w.id = w.cancel(campaignID, at[0])
		w.provider.fault = func(call string) (error, bool) {
			n := w.provider.creates[len(w.provider.creates)-1:]
			switch {
			case call == "create" && len(w.provider.creates) == 1:
				w.byHand(200, payprovider.RefundSucceeded)
				if errors.Is(c.first, refused) {
					c.then(w, n[0].Key, answer{amount: n[0].Amount})
				}
				return c.first, true
			case call == "create" && len(w.provider.creates) == 2 && !errors.Is(c.first, refused) && c.then != nil:
				c.then(w, n[0].Key, answer{amount: w.provider.creates[0].Amount})
			}
			return nil, false
		}
		for range 3 {
			w.run()
		}
		w.expect(payment.RefundSucceeded, purchase.Completed, 2)
		keys := make(map[string]bool)
		for _, n := range w.provider.creates {
			keys[n.Key] = true
		}
		if back := int(w.provider.returned() / 200); back != c.halves || len(keys) != c.keys || paidTwice(t, registry) != c.rings {
			t.Errorf("%s: %d halves are back, by %d keys, and it rings %g times", name, back, len(keys), paidTwice(t, registry))
		}
		w.run()
		if paidTwice(t, registry) != c.rings {
			t.Errorf("%s: it rings again", name)
		}
		fixture.Sound(t, w.db)
	}
}

// Others had given everything back, and the call that was lost is made after all.
func TestARefundThatIsMadeAfterNothingWasLeftIsSeen(t *testing.T) {
	t.Parallel()
	w, campaignID, at := partsWorld(t)
	registry := w.counting()
	w.provider.fault = lost
	w.id = w.cancel(campaignID, at[0])
	w.run()
	w.byHand(400, payprovider.RefundSucceeded)
	w.run()
	if r := w.expect(payment.RefundSucceeded, purchase.Completed, 1); r.Amount != 0 {
		t.Fatalf("%+v", r)
	}
	w.provider.add(400, payprovider.RefundSucceeded, w.provider.creates[0].Metadata)
	for range 2 { // its events
		w.run()
	}
	if r := w.expect(payment.RefundSucceeded, purchase.Completed, 2); r.Amount != 400 || r.ProviderID == nil || paidTwice(t, registry) != 1 {
		t.Errorf("it rings %g times: %+v", paidTwice(t, registry), r)
	}
	fixture.Sound(t, w.db)
}

// The provider's id says whose a refund is, and not ours in its metadata alone.
func TestASecondRefundUnderOurIDIsOutOfBandAndPaidTwice(t *testing.T) {
	t.Parallel()
	w, campaignID, at := partsWorld(t)
	registry := w.counting()
	w.provider.status = payprovider.RefundFailed
	w.id = w.cancel(campaignID, at[0])
	w.run()
	if err := outcome(service(w).Retry(t.Context(), request(job.KindRefundRetry), w.id, "operator:ops")); err != nil {
		t.Fatal(err)
	}
	w.provider.status = payprovider.RefundSucceeded
	w.run()
	w.run()
	if _, others := w.all(); len(others) != 0 || paidTwice(t, registry) != 0 {
		t.Fatalf("the first attempt, which has failed, is out of band: %+v", others)
	}
	w.provider.add(400, payprovider.RefundSucceeded, w.provider.creates[1].Metadata)
	for range 2 { // its events
		w.run()
	}
	r := w.expect(payment.RefundSucceeded, purchase.Completed, 3)
	if _, others := w.all(); len(others) != 1 || others[0].Amount != 400 || *others[0].ProviderID != w.provider.refunds[2].ID ||
		*r.ProviderID != w.provider.refunds[1].ID || paidTwice(t, registry) != 1 {
		t.Errorf("%+v, and it rings %g times", others, paidTwice(t, registry))
	}
	w.provider.refunds[2].Status = payprovider.RefundFailed
	w.run()
	if _, others := w.all(); len(others) != 1 || others[0].State != payment.RefundFailed {
		t.Errorf("when that fails: %+v", others)
	}
	w.expect(payment.RefundSucceeded, purchase.Completed, 3)
	fixture.Sound(t, w.db)
}

// What was paid by bank is still on the charge: the provider has money for two calls over the rest.
func TestTheKeyOfTheRestIsKeptWhereMoneyOfTheChargeWasPaidByHand(t *testing.T) {
	t.Parallel()
	w, campaignID, at := partsWorld(t)
	w.provider.fault = lost
	w.id = w.cancel(campaignID, at[:3]...)
	w.sql(`UPDATE refunds SET stuck = true WHERE id = $1`)
	if err := w.resolve(false); err != nil {
		t.Fatal(err)
	}
	id := w.cancel(campaignID)
	for range 5 {
		w.runOf(id)
	}
	if len(w.provider.creates) != 5 {
		t.Fatalf("asked for %+v", w.provider.creates)
	}
	for _, made := range w.provider.creates {
		if made.Key != w.provider.creates[0].Key {
			t.Errorf("it has the keys %s and %s", w.provider.creates[0].Key, made.Key)
		}
	}
}
