package fairdraw

import (
	"bytes"
	"encoding/hex"
	"strings"
	"testing"
)

func unhexed(text string) []byte {
	b, err := hex.DecodeString(text)
	if err != nil {
		panic(err)
	}
	return b
}

func upper(text string) string { return strings.ToUpper(text) }

// wrongBeacons lie about the beacon, and are consistent in all else.
func (m *made) wrongBeacons(t testing.TB) {
	t.Helper()
	m.lies(t, []lie{
		{CheckChain, "no beacon although the rules have one", beaconDraw, func(d *document) *document { d.Beacon = nil; return d.draw() }},
		{CheckChain, "of a liar", beaconDraw, func(d *document) *document { return d.rounds(otherChain, RoundsAhead).freeze(t).draw() }},
		{CheckChain, "another seed", beaconDraw, func(d *document) *document {
			d.Beacon.GenesisSeed = append(Bytes{^d.Beacon.GenesisSeed[0]}, d.Beacon.GenesisSeed[1:]...)
			return d
		}},
		{CheckChain, "another period in the rules", beaconDraw, func(d *document) *document {
			d.law.Beacon.PeriodS = 30
			return d.all(t)
		}},
		{CheckRound, "too early", beaconDraw, func(d *document) *document { return d.rounds(testChain, RoundsAhead-1).freeze(t).draw() }},
		{CheckRound, "too late", beaconDraw, func(d *document) *document { return d.rounds(testChain, MostRoundsAhead+1).freeze(t).draw() }},
		{CheckRound, "not that of the freeze record", beaconDraw, func(d *document) *document {
			frozen := *d.Round
			d.rounds(testChain, RoundsAhead+1).draw().Round = &frozen
			return d
		}},
		{CheckSignature, "of the next round", beaconDraw, func(d *document) *document {
			d.beacon(testChain.Chain, *d.Round, testChain.sign(*d.Round+1))
			return d.draw()
		}},
		{CheckSignature, "of a liar", beaconDraw, func(d *document) *document {
			d.beacon(testChain.Chain, *d.Round, otherChain.sign(*d.Round))
			return d.draw()
		}},
		{CheckSignature, "point at infinity", beaconDraw, func(d *document) *document { d.beacon(testChain.Chain, *d.Round, infinity); return d.draw() }},
		{CheckSignature, "no point", beaconDraw, func(d *document) *document {
			d.beacon(testChain.Chain, *d.Round, bytes.Repeat([]byte{0x9f}, 48))
			return d.draw()
		}},
		{CheckSignature, "a byte less", beaconDraw, func(d *document) *document {
			d.beacon(testChain.Chain, *d.Round, testChain.sign(*d.Round)[:47])
			return d.draw()
		}},
		{CheckRandomness, "chosen", beaconDraw, func(d *document) *document { d.Beacon.Randomness = seed("chosen", 0); return d.draw() }},
		{CheckFreezeHash, "round chosen later", beaconDraw, func(d *document) *document { return d.rounds(testChain, RoundsAhead+1).draw() }},
	})
	m.wrongText(t, CheckChain, "that nobody named", nil, beaconDraw(t).bytes(t))
	added := operatorDraw(t)
	added.beacon(testChain.Chain, testChain.RoundAt(added.FrozenAt.Time)+RoundsAhead, testChain.sign(testChain.RoundAt(added.FrozenAt.Time)+RoundsAhead))
	added.Trust = TrustOperator
	m.wrong(t, CheckChain, "that the rules do not have", added.freeze(t).draw())
}

// wrongPurchases are proofs of purchase that do not show what they must.
func (m *made) wrongPurchases(t testing.TB) {
	t.Helper()
	proof := m.Proofs[0].File
	for _, c := range []struct {
		check, name string
		lie         func(p *PurchaseProof)
	}{
		{CheckPurchaseCampaign, "of another campaign", func(p *PurchaseProof) { p.CampaignID = seedID("another", 0) }},
		{CheckPurchaseCampaign, "another root", func(p *PurchaseProof) { p.Root[3] ^= 1 }},
		{CheckPurchaseCampaign, "another count", func(p *PurchaseProof) { p.Count++ }},
		{CheckInclusionPath, "another nonce", func(p *PurchaseProof) { p.Leaves[0].Nonce[0] ^= 1 }},
		{CheckInclusionPath, "another user", func(p *PurchaseProof) { p.Leaves[0].UserID = "somebody else" }},
		{CheckInclusionPath, "another position", func(p *PurchaseProof) { p.Leaves[0].Column++ }},
		{CheckInclusionPath, "another purchase", func(p *PurchaseProof) { p.Leaves[1].PurchaseID[0] ^= 1 }},
		{CheckInclusionPath, "another index", func(p *PurchaseProof) { p.Leaves[1].Index++ }},
		{CheckInclusionPath, "another path", func(p *PurchaseProof) { p.Leaves[1].Path[0][0] ^= 1 }},
		{CheckInclusionPath, "a shorter path", func(p *PurchaseProof) { p.Leaves[0].Path = p.Leaves[0].Path[1:] }},
		{CheckInclusionPath, "a leaf twice", func(p *PurchaseProof) { p.Leaves[1] = p.Leaves[0] }},
	} {
		p := operatorDraw(t).purchase(t, 0)
		c.lie(p)
		text, err := p.Canonical()
		if err != nil {
			t.Fatal(err)
		}
		m.wrongPurchase(t, c.check, c.name, proof, text)
	}
	text, err := operatorDraw(t).purchase(t, 0).Canonical()
	if err != nil {
		t.Fatal(err)
	}
	m.wrongPurchase(t, CheckPurchaseForm, "newline at the end", proof, append(bytes.Clone(text), '\n'))
	m.wrongPurchase(t, CheckPurchaseForm, "no leaves", proof, append(text[:bytes.Index(text, []byte(`"leaves":[`))+10], text[bytes.LastIndexByte(text, ']'):]...))
	m.wrongPurchase(t, CheckPurchaseForm, "a count above the largest integer", proof, bytes.Replace(text, []byte(`"count":6`), []byte(`"count":`+above), 1))
	m.wrongPurchase(t, CheckPurchaseForm, "a column two above the largest integer", proof, bytes.Replace(text, []byte(`"column":1`), []byte(`"column":9007199254740993`), 1))
	m.against(t)
}

func (m *made) wrongPurchase(t testing.TB, check, name, proof string, text []byte) {
	t.Helper()
	file := m.file(t, "wrong "+check+" "+name, text)
	m.WrongPurchases = append(m.WrongPurchases, wrongPurchaseVector{Name: name, File: file, Proof: proof, Check: check})
}

// against has a second document for one campaign: each verifies, and both cannot be honest.
func (m *made) against(t testing.TB) {
	t.Helper()
	first := m.Proofs[0].File
	second := operatorDraw(t)
	second.lines[5].Holder = seed("another buyer", 0)
	second.grow().freeze(t).draw()
	m.proof(t, "operator second", second)
	m.Against = []againstVector{
		{Name: "the same", Files: []string{first, first}, Differ: false},
		{Name: "two records", Files: []string{first, m.Proofs[len(m.Proofs)-1].File}, Differ: true},
	}
}
