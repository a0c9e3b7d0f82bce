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
func (c Currency) Format(amount Amount) string { return c.Decimal(amount) + " " + string(c) }

// Decimal writes an amount for programs: "500", "5.00".
func (c Currency) Decimal(amount Amount) string {
	digits := c.Digits()
	sign, text := "", strconv.FormatInt(int64(amount), 10)
	if digits == 0 {
		return text
	}
	if amount < 0 {
		sign, text = "-", text[1:]
	}
	if len(text) <= digits {
		text = strings.Repeat("0", digits+1-len(text)) + text
	}
	point := len(text) - digits
	return sign + text[:point] + "." + text[point:]
}

// listOne are the codes of ISO 4217 that have a minor unit, by its digits. Those without one,
// of metals, of units of account and of tests, are no currency that somebody pays with.
//
// Source: ISO 4217, list one (https://www.six-group.com/en/products-services/financial-information/market-reference-data/data-standards.html),
// as of 2026-01-01, when BGN ended. Its minor units are those of accounts; those of CLDR are for
// display, and differ: it shows COP without decimals.
var listOne = [...]string{
	0: "BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX UYI VND VUV XAF XOF XPF",
	2: "AED AFN ALL AMD AOA ARS AUD AWG AZN BAM BBD BDT BMD BND BOB BOV BRL BSD BTN BWP BYN BZD CAD CDF CHE CHF CHW CNY COP COU CRC " +
		"CUP CVE CZK DKK DOP DZD EGP ERN ETB EUR FJD FKP GBP GEL GHS GIP GMD GTQ GYD HKD HNL HTG HUF IDR ILS INR IRR JMD KES KGS KHR " +
		"KPW KYD KZT LAK LBP LKR LRD LSL MAD MDL MGA MKD MMK MNT MOP MRU MUR MVR MWK MXN MXV MYR MZN NAD NGN NIO NOK NPR NZD PAB PEN " +
		"PGK PHP PKR PLN QAR RON RSD RUB SAR SBD SCR SDG SEK SGD SHP SLE SOS SRD SSP STN SVC SYP SZL THB TJS TMT TOP TRY TTD TWD TZS " +
		"UAH USD USN UYU UZS VED VES WST XAD XCD XCG YER ZAR ZMW ZWG",
	3: "BHD IQD JOD KWD LYD OMR TND",
	4: "CLF UYW",
}

var minorUnits = func() map[Currency]int {
	known := map[Currency]int{}
	for n, codes := range listOne {
		for code := range strings.FieldsSeq(codes) {
			known[Currency(code)] = n
		}
	}
	return known
}()
