package fairdraw

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

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
	for _, c := range []struct{ name, from, to string }{
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
		text := bytes.Replace(d.bytes(t), []byte(c.from), []byte(c.to), 1)
		m.wrongText(t, CheckForm, c.name, nil, text)
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
