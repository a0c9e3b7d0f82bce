package fairdraw

import (
	"bytes"
	"crypto/sha256"
	"slices"
	"testing"
	"time"

	"triprize.example/draw/beacon"
)

// The draws that vectors are made of.

func operatorDraw(t testing.TB) *document {
	t.Helper()
	return open("operator", NewRules(seedID("operator", 0), Triangle(3), prizes(1, 2, 3), nil), positionsOf(Triangle(3))).all(t)
}

func beaconDraw(t testing.TB) *document {
	t.Helper()
	law := NewRules(seedID("beacon", 0), Triangle(4), prizes(1, 3, 3, 4), bound(testChain.Chain))
	return open("beacon", law, positionsOf(Triangle(4))).rounds(testChain, RoundsAhead).all(t)
}

// quicknetDraw is a draw with a round that drand has published.
func quicknetDraw(t testing.TB) *document {
	t.Helper()
	chain := beacon.Quicknet()
	d := open("quicknet", NewRules(seedID("quicknet", 0), Triangle(3), prizes(2, 3, 3), bound(chain)), positionsOf(Triangle(3)))
	d.FrozenAt = At(chain.DueAt(publishedRound - RoundsAhead - 2).Add(2_999_999 * time.Microsecond))
	d.beacon(chain, publishedRound, published)
	return d.all(t)
}

func unsold(name string, sold []Position) *document {
	law := NewRules(seedID(name, 0), Triangle(3), prizes(1, 2, 2, 3), nil)
	d := open(name, law, sold)
	d.law.Unsold = &Unsold{EndsAt: d.FrozenAt} // the very microsecond
	return d
}

// before freezes the campaign one microsecond before its end.
func (d *document) before() *document {
	d.FrozenAt = At(d.FrozenAt.Add(-time.Microsecond))
	return d
}

// unsoldDraw has a prize of an empty layer, and two of a layer with one position sold.
func unsoldDraw(t testing.TB) *document {
	t.Helper()
	return unsold("unsold", []Position{{Layer: 2, Column: 2}, {Layer: 3, Column: 1}, {Layer: 3, Column: 3}}).all(t)
}

func otherShape(t testing.TB) *document {
	t.Helper()
	law := NewRules(seedID("no triangle", 0), []Layer{{Layer: 2, Positions: 5}, {Layer: 7, Positions: 1}, {Layer: 9, Positions: 12}}, prizes(2, 2, 9), nil)
	return open("no triangle", law, positionsOf(law.Layers)).all(t)
}

// positionsOf returns every position of layers, in order.
func positionsOf(layers []Layer) (all []Position) {
	for _, l := range layers {
		for column := range l.Positions {
			all = append(all, Position{Layer: l.Layer, Column: column + 1})
		}
	}
	return all
}

// layersOf returns layers with these numbers of positions, from layer 1 on.
func layersOf(positions ...int) []Layer {
	layers := make([]Layer, len(positions))
	for i, n := range positions {
		layers[i] = Layer{Layer: i + 1, Positions: n}
	}
	return layers
}

// shapedDraw is a draw of everything in layers, without beacon.
func shapedDraw(t testing.TB, name string, layers []Layer, prized ...int) *document {
	t.Helper()
	return open(name, NewRules(seedID(name, 0), layers, prizes(prized...), nil), positionsOf(layers)).all(t)
}

// hallDraw has ten rows of twelve seats, and rows without a prize.
func hallDraw(t testing.TB) *document {
	t.Helper()
	return shapedDraw(t, "hall", layersOf(slices.Repeat([]int{12}, 10)...), 1, 1, 4, 10, 10, 10)
}

// raffleDraw has one layer, of three subtrees, and many prizes in it.
func raffleDraw(t testing.TB) *document {
	t.Helper()
	return shapedDraw(t, "raffle", layersOf(2500), slices.Repeat([]int{1}, 40)...)
}

