package stripe

import (
	"slices"

	"triprize/internal/domain/money"
)

// withoutMinorUnit are the currencies whose amounts Stripe counts in whole units, as ISO
// 4217 and package money do. Stripe's list has two more: MGA, which has a minor unit in
// ISO 4217, and UGX, whose amounts Stripe counts in hundredths.
// Source: Stripe's documentation, "Supported currencies", zero-decimal currencies.
var withoutMinorUnit = []money.Currency{"BIF", "CLP", "DJF", "GNF", "JPY", "KMF", "KRW", "PYG", "RWF", "VND", "VUV", "XAF", "XOF", "XPF"}

// Takes reports whether a card can pay in a currency: only if Stripe counts its amounts
// as we do. Those of any other would be wrong by a factor, and both ledgers would agree.
// Currencies with three decimals are left out, since Stripe takes multiples of ten only.
func Takes(c money.Currency) bool {
	switch c.Digits() {
	case 0:
		return slices.Contains(withoutMinorUnit, c)
	case 2:
		return c != "MGA"
	}
	return false
}
