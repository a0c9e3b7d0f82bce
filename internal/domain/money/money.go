// Package money has amounts in minor units ([Amount]) and currencies ([Currency]).
//
// ¥500 is 500, $5.00 is 500. ISO 4217 says which currencies exist and how many digits they have.
package money

import (
	"fmt"
	"strconv"
	"strings"
)

// Amount is an amount of money in minor units of its currency.
type Amount int64

// MaxAmount bounds every single amount. The sum of a million of them still fits
// into an Amount.
const MaxAmount Amount = 1_000_000_000_000

// Currency is an ISO 4217 code in capitals.
type Currency string

// ParseCurrency accepts a current ISO 4217 code in capitals.
func ParseCurrency(code string) (Currency, error) {
	if _, known := minorUnits[Currency(code)]; !known {
		return "", fmt.Errorf("%q is not an ISO 4217 currency code", code)
	}
	return Currency(code), nil
}

// Digits returns how many digits the minor unit has: 0 for JPY, 2 for EUR, 3 for BHD.
func (c Currency) Digits() int { return minorUnits[c] }

// Format writes an amount for people: "500 JPY", "5.00 EUR".
func (c Currency) Format(amount Amount) string {
	digits := c.Digits()
	if digits == 0 {
		return strconv.FormatInt(int64(amount), 10) + " " + string(c)
	}
	sign, text := "", strconv.FormatInt(int64(amount), 10)
	if amount < 0 {
		sign, text = "-", text[1:]
	}
	if len(text) <= digits {
		text = strings.Repeat("0", digits+1-len(text)) + text
	}
	point := len(text) - digits
	return sign + text[:point] + "." + text[point:] + " " + string(c)
}
