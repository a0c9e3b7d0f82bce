package drandsim

import (
	"fmt"
	"slices"
	"strings"
)

// Faults are what is wrong with a relay. The zero value is a relay that works.
type Faults struct {
	LateS      int    `json:"late_s,omitempty"`      // seconds after which it has a round that is due
	LateRounds int    `json:"late_rounds,omitempty"` // rounds by which it is behind
	Wrong      string `json:"wrong,omitempty"`       // how it lies; empty: it does not
	Forked     bool   `json:"forked,omitempty"`      // it signs with another key
	Away       string `json:"away,omitempty"`        // how it does not answer; empty: it does
}

// How a relay lies.
const (
	WrongRandom     = "random"      // random bytes as the signature
	WrongOtherRound = "other-round" // the signature of another round, under the number that was asked for
	WrongNumber     = "number"      // another round, under its own number
	WrongRandomness = "randomness"  // the round, with a randomness that is not its own
)

// How a relay is away.
const (
	AwayRefuse  = "refuse"  // closes the connection without an answer
	AwayHang    = "hang"    // never answers
	AwayError   = "error"   // 500
	AwayHTML    = "html"    // 200 with a page
	AwayEndless = "endless" // 200 with a body that does not end
)

// mostLate bounds both kinds of lateness.
const mostLate = 1 << 30

func (f Faults) check() error {
	if f.LateS < 0 || f.LateS > mostLate || f.LateRounds < 0 || f.LateRounds > mostLate {
		return fmt.Errorf("drandsim: late_s and late_rounds must be 0 to %d", mostLate)
	}
	if kinds := []string{WrongRandom, WrongOtherRound, WrongNumber, WrongRandomness}; f.Wrong != "" && !slices.Contains(kinds, f.Wrong) {
		return fmt.Errorf("drandsim: wrong must be one of %s", strings.Join(kinds, ", "))
	}
	if kinds := []string{AwayRefuse, AwayHang, AwayError, AwayHTML, AwayEndless}; f.Away != "" && !slices.Contains(kinds, f.Away) {
		return fmt.Errorf("drandsim: away must be one of %s", strings.Join(kinds, ", "))
	}
	return nil
}