func (m *made) rounds() {
	add := func(c beacon.Chain, round uint64, signature []byte, valid bool) {
		m.Rounds = append(m.Rounds, roundVector{ChainHash: c.Hash(), PublicKey: c.PublicKey, Round: round, Signature: signature,
			Valid: valid, Randomness: sha256.Sum256(signature)})
	}
	quicknet := beacon.Quicknet()
	early := unhexed("b75c69d0b72a5d906e854e808ba7e2accb1542ac355ae486d591aa9d43765482e26cd02df835d3546d23c4b13e0dfc92")
	add(quicknet, publishedRound, published, true)
	add(quicknet, publishedRound+1, published, false)
	add(quicknet, 123, early, true)
	add(quicknet, 124, early, false)
	add(testChain.Chain, 1, testChain.sign(1), true)
	add(testChain.Chain, 1, otherChain.sign(1), false)
	add(testChain.Chain, 1, infinity, false)
}

// infinity is the neutral point of G1, compressed: it fits every key whose bearer is careless.
var infinity = append([]byte{0xc0}, make([]byte, beacon.SignatureSize-1)...)

// wrongForms are spelled in another way; all else is right.
func (m *made) wrongForms(t testing.TB) {
	t.Helper()
	d := operatorDraw(t)
	text := string(d.bytes(t))
	for _, c := range []struct{ name, from, to string }{
		{"newline at the end", "", "\n"},
		{"space", `{"beacon":null`, `{"beacon": null`},
		{"upper case hash", d.Root.String(), upper(d.Root.String())},
		{"member more", `"trust":"operator"`, `"trust":"operator","u":0`},
		{"member more behind the rules", `,"secret":`, `,"rulez":{},"secret":`},
		{"member twice", `"round":null`, `"round":null,"round":null`},
		{"member less", `"round":null,`, ``},
		{"order of members", `"beacon":null,"campaign_id":"` + d.CampaignID.String() + `"`, `"campaign_id":"` + d.CampaignID.String() + `","beacon":null`},
		{"another version", `"version":"triprize-draw/1","winners"`, `"version":"triprize-draw/2","winners"`},
		{"time without fraction", `00.123456Z`, `00Z`},
		{"a fraction", `"count":6`, `"count":6.0`},
		{"a number as text", `"count":6`, `"count":"6"`},
		{"an escape too many", `\"night\"`, `\u0022night\"`},
		{"not UTF-8", "東", "\xff"},
		{"lone surrogate", "東", `\ud800`},
		{"hash too short", d.Root.String(), d.Root.String()[2:]},
		{"loose text behind", "", "{}"},
		{"nothing", text, ""},
		{"no object", text, "[]"},
	} {
		changed := text + c.to
		if c.from != "" {
			changed = string(bytes.Replace([]byte(text), []byte(c.from), []byte(c.to), 1))
		}
		if changed == text {
			t.Fatalf("%s: nothing changed", c.name)
		}
		m.wrongText(t, CheckForm, c.name, nil, []byte(changed))
	}
}

// lie is one wrong thing in a draw; what hides it is made again.
type lie struct {
	check, name string
	of          func(testing.TB) *document
	tell        func(d *document) *document
}

func (m *made) lies(t testing.TB, lies []lie) {
	t.Helper()
	for _, l := range lies {
		m.wrong(t, l.check, l.name, l.tell(l.of(t)))
	}
}

