package stripesim

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stripe/stripe-go/v85"
)

// balance lists the transactions of the account, the oldest first, with their sources.
func (s *shop) balance(created *stripe.RangeQueryParams) (all []*stripe.BalanceTransaction) {
	s.t.Helper()
	p := &stripe.BalanceTransactionListParams{CreatedRange: created, Expand: []*string{stripe.String("data.source")}}
	p.Limit = stripe.Int64(2) // in pages
	for t, err := range s.sc.V1BalanceTransactions.List(s.t.Context(), p).All(s.t.Context()) {
		if err != nil {
			s.t.Fatal(err)
		}
		all = append(all, t)
	}
	slices.Reverse(all)
	return all
}

// moved writes a transaction with what its source was made over.
func moved(t *stripe.BalanceTransaction) string {
	text := fmt.Sprintf("%s/%s %d %s fee %d", t.Type, t.ReportingCategory, t.Amount, t.Currency, t.Fee)
	if t.Net != t.Amount-t.Fee {
		text += " with a wrong net"
	}
	switch {
	case t.Source == nil:
	case t.Source.Charge != nil:
		text += fmt.Sprintf(" of %d %s", t.Source.Charge.AmountCaptured, t.Source.Charge.Currency)
	case t.Source.Refund != nil:
		text += fmt.Sprintf(" of %d %s %s", t.Source.Refund.Amount, t.Source.Refund.Currency, t.Source.Refund.Status)
	case t.Source.Dispute != nil:
		text += fmt.Sprintf(" of %d %s %s", t.Source.Dispute.Amount, t.Source.Dispute.Currency, t.Source.Dispute.Status)
	case t.Source.Payout != nil:
		text += " paid out"
	}
	return text
}

func TestTheBalanceHasATransactionForEachMovementOfMoney(t *testing.T) {
	settings := Settings{Dir: t.TempDir()}
	s := open(t, settings)
	s.create(held("pm_card_visa")) // holds nothing yet
	authorized := s.confirmed(s.create(held("pm_card_visa")).ID)
	if _, err := s.sc.V1PaymentIntents.Cancel(t.Context(), authorized.ID, nil); err != nil { // its refund moves nothing
		t.Fatal(err)
	}
	back, fought := s.paid("pm_card_visa"), s.paid("pm_card_visa")
	given, err := s.refund(back.ID, 200)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.server.FinishRefund(given.ID, failed); err != nil {
		t.Fatal(err)
	}
	dispute, err := s.server.Dispute(fought.LatestCharge.ID)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.server.CloseDispute(dispute, true); err != nil {
		t.Fatal(err)
	}
	if status, _, body := s.raw("POST", "/sandbox/payouts", `{"currency": "jpy", "fee": 30}`); status != 200 {
		t.Fatalf("%d %v", status, body)
	}
	want := []string{
		"charge/charge 500 jpy fee 18 of 500 jpy", "charge/charge 500 jpy fee 18 of 500 jpy",
		"refund/refund -200 jpy fee 0 of 200 jpy failed", "refund_failure/refund_failure 200 jpy fee 0 of 200 jpy failed",
		"adjustment/dispute -500 jpy fee 1300 of 500 jpy won", "adjustment/dispute_reversal 500 jpy fee 0 of 500 jpy won",
		"stripe_fee/fee -30 jpy fee 0", "payout/payout 366 jpy fee 0 paid out",
	}
	look := func() (got []string) {
		for _, m := range s.balance(nil) {
			got = append(got, moved(m))
		}
		return got
	}
	if got := look(); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	if ch := s.intent(back.ID).LatestCharge; ch.BalanceTransaction == nil || ch.BalanceTransaction.ID != s.balance(nil)[0].ID {
		t.Errorf("the charge names %v", ch.BalanceTransaction)
	}
	if d, err := s.sc.V1Disputes.Retrieve(t.Context(), dispute, nil); err != nil || len(d.BalanceTransactions) != 2 {
		t.Errorf("%v, %v", d, err)
	}
	s = s.reopen(settings)
	if got := look(); !slices.Equal(got, want) {
		t.Errorf("after a restart: %q", got)
	}
}

func TestABalanceInAnotherCurrencyHasItsRate(t *testing.T) {
	s := open(t, Settings{SettlesIn: "usd", ExchangeRate: 0.65})
	paid := s.paid("pm_card_visa")
	s.advance(time.Hour)
	if _, err := s.refund(paid.ID, 100); err != nil {
		t.Fatal(err)
	}
	all := s.balance(nil)
	if len(all) != 2 || moved(all[0]) != "charge/charge 325 usd fee 11 of 500 jpy" || all[0].ExchangeRate != 0.65 || moved(all[1]) != "refund/refund -65 usd fee 0 of 100 jpy succeeded" {
		t.Errorf("%v", all)
	}
	if later := s.balance(&stripe.RangeQueryParams{GreaterThan: all[0].Created}); len(later) != 1 || later[0].ID != all[1].ID {
		t.Errorf("%v", later)
	}
}
