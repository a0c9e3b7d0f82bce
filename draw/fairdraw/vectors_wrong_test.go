package fairdraw

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
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

// spelling writes a part of a document in another way, or adds to its end.
type spelling struct{ name, from, to string }

func (s spelling) of(t testing.TB, text string) []byte {
	t.Helper()
	changed := text + s.to
	if s.from != "" {
		changed = strings.Replace(text, s.from, s.to, 1)
	}
	if changed == text {
		t.Fatalf("%s: nothing changed", s.name)
	}
	return []byte(changed)
}

// wrongForms are spelled in another way; all else is right.
func (m *made) wrongForms(t testing.TB) {
	t.Helper()
	d := operatorDraw(t)
	text := string(d.bytes(t))
	for _, c := range []spelling{
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
		m.wrongText(t, CheckForm, c.name, nil, c.of(t, text))
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

// Both sides of each bound: of numbers, lengths, times, depth and lists.

const above = "9007199254740992" // maxInteger + 1

// rightBounds are at their bound.
func (m *made) rightBounds(t testing.TB) {
	t.Helper()
	all := positionsOf(Triangle(3))
	far := testChain
	far.GenesisTime = maxInteger
	d := open("far", NewRules(seedID("far", 0), Triangle(3), prizes(1, 2), bound(far.Chain)), all).rounds(far, RoundsAhead).all(t)
	hash := Hash(far.Hash())
	m.Proofs = append(m.Proofs, proofVector{Name: "a genesis at the largest integer", File: m.file(t, "a genesis at the largest integer", d.bytes(t)), ChainHash: &hash, Purchases: []string{}})
	for name, at := range map[string]time.Time{
		"the first microsecond": time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC), "the last microsecond": time.Date(9999, 12, 31, 23, 59, 59, 999999000, time.UTC),
		"a leap day": time.Date(2028, 2, 29, 0, 0, 0, 0, time.UTC),
	} {
		d := operatorDraw(t)
		d.FrozenAt = At(at)
		m.proof(t, name, d.freeze(t))
	}
	slices.SortFunc(m.Proofs[len(m.Proofs)-3:], func(a, b proofVector) int { return strings.Compare(a.Name, b.Name) })
}

// wrongBounds are beyond their bound.
func (m *made) wrongBounds(t testing.TB) {
	t.Helper()
	d, b := operatorDraw(t), beaconDraw(t)
	seed, key, id := b.Beacon.GenesisSeed, b.Beacon.PublicKey, b.Beacon.BeaconID
	moved := func(name string, seed, key Bytes, id string) {
		text := b.bytes(t)
		for _, c := range [][2]string{{`"genesis_seed":"` + fmt.Sprintf("%x", b.Beacon.GenesisSeed[:]), `"genesis_seed":"` + fmt.Sprintf("%x", seed[:])},
			{fmt.Sprintf("%x", b.Beacon.PublicKey[:]), fmt.Sprintf("%x", key[:])}, {`"beacon_id":"` + b.Beacon.BeaconID, `"beacon_id":"` + id}} {
			text = bytes.Replace(text, []byte(c[0]), []byte(c[1]), 1)
		}
		m.wrongText(t, CheckForm, name, chainHash(b), text)
	}
	moved("a byte moved from the name into the seed", append(slices.Clone(seed), id[0]), key, id[1:])
	moved("a byte moved from the key into the seed", append(Bytes{key[95]}, seed...), key[:95], id)
	moved("a byte moved from the seed into the key", seed[1:], append(slices.Clone(key), seed[0]), id)
	for _, c := range []spelling{
		{"a count above the largest integer", `"count":6`, `"count":` + above},
		{"a count two above the largest integer", `"count":6`, `"count":9007199254740993`},
		{"a column above the largest integer", `[{"column":1`, `[{"column":` + above},
		{"a column two above the largest integer", `[{"column":1`, `[{"column":9007199254740993`},
		{"an integer above the largest in the rules", `"positions":3`, `"positions":` + above},
		{"an integer two above the largest in the rules", `"positions":3`, `"positions":9007199254740993`},
		{"a negative number in the rules", `"positions":3`, `"positions":-3`},
		{"a fraction in the rules", `"positions":3`, `"positions":1.5`},
		{"an exponent in the rules", `"positions":3`, `"positions":1e+21`},
		{"seventeen deep", `"},"secret"`, `","z":` + nested(15) + `},"secret"`},
		{"ten thousand deep", `"},"secret"`, `","z":` + nested(10_000) + `},"secret"`},
		{"hour 24", "2026-03-01T12:30:00", "2026-03-01T24:00:00"},
		{"minute 60", "2026-03-01T12:30:00", "2026-03-01T12:60:00"},
		{"second 60", "2026-03-01T12:30:00", "2026-03-01T23:59:60"},
		{"31 February", "2026-03-01T12:30:00", "2026-02-31T12:30:00"},
		{"29 February of another year", "2026-03-01T12:30:00", "2026-02-29T12:30:00"},
		{"the year 0000", "2026-03-01T12:30:00", "0000-03-01T12:30:00"},
		{"a year of five digits", "2026-03-01T12:30:00", "12026-03-01T12:30:00"},
	} {
		m.wrongText(t, CheckForm, c.name, nil, c.of(t, string(d.bytes(t))))
	}
	m.wrongRules(t)
	d.Count = maxInteger
	m.wrong(t, CheckCount, "the largest integer", d.freeze(t))
	for name, period := range map[string]int{"a period of 0": 0, "a period of 2^32": 1 << 32} {
		b := beaconDraw(t)
		b.Beacon.PeriodS = period
		m.wrong(t, CheckChain, name, b)
	}
	slices.SortFunc(m.WrongProofs[len(m.WrongProofs)-2:], func(a, b wrongProofVector) int { return strings.Compare(a.Name, b.Name) })
}

// nested returns lists in each other.
func nested(depth int) string { return strings.Repeat("[", depth) + strings.Repeat("]", depth) }

// wrongRules are canonical objects, and no rules.
func (m *made) wrongRules(t testing.TB) {
	t.Helper()
	for _, c := range []struct{ name, from, to string }{
		{"sixteen deep", `}`, `,"z":` + nested(14) + `}`},
		{"positions of the largest integer", `"positions":3`, `"positions":9007199254740991`},
		{"an end of the sale at hour 24", `"version"`, `"unsold":{"ends_at":"2026-03-01T24:00:00.000000Z"},"version"`},
		{"an end of the sale at second 60", `"version"`, `"unsold":{"ends_at":"2026-03-01T23:59:60.000000Z"},"version"`},
	} {
		d := operatorDraw(t)
		at := bytes.LastIndex(d.Rules, []byte(c.from))
		d.Rules = slices.Concat(d.Rules[:at], []byte(c.to), d.Rules[at+len(c.from):])
		d.Commitment = Commitment(d.CampaignID, d.Rules, d.Secret[:])
		m.wrong(t, CheckRules, c.name, d.freeze(t))
	}
	for _, period := range []int{0, 1 << 32} {
		d := beaconDraw(t)
		d.law.Beacon.PeriodS = period
		m.wrong(t, CheckRules, fmt.Sprintf("a period of %d", period), d.all(t))
	}
}