// wrongSales lie about rules and list, and are consistent in all else.
func (m *made) wrongSales(t testing.TB) {
	t.Helper()
	m.lies(t, []lie{
		{CheckRules, "of another campaign", operatorDraw, func(d *document) *document { d.law.CampaignID = seedID("another", 0); return d.all(t) }},
		{CheckRules, "prizes out of order", operatorDraw, func(d *document) *document { d.law.Prizes = prizes(1, 3, 2); return d.all(t) }},
		{CheckRules, "more prizes than positions", operatorDraw, func(d *document) *document { d.law.Prizes = prizes(1, 1, 3); return d.all(t) }},
		{CheckRules, "prize of no layer", operatorDraw, func(d *document) *document { d.law.Prizes = prizes(1, 2, 4); return d.all(t) }},
		{CheckRules, "no triangle", operatorDraw, func(d *document) *document { d.law.Layers[2].Positions = 4; return d.all(t) }},
		{CheckCommitment, "another secret", operatorDraw, func(d *document) *document { d.Secret = seed("another", 0); return d.grow().freeze(t).draw() }},
		{CheckCommitment, "another prize", operatorDraw, func(d *document) *document {
			d.law.Prizes[0].Name, d.Rules = "gold bar", bytes.Replace(d.Rules, []byte("coffee cup"), []byte("gold bar"), 1)
			return d.draw()
		}},
		{CheckSoldList, "not in order", operatorDraw, func(d *document) *document { d.lines[1], d.lines[3] = d.lines[3], d.lines[1]; return d.all(t) }},
		{CheckSoldList, "a position twice", operatorDraw, func(d *document) *document { d.lines[5].Column = 2; return d.all(t) }},
		{CheckSoldList, "a position of no column", operatorDraw, func(d *document) *document { d.lines[5].Column = 4; return d.all(t) }},
		{CheckSoldList, "a position of no layer", operatorDraw, func(d *document) *document { d.lines[5].Layer = 4; return d.all(t) }},
		{CheckCount, "not that of the list", operatorDraw, func(d *document) *document { d.Count = 5; return d.all(t) }},
		{CheckCount, "a position less", operatorDraw, func(d *document) *document { d.lines, d.Count = d.lines[:5], 5; return d.all(t) }},
		{CheckRoot, "another buyer", operatorDraw, func(d *document) *document { d.lines[2].Holder = seed("another", 0); return d.draw() }},
		{CheckRoot, "another root", operatorDraw, func(d *document) *document { d.Root[0] ^= 1; return d.freeze(t).draw() }},
		{CheckFreezeHash, "another time", operatorDraw, func(d *document) *document { return d.before() }},
		{CheckFreezeHash, "of another record", operatorDraw, func(d *document) *document { d.FreezeHash = seed("another", 0); return d }},
		{CheckFreezeTime, "before the end", unsoldDraw, func(d *document) *document { return d.before().freeze(t) }},
	})
}

// wrongDraws lie about the outcome.
func (m *made) wrongDraws(t testing.TB) {
	t.Helper()
	m.lies(t, []lie{
		{CheckWinners, "another column", operatorDraw, func(d *document) *document { d.Winners[2].Column = new(1 + *d.Winners[2].Column%3); return d }},
		{CheckWinners, "a prize less", operatorDraw, func(d *document) *document { d.Winners = d.Winners[:2]; return d }},
		{CheckWinners, "another name", operatorDraw, func(d *document) *document { d.Winners[0].Name = "gold bar"; return d }},
		{CheckWinners, "not awarded", operatorDraw, func(d *document) *document {
			d.Winners[1] = ProofWinner{Prize: 2, Name: d.Winners[1].Name, Layer: 2, Awarded: new(bool)}
			return d
		}},
		{CheckWinners, "another order", operatorDraw, func(d *document) *document { d.Winners[0], d.Winners[1] = d.Winners[1], d.Winners[0]; return d }},
		{CheckWinners, "a prize of an empty layer", unsoldDraw, func(d *document) *document {
			d.Winners[0] = ProofWinner{Prize: 1, Name: d.Winners[0].Name, Layer: 1, Column: d.Winners[3].Column, PurchaseID: d.Winners[3].PurchaseID}
			return d
		}},
		{CheckTrust, "more than there is", operatorDraw, func(d *document) *document { d.Trust = TrustBeacon; return d }},
		{CheckTrust, "less than there is", beaconDraw, func(d *document) *document { d.Trust = TrustOperator; return d }},
	})
}
