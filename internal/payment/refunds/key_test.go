package refunds_test

import (
	"strings"
	"testing"
	"time"

	"triprize/internal/domain/payprovider"
	"triprize/internal/payment"
	"triprize/internal/payment/refunds"
	"triprize/internal/purchase"
	"triprize/internal/testkit/servers"
)

// A restricted key may read, and may not refund: an operator sees it, and the refund is made
// when the key is mended.
func TestARefundThatTheKeyMayNotMakeIsTheOperatorsAndGoesOnWithTheKey(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	servers.Exec(t, w.db, `UPDATE refunds SET reason = 'campaign-cancelled'`)
	creates := 0
	w.provider.fault = func(call string) (error, bool) {
		if call != "create" {
			return nil, false
		}
		if creates++; creates > 1 && waiting(w) != 1 {
			t.Error("it is off the operators' list during a call")
		}
		return &payprovider.Error{Kind: payprovider.KindForbidden, Call: call, Message: "Having the 'rak_charge_write' permission would allow this request to continue."}, true
	}
	for i := range 12 {
		began := time.Now()
		if result := w.run(); result != refunds.Waits {
			t.Fatalf("got %s", result)
		}
		r := w.expect(payment.RefundOpen, purchase.Refunding, 0)
		if waiting(w) != 1 || r.Failure == nil || *r.Failure != "Having the 'rak_charge_write' permission would allow this request to continue." {
			t.Errorf("it is not the operators': %+v", r)
		}
		if wait := r.DueAt.Sub(began); i == 0 && wait > time.Minute || i == 11 && wait < 5*time.Minute || wait > 6*time.Minute {
			t.Errorf("after %d refusals it is tried again after %s", i+1, wait)
		}
	}
	if counts, err := payment.CountCancelledRefunds(t.Context(), w.db, w.refund().CampaignID); err != nil || counts.UnderWay != 0 || counts.ForPeople != 1 {
		t.Errorf("a cancelled campaign counts %+v, %v", counts, err)
	}
	w.provider.fault = nil
	if result := w.run(); result != refunds.Finished || waiting(w) != 0 {
		t.Errorf("with the key mended: %s, %d wait", result, waiting(w))
	}
	w.expect(payment.RefundSucceeded, purchase.Refunded, 1)
}

// The key expires, the refund waits; it succeeds, and is asked for again with a key that has expired. Neither shows afterwards.
func TestARefundThatHasSucceededShowsNoFailure(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	expired := func(string) (error, bool) {
		return &payprovider.Error{Kind: payprovider.KindForbidden, Code: "api_key_expired", Message: "Expired API Key provided"}, true
	}
	w.provider.fault = expired
	w.run()
	if r := w.expect(payment.RefundOpen, purchase.Refunding, 0); r.Failure == nil || !strings.HasPrefix(*r.Failure, "api_key_expired") {
		t.Fatalf("it does not say why it waits: %v", r.Failure)
	}
	w.provider.fault = nil
	w.run()
	if r := w.expect(payment.RefundSucceeded, purchase.Refunded, 1); r.Failure != nil {
		t.Errorf("it has succeeded, and shows %s", *r.Failure)
	}
	w.provider.fault = expired
	w.run() // an event of the provider wakes it
	if r := w.expect(payment.RefundSucceeded, purchase.Refunded, 1); r.Failure != nil || r.DueAt == nil {
		t.Errorf("asked for in vain: %+v", r)
	}
	if _, err := w.db.Exec(t.Context(), `UPDATE refunds SET failure = 'api_key_expired' WHERE id = $1`, w.id); err == nil {
		t.Error("the table takes a failure of a refund that has succeeded")
	}
}
