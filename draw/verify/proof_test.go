package verify

import (
	"bytes"
	"cmp"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"
	"unicode"

	"triprize.example/draw/fairdraw"
	"triprize.example/draw/testkit/drawn"
)

func TestAnHonestProofSaysWhatItShowsAndWhatRemains(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		*drawn.Draw
		shows, remains string
	}{
		{drawn.Triangle(3), "The winners follow from the rules", "trust in the operator alone"},
		{drawn.Triangle(3).WithBeacon(), "unless most of the beacon's members work together", "held a draw back"},
	} {
		r := verified(t, c.Text(t), optionsOf(c.Draw))
		if !r.OK || !strings.Contains(strings.Join(r.Shows, "\n"), c.shows) || !strings.Contains(strings.Join(r.Remains, "\n"), c.remains) {
			t.Errorf("it shows %q; what remains: %q", r.Shows, r.Remains)
		}
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

// Most faults are in the vectors. These need words, or a value that the vectors do not have.
func TestAFaultIsSaidByTheCheckThatIsForIt(t *testing.T) {
	t.Parallel()
	stranger := drawn.NewChain("stranger", time.Now())
	for name, c := range map[string]struct {
		check string
		also  string // checks that cannot but fail, too
		made  func(*drawn.Draw)
		proof func(*fairdraw.Proof)
		words string
	}{
		"another version": {check: "rules", also: "commitment", proof: func(p *fairdraw.Proof) {
			p.Rules = bytes.Replace(p.Rules, []byte("triprize-draw/1"), []byte("triprize-draw/2"), 1)
		}, words: "version"},
		"another secret, with beacon":  {check: "commitment", also: "freeze-hash winners", proof: func(p *fairdraw.Proof) { p.Secret[0]++ }},
		"a position missing":           {check: "count", made: func(m *drawn.Draw) { m.Sold = m.Sold[:5] }, words: "do not allow"},
		"a count that is not the list": {check: "count", also: "freeze-hash", proof: func(p *fairdraw.Proof) { p.Count = 5 }, words: "6 positions are listed"},
		"a round that no rule names":   {check: "round", also: "chain trust", made: func(m *drawn.Draw) { m.Rules.Beacon = nil }, words: "the rules have no beacon"},
		"a layer that is none":         {check: "sold-list", made: func(m *drawn.Draw) { m.Sold[5].Layer = 9 }, words: "is none of the rules"},
		"more sold than there are": {check: "count", also: "sold-list", made: func(m *drawn.Draw) {
			m.Rules.Unsold = &fairdraw.Unsold{EndsAt: fairdraw.At(m.FrozenAt)}
			m.Sold = append(m.Sold, drawn.Sold{Position: m.Sold[5].Position})
			m.Sold[6].Column = 4
		}},
		"another chain":                      {check: "chain", made: func(m *drawn.Draw) { m.Chain = stranger }, words: "in the rules"},
		"a chain nobody named":               {check: "chain", made: func(m *drawn.Draw) { m.Chain = stranger; m.Rules.Beacon.ChainHash = stranger.Hash() }, words: "--chain-hash"},
		"a chain nobody named, and a winner": {check: "chain", also: "winners", made: func(m *drawn.Draw) { m.Chain = stranger; m.Rules.Beacon.ChainHash = stranger.Hash() }, proof: func(p *fairdraw.Proof) { p.Winners[0].Name = "A bicycle" }},
		"a key of somebody else":             {check: "chain", also: "signature", proof: func(p *fairdraw.Proof) { p.Beacon.PublicKey = stranger.PublicKey }},
		"another period":                     {check: "chain", also: "round", proof: func(p *fairdraw.Proof) { p.Beacon.PeriodS = 10 * drawn.Hour }},
		"another genesis":                    {check: "chain", proof: func(p *fairdraw.Proof) { p.Beacon.GenesisTime-- }},
		"another name of a chain":            {check: "chain", proof: func(p *fairdraw.Proof) { p.Beacon.BeaconID = "quicknet" }},
		"no round":                           {check: "round", also: "freeze-hash", proof: func(p *fairdraw.Proof) { p.Round = nil }},
		"a round of the past":                {check: "round", made: func(m *drawn.Draw) { m.Ahead = 0 }},
		"a round nobody promised":            {check: "round", also: "signature", proof: func(p *fairdraw.Proof) { p.Beacon.Round++ }, words: "freeze record names"},
	} {
		m := drawn.Triangle(3).WithBeacon()
		o := optionsOf(m)
		if c.made != nil {
			c.made(m)
		}
		p := m.Proof(t)
		if c.proof != nil {
			c.proof(&p)
		}
		r := verified(t, drawn.TextOf(t, p, drawn.Lines(m.Sold)), o)
		if at := checkOf(r, c.check); r.OK || at.Status != Failed || !strings.Contains(at.Words, c.words) {
			t.Errorf("%s: %s is %s: %s", name, c.check, at.Status, at.Words)
		}
		if unknown := name == "a chain nobody named"; r.OnlyChainUnknown != unknown {
			t.Errorf("%s: only the chain is unknown: %t", name, r.OnlyChainUnknown)
		}
		for _, also := range r.Failed() {
			if also != c.check && !slices.Contains(strings.Fields(c.also), also) {
				t.Errorf("%s: %s failed, too: %s", name, also, checkOf(r, also).Words)
			}
		}
	}
}

// A check is made of what stands in the document, also where another has failed: both verifiers say the same.
func TestACheckIsMadeOfWhatStandsInTheDocument(t *testing.T) {
	t.Parallel()
	far, many := drawn.Triangle(3).WithBeacon(), drawn.Triangle(3)
	many.Rules.Unsold = &fairdraw.Unsold{EndsAt: fairdraw.At(many.FrozenAt.Add(time.Hour))}
	foreign := drawn.Lines(many.Sold)
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
	p := m.Proof(t)
	purchase, err := m.Purchase(t, 0).Canonical()
	must(t, err)
	r := verified(t, append(m.Text(t), '\n'), Options{Commitment: &p.Commitment, FreezeHash: &p.FreezeHash, Purchase: bytes.NewReader(purchase), Against: bytes.NewReader(m.Text(t))})
	own := map[string]Status{"form": Failed, "purchase-form": OK}
	for _, c := range r.Checks {
		if want := cmp.Or(own[c.Name], NotMade); c.Status != want {
			t.Errorf("with a newline, %s is %s", c.Name, c.Status)
		}
	}
	if r.OK || r.Headline != "not verified" || len(r.Checks) != 1+len(checks)+6 {
		t.Errorf("%+v", r)
	}
	r = verified(t, m.Text(t, func(p *fairdraw.Proof) { p.Rules = []byte("{}") }), Options{})
	notMade := []string{"sold-list", "count", "freeze-time", "chain", "round", "signature", "winners", "trust"}
	for _, c := range r.Checks {
		if got := c.Status == NotMade; got != slices.Contains(notMade, c.Name) {
			t.Errorf("without rules, %s is %s", c.Name, c.Status)
		}
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

// optionsOf accept the campaign's chain.
func optionsOf(m *drawn.Draw) Options {
	if m.Chain == nil {
		return Options{}
	}
	return Options{Chains: []fairdraw.Hash{m.Chain.Hash()}}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// verified returns the report about a document.
func verified(t testing.TB, text []byte, o Options) Report {
	t.Helper()
	report, err := Proof(bytes.NewReader(text), o)
	must(t, err)
	return report
}

// That nothing changed is said only of what the user noted.
func TestNothingIsCalledUnchangedThatNobodyNoted(t *testing.T) {
	t.Parallel()
	m := drawn.Triangle(3)
	p := m.Proof(t)
	for _, c := range []struct {
		commitment, freezeHash *fairdraw.Hash
		failed                 []string
		shows                  int // sentences about what did not change
	}{
		{nil, nil, nil, 0},
		{&p.Commitment, nil, nil, 1},
		{&p.Commitment, &p.FreezeHash, nil, 2},
		{&p.FreezeHash, nil, []string{"noted-commitment"}, 0},
		{&p.Commitment, &p.Commitment, []string{"noted-freeze-hash"}, 0},
	} {
		r := verified(t, m.Text(t), Options{Commitment: c.commitment, FreezeHash: c.freezeHash})
		if !slices.Equal(r.Failed(), c.failed) || strings.Count(strings.Join(r.Shows, "\n"), "Nothing changed") != c.shows {
			t.Errorf("%v failed; it shows %q", r.Failed(), r.Shows)
		}
	}
}

// A name can hold everything that moves the cursor: a false document would clear the screen
// and write its own verdict.
func TestNoTextOfADocumentWritesOnTheTerminalWhatWasNotFound(t *testing.T) {
	t.Parallel()
	m := drawn.Triangle(3)
	for i := range m.Rules.Prizes {
		m.Rules.Prizes[i].Name = "\x1b[2J\x1b[Hok\r\n\u202e\u0085" + m.Rules.Prizes[i].Name
	}
	for what, change := range map[string]func(*fairdraw.Proof){
		"honest": func(*fairdraw.Proof) {},
		"false":  func(p *fairdraw.Proof) { p.Winners[0].Name += "!" },
	} {
		r := verified(t, m.Text(t, change), optionsOf(m))
		if r.OK != (what == "honest") {
			t.Errorf("%s: %+v", what, r.Checks)
		}
		texts := append(append([]string{}, r.Shows...), r.Remains...)
		for _, c := range r.Checks {
			texts = append(texts, c.Words)
		}
		for _, text := range texts {
			if strings.ContainsFunc(text, func(r rune) bool { return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) }) {
				t.Errorf("%s: %q", what, text)
			}
		}
	}
}
