package money

import "testing"

func TestCurrenciesKnowTheirMinorUnits(t *testing.T) {
	for code, want := range map[string]string{"JPY": "500 JPY", "EUR": "5.00 EUR", "USD": "5.00 USD", "BHD": "0.500 BHD", "KRW": "500 KRW",
		"COP": "5.00 COP", "IDR": "5.00 IDR", "LAK": "5.00 LAK", "MRU": "5.00 MRU", "IQD": "0.500 IQD", "CLF": "0.0500 CLF", "XCG": "5.00 XCG"} {
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
	for _, code := range []string{"", "jpy", "YEN", "XXX", "EURO", "J\x00Y", "¥¥¥",
		"DEM", "HRK", "BGN", "ANG", "CUC", "MRO", "SLL", "ZWL", "XAU", "XDR", "XTS", "XSU"} {
		if _, err := ParseCurrency(code); err == nil {
			t.Errorf("%q was accepted", code)
		}
	}
}
