package money

import "testing"

func TestCurrenciesKnowTheirMinorUnits(t *testing.T) {
	for code, want := range map[string]string{"JPY": "500 JPY", "EUR": "5.00 EUR", "USD": "5.00 USD", "BHD": "0.500 BHD", "KRW": "500 KRW"} {
		c, err := ParseCurrency(code)
		if err != nil {
			t.Fatal(err)
		}
		if got := c.Format(500); got != want {
			t.Errorf("500 minor units of %s: %q, want %q", code, got, want)
		}
	}
	if got := Currency("EUR").Format(-7); got != "-0.07 EUR" {
		t.Errorf("got %q", got)
	}
}

func TestOnlyISOCodesAreCurrencies(t *testing.T) {
	for _, code := range []string{"", "jpy", "YEN", "XXX", "EURO", "J\x00Y", "¥¥¥"} {
		if _, err := ParseCurrency(code); err == nil {
			t.Errorf("%q was accepted", code)
		}
	}
}
