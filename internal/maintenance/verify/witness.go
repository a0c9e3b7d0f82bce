package verify

import (
	"bytes"
	"slices"
	"strings"
	"time"

	"triprize/internal/domain/fairdraw"
	"triprize/internal/platform/timestamp"
)

// stamp is what a token that counts says.
type stamp struct {
	authority fairdraw.Hash
	named     bool // by the user
	early     bool // more than a minute before the freeze: a clock is wrong
}

// earliest is how long before the freeze a token may be without a word: clocks differ.
const earliest = time.Minute

func (d *document) checkWitness() outcome {
	bound := d.rules.Witness
	switch {
	case len(bound) == 0 && len(d.Witness) == 0:
		return ok("nothing to do: the rules name no authorities")
	case len(bound) == 0:
		return failed("there are tokens, and the rules name no authorities")
	case len(d.Witness) == 0:
		return ok("unwitnessed: there is no token of the %d authorities in the rules", len(bound))
	case len(d.Witness) > len(bound):
		return failed("there are %d tokens, and the rules name %d authorities", len(d.Witness), len(bound))
	case d.Beacon == nil || d.Round == nil || d.Beacon.PeriodS < 1:
		return notMade("it needs to know when the round was due")
	}
	words := make([]string, 0, len(d.Witness))
	for i, der := range d.Witness {
		token, err := timestamp.Check(der, d.FreezeHash, bound)
		switch {
		case err != nil:
			return failed("token %d: %s", i+1, err)
		case i > 0 && bytes.Compare(token.Authority[:], d.stamps[i-1].authority[:]) <= 0:
			return failed("token %d is of authority %s, which must stand before the one in front of it, and once", i+1, token.Authority)
		case !token.Before(due(d).Time):
			return failed("token %d is of %s, accurate to %s, which is not before the round was due at %s", i+1, token.GenTime.UTC().Format(time.RFC3339Nano), token.Accuracy, due(d))
		}
		s := stamp{authority: token.Authority, named: slices.Contains(d.user.Authorities, token.Authority), early: token.Before(d.FrozenAt.Add(-earliest))}
		d.stamps, words = append(d.stamps, s), append(words, s.words(token.GenTime, d))
	}
	return ok("stamped before the round was due: %s", strings.Join(words, "; "))
}

func (s stamp) words(at time.Time, d *document) string {
	words := "at " + at.UTC().Format(time.RFC3339Nano) + " by the authority " + s.authority.String()
	if s.named {
		words += ", which you named"
	} else {
		words += ", which only the operator named"
	}
	if s.early {
		words += ". That is more than a minute before the list was frozen at " + d.FrozenAt.String() + ": a clock is wrong"
	}
	return words
}

// witnesses counts the tokens of authorities that the user named.
func (d *document) witnesses() (n int) {
	for _, s := range d.stamps {
		if s.named {
			n++
		}
	}
	return n
}
