package verify

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"triprize.example/draw/beacon"
	"triprize.example/draw/fairdraw"
	"triprize.example/draw/testkit/drawn"
)

func TestAnHonestProofPassesEveryCheckAndSaysWhatItShows(t *testing.T) {
	t.Parallel()
	unsold := func(m *drawn.Draw) *drawn.Draw {
		m.Rules.Unsold = &fairdraw.Unsold{EndsAt: fairdraw.At(m.FrozenAt.Add(-time.Second))}
		return m
	}
	seats := drawn.Triangle(3)
	seats.Rules.BaseLength = 0
	seats.Rules.Layers = []fairdraw.Layer{{Layer: 1, Positions: 1}, {Layer: 2, Positions: 2}, {Layer: 3, Positions: 3}}
	empty := unsold(drawn.Triangle(3))
	empty.Sold = empty.Sold[:1] // layers 2 and 3 have nobody
	nothing := unsold(drawn.Triangle(3).WithBeacon())
	nothing.Sold = nil
	for name, c := range map[string]struct {
		*drawn.Draw
		shows, remains string
	}{
		"operator":           {drawn.Triangle(3), "The winners follow from the rules", "trust in the operator alone"},
		"beacon":             {drawn.Triangle(3).WithBeacon(), "unless most of the beacon's members work together", "held a draw back"},
		"no triangle":        {seats, "", ""},
		"one position sold":  {empty, "", ""},
		"nothing sold":       {nothing, "", ""},
		"the latest round":   {func() *drawn.Draw { m := drawn.Triangle(3).WithBeacon(); m.Ahead = fairdraw.MostRoundsAhead; return m }(), "", ""},
		"sold out and ended": {unsold(drawn.Triangle(3)), "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := verified(t, c.Text(t), optionsOf(c.Draw))
			if !r.OK || len(r.Failed()) > 0 || len(r.Checks) != 1+len(checks) || r.CampaignID != c.ID {
				t.Errorf("%+v", r)
			}
			if !strings.Contains(strings.Join(r.Shows, "\n"), c.shows) || !strings.Contains(strings.Join(r.Remains, "\n"), c.remains) {
				t.Errorf("it shows %q; what remains: %q", r.Shows, r.Remains)
			}
		})
	}
}

func checkOf(r Report, name string) Check {
	for _, c := range r.Checks {
		if c.Name == name {
			return c
		}
	}
	return Check{}
}

