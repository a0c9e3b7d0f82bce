package stripe_test

import (
	"testing"

	"triprize/internal/domain/money"
	"triprize/internal/platform/stripe"
)

func TestCardsPayOnlyWhereStripeCountsAmountsAsWeDo(t *testing.T) {
	t.Parallel()
	for currency, want := range map[money.Currency]bool{
		"JPY": true, "USD": true, "EUR": true, "KRW": true, "XPF": true, "TWD": true,
		"ISK": false, "UGX": false, "MGA": false, "BHD": false, "KWD": false, "TND": false,
		"COP": true, "IDR": true, "LAK": true, "MRU": true, "HUF": true, "CLF": false, "UYI": false, "IQD": false,
	} {
		if got := stripe.Takes(currency); got != want {
			t.Errorf("%s: %t, want %t", currency, got, want)
		}
	}
}
