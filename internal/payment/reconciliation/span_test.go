package reconciliation_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"triprize/internal/domain/payprovider"
	"triprize/internal/payment/reconciliation"
	"triprize/sandbox/stripesim"
)

// Without two days behind it a span has what is still open, on either side of its call.
func TestWhatIsUnderWayIsListedApart(t *testing.T) {
	t.Parallel()
	for name, sql := range map[string]string{
		"capturing":            `UPDATE payments SET phase = 'capturing', received = 0, finished_at = NULL WHERE purchase_id = $1`,
		"captured":             `UPDATE payments SET phase = 'captured', finished_at = NULL WHERE purchase_id = $1`,
		"cancelled, and woken": `UPDATE payments SET phase = 'cancelled', ending = 'expired', received = 0, due_at = clock_timestamp() WHERE purchase_id = $1`,
		"pending refund":       `UPDATE refunds SET state = 'pending', finished_at = NULL WHERE purchase_id = $1`,
		"open refund":          `UPDATE refunds SET state = 'open', finished_at = NULL, provider_id = NULL WHERE purchase_id = $1`,
		"woken refund":         `UPDATE refunds SET due_at = clock_timestamp() WHERE purchase_id = $1`,
	} {
		s := openShop(t, openAccount(t, stripesim.Settings{}))
		b := s.buy("pm_card_visa")
		if name[len(name)-6:] == "refund" {
			id := s.giveBack(b)
			if name == "woken refund" {
				s.must(s.sim.FinishRefund(*s.refundNow(id).ProviderID, "failed"))
			}
		}
		s.exec(sql, b.purchase)
		found := s.compare()
		if s.expectSpan(found, 1); t.Failed() {
			t.Fatal(name)
		}
		if d := found.UnderWay[0]; d.PurchaseID == nil || *d.PurchaseID != b.purchase {
			t.Errorf("%s: %+v", name, d)
		}
	}
}

func TestWhatIsUnderWayOverOtherMoneyDiffers(t *testing.T) {
	t.Parallel()
	s := openShop(t, openAccount(t, stripesim.Settings{}))
	b := s.buy("pm_card_visa")
	s.exec(`UPDATE payments SET phase = 'capturing', received = 0, finished_at = NULL, amount = amount + 1 WHERE purchase_id = $1`, b.purchase)
	back := s.giveBack(s.buy("pm_card_visa"))
	s.exec(`UPDATE refunds SET state = 'pending', finished_at = NULL, amount = amount + 1 WHERE id = $1`, back)
	s.expectSpan(s.compare(), 0, "differs "+b.intent, "differs "+*s.refundNow(back).ProviderID)
}

// What was moved outside of the span is asked for.
func TestWhatTheProviderHasMovedInAnotherSpanIsNotMissing(t *testing.T) {
	t.Parallel()
	s := openShop(t, openAccount(t, stripesim.Settings{}))
	b := s.buy("pm_card_visa")
	s.giveBack(b)
	for _, table := range []string{"payments", "refunds"} { // 40 hours after it was moved
		s.exec(`UPDATE ` + table + ` SET finished_at = clock_timestamp() - interval '60 hours'`)
	}
	s.expectSpan(s.compareSpan(s.client, time.Now().Add(-past+time.Hour), time.Now()), 0)
	s.exec(`UPDATE payments SET amount = amount + 1, received = received + 1`)
	s.exec(`UPDATE refunds SET provider_id = 're_elsewhere'`)
	s.expectSpan(s.compareSpan(s.client, time.Now().Add(-past+time.Hour), time.Now()), 0, "unknown-there "+b.intent, "unknown-there re_elsewhere")
}

// The books change while they are read.
func TestWhatMovesWhileTheBooksAreReadIsNoDiscrepancy(t *testing.T) {
	t.Parallel()
	s := openShop(t, openAccount(t, stripesim.Settings{}))
	b := s.buy("pm_card_visa")
	byHand := s.byHand(b.intent)
	list := &broken{Provider: s.client, fail: func(call int) error {
		if call == 2 { // the first list is compared
			s.hear()
		}
		return nil
	}}
	found := s.compareSpan(list, time.Now().Add(-past-time.Hour), time.Now())
	s.expectSpan(found, 0)
	if list.calls != 2 {
		t.Errorf("%d lists", list.calls)
	}
	s.exec(`DELETE FROM refunds WHERE provider_id = $1`, byHand)
	s.expectSpan(s.compare(), 0, "unknown-here "+byHand)
}

func TestTheTotalsOfASpanAreOfBothSides(t *testing.T) {
	t.Parallel()
	s := openShop(t, openAccount(t, stripesim.Settings{SettlesIn: "usd", ExchangeRate: 0.65}))
	kept, back := s.buy("pm_card_visa"), s.buy("pm_card_visa")
	s.giveBack(back)
	one, two := s.payment(kept).Amount, s.payment(back).Amount
	found := s.compare()
	if len(found.Totals) != 1 {
		t.Fatalf("%+v", found.Totals)
	}
	got := found.Totals[0]
	if got.Currency != "JPY" || got.Charges != 2 || got.Refunds != 1 || got.CapturedHere != one+two || got.CapturedThere != one+two || got.RefundedHere != two || got.RefundedThere != two {
		t.Errorf("%+v of %d and %d", got, one, two)
	}
	s.exec(`UPDATE payments SET amount = amount - 1, received = received - 1 WHERE purchase_id = $1`, kept.purchase)
	if got := s.compare().Totals[0]; got.CapturedThere-got.CapturedHere != 1 {
		t.Errorf("%+v", got)
	}
}

func TestAComparisonOfASpanFailsWhenTheProviderDoes(t *testing.T) {
	t.Parallel()
	s := openShop(t, openAccount(t, stripesim.Settings{}))
	session, err := s.db.Acquire(t.Context())
	s.must(err)
	defer session.Release()
	away := &payprovider.Error{Kind: payprovider.KindUnavailable}
	for range 2 { // it leaves nothing behind
		if _, err := reconciliation.CompareSpan(t.Context(), session, &broken{Provider: s.client, fail: func(int) error { return away }}, time.Now().Add(-time.Hour), time.Now()); !errors.Is(err, away) {
			t.Errorf("got %v", err)
		}
	}
	b := s.buy("pm_card_visa")
	s.exec(`UPDATE payments SET intent_id = 'pi_elsewhere' WHERE purchase_id = $1`, b.purchase)
	s.age()
	_, err = reconciliation.CompareSpan(t.Context(), session, silent{s.client, away}, time.Now().Add(-past-time.Hour), time.Now())
	if !errors.Is(err, away) {
		t.Errorf("what is missing was asked for, and got %v", err)
	}
}

// silent is a provider that lists, and answers nothing else.
type silent struct {
	payprovider.Provider
	err error
}

func (s silent) Intent(context.Context, string) (payprovider.Intent, error) {
	return payprovider.Intent{}, s.err
}
