package openapi

import (
	"math"
	"strconv"
	"strings"
)

// inexact says what is wrong with a JSON number whose value would change when it is
// made canonical, as a double; else it returns "". 1.0 and 1e2 are written in another
// way then and stay the same number; 0.99999999999999999999 would become 1.
func inexact(number []byte) string {
	if len(number) > maxDigits {
		return "has too many digits"
	}
	double, err := strconv.ParseFloat(string(number), 64)
	if err != nil || math.IsInf(double, 0) {
		return "is too large"
	}
	canonical := strconv.FormatFloat(double, 'e', -1, 64)
	if decimalOf(string(number)) != decimalOf(canonical) {
		return "cannot be kept exactly, it would become " + strconv.FormatFloat(double, 'g', -1, 64) + ": send fewer digits"
	}
	return ""
}

// decimal is a number 0.digits × 10^exponent, in its only form: digits neither begin
// nor end with a 0, and are empty for zero.
type decimal struct {
	negative bool
	digits   string
	exponent int64
}

// decimalOf reads a JSON number without rounding it.
func decimalOf(text string) decimal {
	text, negative := strings.CutPrefix(text, "-")
	mantissa, power, _ := strings.Cut(strings.ToLower(text), "e")
	whole, fraction, _ := strings.Cut(mantissa, ".")
	exponent, _ := strconv.ParseInt(power, 10, 64) // empty: 0; out of range: the largest or smallest
	digits := strings.TrimLeft(whole+fraction, "0")
	exponent += int64(len(digits) - len(fraction))
	if digits = strings.TrimRight(digits, "0"); digits == "" {
		return decimal{} // -0 is 0
	}
	return decimal{negative, digits, exponent}
}
