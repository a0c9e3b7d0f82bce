package verify

import (
	"slices"
	"strings"
	"testing"
	"time"

	"triprize/internal/domain/fairdraw"
	"triprize/internal/testkit/drawn"
	"triprize/sandbox/tsasim"
)

func TestATokenMustBeOfAnAuthorityInTheRulesAndBeforeTheRoundIsDue(t *testing.T) {
	t.Parallel()
	one, two := tsasim.Start(t, tsasim.Options{}), tsasim.Start(t, tsasim.Options{ECDSA: true})
	vague := tsasim.Start(t, tsasim.Options{Accuracy: "secs:86400"})
	reversed := func(p *fairdraw.Proof) { slices.Reverse(p.Witness) }
	late := func(by time.Duration) func(*drawn.Draw) {
		return func(m *drawn.Draw) {
			m.FrozenAt, m.Chain.GenesisTime = m.FrozenAt.Add(-by), m.Chain.GenesisTime-int64(by.Seconds())
			m.Rules.Beacon.ChainHash = m.Chain.Hash()
		} // the tokens are of now
	}
	for name, c := range map[string]struct {
		authorities []*tsasim.Authority
		made        func(*drawn.Draw)
		proof       func(*fairdraw.Proof)
		words       string // of the failure; empty: the check is ok
	}{
		"both":                    {authorities: []*tsasim.Authority{one, two}},
		"one of them":             {authorities: []*tsasim.Authority{one, two}, proof: func(p *fairdraw.Proof) { p.Witness = p.Witness[1:] }},
		"in another order":        {authorities: []*tsasim.Authority{one, two}, proof: reversed, words: "must stand before"},
		"the same twice":          {authorities: []*tsasim.Authority{one, two}, proof: func(p *fairdraw.Proof) { p.Witness[1] = p.Witness[0] }, words: "and once"},
		"one too many":            {authorities: []*tsasim.Authority{one}, proof: func(p *fairdraw.Proof) { p.Witness = append(p.Witness, p.Witness[0]) }, words: "2 tokens, and the rules name 1"},
		"not one of the rules'":   {authorities: []*tsasim.Authority{one}, made: func(m *drawn.Draw) { m.Rules.Witness = []fairdraw.Hash{two.Root} }, words: "leads to none of the authorities"},
		"after the round was due": {authorities: []*tsasim.Authority{one}, made: late(24 * time.Hour), words: "not before the round was due"},
		"perhaps after it":        {authorities: []*tsasim.Authority{vague}, words: "not before the round was due"},
		"about another record":    {authorities: []*tsasim.Authority{one}, proof: func(p *fairdraw.Proof) { p.FreezeHash[0]++ }, words: "about the digest"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := drawn.Triangle(2).WithBeacon().WithWitness(c.authorities...)
			if c.made != nil {
				c.made(m)
			}
			var changes []func(*fairdraw.Proof)
			if c.proof != nil {
				changes = append(changes, c.proof)
			}
			r := verified(t, m.Text(t, changes...), optionsOf(m))
			at := checkOf(r, fairdraw.CheckWitness)
			if (at.Status == OK) != (c.words == "") || !strings.Contains(at.Words, c.words) || r.OK != (c.words == "") {
				t.Errorf("%s: %s; failed: %v", at.Status, at.Words, r.Failed())
			}
		})
	}
}