// Each case changes one thing. The check of that thing must fail, and no other that is
// right by itself.
func TestOneWrongThingFailsItsOwnCheck(t *testing.T) {
	t.Parallel()
	stranger := drawn.NewChain("stranger", time.Now())
	for name, c := range map[string]struct {
		check string
		also  string // checks that cannot but fail, too
		plain bool   // without a beacon
		made  func(*drawn.Draw)
		proof func(*fairdraw.Proof)
		words string
	}{
		"another version": {check: "rules", also: "commitment", proof: func(p *fairdraw.Proof) {
			p.Rules = replaced(p.Rules, `"version":"triprize-draw/1"`, `"version":"triprize-draw/2"`)
		}, words: "version"},
		"rules of another campaign":    {check: "rules", also: "commitment", proof: func(p *fairdraw.Proof) { p.Rules = replaced(p.Rules, "0193b0a8", "0193b0a9") }, words: "campaign 0193b0a9"},
		"an unknown member in rules":   {check: "rules", also: "commitment", proof: func(p *fairdraw.Proof) { p.Rules = replaced(p.Rules, `"version"`, `"verse":1,"version"`) }, words: "unknown"},
		"a prize renamed":              {check: "commitment", also: "winners", proof: func(p *fairdraw.Proof) { p.Rules = replaced(p.Rules, "Zoë", "Zoé") }},
		"another secret":               {check: "commitment", also: "winners", plain: true, proof: func(p *fairdraw.Proof) { p.Secret[0]++ }},
		"another secret, with beacon":  {check: "commitment", also: "freeze-hash winners", proof: func(p *fairdraw.Proof) { p.Secret[0]++ }},
		"a position missing":           {check: "count", made: func(m *drawn.Draw) { m.Sold = m.Sold[:5] }, words: "do not allow"},
		"a position that is none":      {check: "sold-list", made: func(m *drawn.Draw) { m.Sold[5].Column = 4 }, words: "is none of the rules"},
		"a layer that is none":         {check: "sold-list", made: func(m *drawn.Draw) { m.Sold[5].Layer = 9 }, words: "is none of the rules"},
		"a count that is not the list": {check: "count", also: "freeze-hash", proof: func(p *fairdraw.Proof) { p.Count = 5 }},
		"another root":                 {check: "root", also: "freeze-hash winners", proof: func(p *fairdraw.Proof) { p.Root[3]++ }},
		"frozen before the end": {check: "freeze-time", made: func(m *drawn.Draw) {
			m.Sold = m.Sold[:5]
			m.Rules.Unsold = &fairdraw.Unsold{EndsAt: fairdraw.At(m.FrozenAt.Add(time.Second))}
		}},
		"more sold than there are": {check: "count", also: "sold-list", made: func(m *drawn.Draw) {
			m.Rules.Unsold = &fairdraw.Unsold{EndsAt: fairdraw.At(m.FrozenAt)}
			m.Sold = append(m.Sold, fairdraw.Sold{Position: m.Sold[5].Position})
			m.Sold[6].Column = 4
		}},
		"another time":                 {check: "freeze-hash", proof: func(p *fairdraw.Proof) { p.FrozenAt = fairdraw.At(p.FrozenAt.Add(time.Microsecond)) }},
		"another freeze hash":          {check: "freeze-hash", proof: func(p *fairdraw.Proof) { p.FreezeHash[0]++ }},
		"no beacon":                    {check: "chain", also: "round winners", proof: func(p *fairdraw.Proof) { p.Beacon = nil }},
		"a beacon that no rule names":  {check: "chain", also: "round trust", made: func(m *drawn.Draw) { m.Rules.Beacon = nil }},
		"another chain":                {check: "chain", made: func(m *drawn.Draw) { m.Chain = stranger }, words: "in the rules"},
		"a chain nobody named":         {check: "chain", made: func(m *drawn.Draw) { m.Chain = stranger; m.Rules.Beacon.ChainHash = stranger.Hash() }, words: "--chain-hash"},
		"a key of somebody else":       {check: "chain", also: "signature", proof: func(p *fairdraw.Proof) { p.Beacon.PublicKey = stranger.PublicKey }},
		"another period":               {check: "chain", also: "round", proof: func(p *fairdraw.Proof) { p.Beacon.PeriodS = 10 * drawn.Hour }},
		"no period":                    {check: "chain", also: "round", proof: func(p *fairdraw.Proof) { p.Beacon.PeriodS = 0 }, words: "0 s"},
		"another genesis":              {check: "chain", proof: func(p *fairdraw.Proof) { p.Beacon.GenesisTime-- }},
		"another seed":                 {check: "chain", proof: func(p *fairdraw.Proof) { p.Beacon.GenesisSeed[0]++ }},
		"another name of the chain":    {check: "chain", proof: func(p *fairdraw.Proof) { p.Beacon.BeaconID = "quicknet" }},
		"no round":                     {check: "round", also: "freeze-hash", proof: func(p *fairdraw.Proof) { p.Round = nil }},
		"a round too early":            {check: "round", made: func(m *drawn.Draw) { m.Ahead = 9 }},
		"a round of the past":          {check: "round", made: func(m *drawn.Draw) { m.Ahead = 0 }},
		"a round too late":             {check: "round", made: func(m *drawn.Draw) { m.Ahead = 31 }},
		"a round that is not promised": {check: "round", also: "signature", proof: func(p *fairdraw.Proof) { p.Beacon.Round++ }, words: "freeze record names"},
		"the next round's signature":   {check: "signature", also: "randomness", proof: func(p *fairdraw.Proof) { p.Beacon.Signature = stranger.Sign(p.Beacon.Round) }},
		"a short signature":            {check: "signature", also: "randomness", proof: func(p *fairdraw.Proof) { p.Beacon.Signature = p.Beacon.Signature[:47] }},
		"another randomness":           {check: "randomness", also: "winners", proof: func(p *fairdraw.Proof) { p.Beacon.Randomness[0]++ }},
		"another winner":               {check: "winners", proof: func(p *fairdraw.Proof) { column := *p.Winners[2].Column%3 + 1; p.Winners[2].Column = &column }},
		"a winner of another name":     {check: "winners", proof: func(p *fairdraw.Proof) { p.Winners[0].Name = "A bicycle" }},
		"a prize that is withheld": {check: "winners", proof: func(p *fairdraw.Proof) {
			p.Winners[1] = fairdraw.ProofWinner{Prize: 2, Name: p.Winners[1].Name, Layer: 2, Awarded: new(bool)}
		}},
		"a prize left out":         {check: "winners", proof: func(p *fairdraw.Proof) { p.Winners = p.Winners[:2] }},
		"more trust than there is": {check: "trust", plain: true, proof: func(p *fairdraw.Proof) { p.Trust = fairdraw.TrustBeacon }},
		"less trust than there is": {check: "trust", proof: func(p *fairdraw.Proof) { p.Trust = fairdraw.TrustOperator }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := drawn.Triangle(3)
			if !c.plain {
				m.WithBeacon()
			}
			o := optionsOf(m)
			if c.made != nil {
				c.made(m)
			}
			var changes []func(*fairdraw.Proof)
			if c.proof != nil {
				changes = append(changes, c.proof)
			}
			r := verified(t, m.Text(t, changes...), o)
			if at := checkOf(r, c.check); r.OK || at.Status != Failed || !strings.Contains(at.Words, c.words) {
				t.Errorf("%s is %s: %s", c.check, at.Status, at.Words)
			}
			if unknown := name == "a chain nobody named"; r.OnlyChainUnknown != unknown {
				t.Errorf("only the chain is unknown: %t", r.OnlyChainUnknown)
			}
			for _, also := range r.Failed() {
				if also != c.check && !slices.Contains(strings.Fields(c.also), also) {
					t.Errorf("%s failed, too: %s", also, checkOf(r, also).Words)
				}
			}
			if len(r.Shows) > 0 || len(r.Remains) > 0 {
				t.Error("it says what a proof shows that does not hold")
			}
		})
	}
}

