package money

import "strings"

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
