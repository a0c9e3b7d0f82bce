package verify

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/uuid"

	"triprize.example/draw/fairdraw"
	"triprize.example/draw/testkit/drawn"
)

func TestABuyerSeesThatItTookPartAndWhatItWon(t *testing.T) {
	t.Parallel()
	m := drawn.Triangle(4)
	document := m.Text(t)
	prizes := 0
	for i := 0; i < len(m.Sold); i += 2 { // each purchase has two positions
		text, err := m.Purchase(t, i).Canonical()
		must(t, err)
		r := verified(t, document, Options{Purchase: bytes.NewReader(text)})
		if !r.OK {
			t.Errorf("%+v", r)
		}
		for _, w := range r.Won {
			if *w.PurchaseID != m.Sold[i].PurchaseID {
				t.Errorf("purchase %s is told of %+v", m.Sold[i].PurchaseID, w)
			}
		}
		prizes += len(r.Won)
	}
	if prizes != len(m.Rules.Prizes) {
		t.Errorf("all purchases together have won %d of %d prizes", prizes, len(m.Rules.Prizes))
	}
}

func TestAProofOfPurchaseThatIsNotOfThisListFailsByName(t *testing.T) {
	t.Parallel()
	m := drawn.Triangle(3)
	document := m.Text(t)
	for name, c := range map[string]struct {
		change func(*fairdraw.PurchaseProof)
		failed string
		words  string
	}{
		"another list":             {func(p *fairdraw.PurchaseProof) { p.Root[0]++ }, "purchase-campaign inclusion", "leads to the root"},
		"the second position only": {func(p *fairdraw.PurchaseProof) { p.Leaves[0], p.Leaves[1] = p.Leaves[1], p.Leaves[0] }, "inclusion", "stands behind"},
		"an index beyond the list": {func(p *fairdraw.PurchaseProof) { p.Leaves[1].Index = 6 }, "inclusion", "no leaf 6"},
	} {
		p := m.Purchase(t, 2)
		c.change(&p)
		text, err := p.Canonical()
		must(t, err)
		r := verified(t, document, Options{Purchase: bytes.NewReader(text)})
		last := r.Checks[len(r.Checks)-1]
		if got := strings.Join(r.Failed(), " "); r.OK || got != c.failed || len(r.Won) > 0 {
			t.Errorf("%s: %q failed, want %q", name, got, c.failed)
		}
		if last.Status == Failed && !strings.Contains(last.Words, c.words) {
			t.Errorf("%s: %s", name, last.Words)
		}
	}
}

// A path can be right while the published list has another line: the operator shows each
// buyer a tree of its own.
func TestAPathIntoAnotherListIsFoundOut(t *testing.T) {
	t.Parallel()
	m := drawn.Triangle(3)
	text, err := m.Purchase(t, 2).Canonical()
	must(t, err)
	list := drawn.Lines(m.Sold)
	list[2].Holder[0]++
	r := verified(t, drawn.TextOf(t, m.Proof(t), list), Options{Purchase: bytes.NewReader(text)})
	if at := checkOf(r, "inclusion"); at.Status != Failed || !strings.Contains(at.Words, "line 2 of the list") {
		t.Errorf("%+v", at)
	}
}

func TestTwoDocumentsOfOneCampaignMustBeTheSame(t *testing.T) {
	t.Parallel()
	m := drawn.Triangle(3)
	document := m.Text(t)
	second := drawn.Triangle(3) // other nonces: another draw
	second.Sold[0].Nonce[0]++
	stranger := drawn.Triangle(3)
	stranger.ID = uuid.New()
	stranger.Rules.CampaignID = stranger.ID
	for name, c := range map[string]struct {
		other []byte
		words string
		ok    bool
	}{
		"the same":              {document, "byte for byte", true},
		"two that both hold":    {second.Text(t), "at most one of them is the campaign's", false},
		"one that does not":     {m.Text(t, func(p *fairdraw.Proof) { p.Trust = "me" }), "differs in trust, and does not hold by itself (trust)", false},
		"of another campaign":   {stranger.Text(t), "says nothing about this one", false},
		"no document":           {[]byte("{}"), "is no proof document", false},
		"the same, and a blank": {append(bytes.Clone(document), ' '), "is no proof document", false},
	} {
		r := verified(t, document, Options{Against: bytes.NewReader(c.other)})
		if at := checkOf(r, "against"); r.OK != c.ok || (at.Status == OK) != c.ok || !strings.Contains(at.Words, c.words) {
			t.Errorf("%s: %+v", name, at)
		}
	}
}