func replaced(text []byte, old, by string) []byte {
	return bytes.Replace(text, []byte(old), []byte(by), 1)
}

func TestAListOutOfOrderOrWithAPositionTwiceIsNoList(t *testing.T) {
	t.Parallel()
	m := drawn.Triangle(3)
	list := fairdraw.Lines(m.Sold)
	list[1], list[2] = list[2], list[1]
	for name, sold := range map[string][]fairdraw.SoldLine{"out of order": list, "twice": append(fairdraw.Lines(m.Sold), m.Sold[5].Line())} {
		r := verified(t, drawn.TextOf(t, m.Proof(t), sold), Options{})
		if checkOf(r, "sold-list").Status != Failed || checkOf(r, "root").Status != Failed || checkOf(r, "winners").Status != NotMade {
			t.Errorf("%s: %+v", name, r.Checks)
		}
	}
}

// A check is made of what stands in the document, also where another has failed: both verifiers say the same.
func TestACheckIsMadeOfWhatStandsInTheDocument(t *testing.T) {
	t.Parallel()
	far, many := drawn.Triangle(3).WithBeacon(), drawn.Triangle(3)
	many.Rules.Unsold = &fairdraw.Unsold{EndsAt: fairdraw.At(many.FrozenAt.Add(time.Hour))}
	foreign := fairdraw.Lines(many.Sold)
	foreign[5].Column = 9
	bare := far.Text(t, func(p *fairdraw.Proof) { p.Beacon = nil })
	for name, c := range map[string]struct {
		text  []byte
		o     Options
		check string
		want  Status
	}{
		"a round without a beacon":             {bare, optionsOf(far), "round", Failed},
		"a signature without a beacon":         {bare, optionsOf(far), "signature", NotMade},
		"randomness without a beacon":          {bare, optionsOf(far), "randomness", OK},
		"more lines than positions":            {many.Text(t, func(p *fairdraw.Proof) { p.Count++ }), Options{}, "freeze-time", OK},
		"winners of a list of other positions": {drawn.TextOf(t, many.Proof(t), foreign), Options{}, "winners", NotMade},
	} {
		if at := checkOf(verified(t, c.text, c.o), c.check); at.Status != c.want {
			t.Errorf("%s: %+v", name, at)
		}
	}
}

// What needs something wrong is not made, and is not passed off as verified.
func TestAfterAWrongFormOrWrongRulesWhatNeedsThemIsNotMade(t *testing.T) {
	t.Parallel()
	m := drawn.Triangle(3)
	r := verified(t, append(m.Text(t), '\n'), Options{})
	for i, c := range r.Checks {
		if want := map[bool]Status{true: Failed, false: NotMade}[i == 0]; c.Status != want {
			t.Errorf("with a newline, %s is %s", c.Name, c.Status)
		}
	}
	r = verified(t, m.Text(t, func(p *fairdraw.Proof) { p.Rules = []byte("{}") }), Options{})
	notMade := []string{"sold-list", "count", "freeze-time", "chain", "round", "signature", "winners", "trust"}
	for _, c := range r.Checks {
		if got := c.Status == NotMade; got != slices.Contains(notMade, c.Name) {
			t.Errorf("without rules, %s is %s", c.Name, c.Status)
		}
	}
}

func TestRoundsOfQuicknetNeedNoChainHash(t *testing.T) {
	t.Parallel()
	m := drawn.Triangle(3).WithBeacon()
	quicknet := beacon.Quicknet()
	m.FrozenAt = quicknet.DueAt(657413 - fairdraw.RoundsAhead)
	m.Rules.Beacon = &fairdraw.Beacon{ChainHash: quicknet.Hash(), PeriodS: quicknet.PeriodS}
	m.Chain.Chain = quicknet
	r := verified(t, m.Text(t), Options{})
	if c := checkOf(r, "chain"); c.Status != OK || c.Words != "it is drand's quicknet" {
		t.Errorf("%+v", c)
	}
	if failed := r.Failed(); !slices.Equal(failed, []string{"signature"}) { // the tests have no key of it
		t.Errorf("failed: %v", failed)
	}
}

func TestAFileThatCannotBeReadIsAnErrorAndNoVerdict(t *testing.T) {
	t.Parallel()
	broken := iotest.ErrReader(errors.New("the disk is gone"))
	m := drawn.Triangle(3)
	for name, read := range map[string]func() (Report, error){
		"the document": func() (Report, error) { return Proof(broken, Options{}) },
		"the purchase": func() (Report, error) { return Proof(bytes.NewReader(m.Text(t)), Options{Purchase: broken}) },
		"the other":    func() (Report, error) { return Proof(bytes.NewReader(m.Text(t)), Options{Against: broken}) },
	} {
		if r, err := read(); err == nil || r.OK {
			t.Errorf("%s: %+v", name, r)
		}
	}
}
