package verify

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"triprize/internal/domain/fairdraw"
	"triprize/internal/testkit/drawn"
	"triprize/internal/testkit/forge"
	"triprize/sandbox/tsasim"
)

var update = flag.Bool("update", false, "make the vectors with tokens anew, with new authorities")

const witnessVectors = "witness-vectors.json"

// makeWitnessVectors writes proofs with tokens of real authorities. They cannot be made
// anew byte for byte, since an authority signs the time; so they are made once, and stored.
func makeWitnessVectors(t *testing.T) {
	t.Helper()
	rsa := tsasim.Start(t, tsasim.Options{Accuracy: "secs:1, millisecs:500"})
	ecdsa := tsasim.Start(t, tsasim.Options{ECDSA: true, Intermediate: true, WithoutRoot: true, Digits: 3})
	vague := tsasim.Start(t, tsasim.Options{Accuracy: "secs:86400"})
	of := func(authorities ...*tsasim.Authority) *drawn.Draw {
		return drawn.Triangle(3).WithBeacon().WithWitness(authorities...)
	}
	late := of(rsa)
	late.FrozenAt, late.Chain.GenesisTime = late.FrozenAt.Add(-24*time.Hour), late.Chain.GenesisTime-24*drawn.Hour
	late.Rules.Beacon.ChainHash = late.Chain.Hash()
	stranger := of(ecdsa)
	stranger.Rules.Witness = []fairdraw.Hash{rsa.Root}
	other := of(rsa)
	other.Secret[0]++
	foreign := other.Proof(t).Witness
	var all vectorList
	store := func(into *[]vector, name string, check string, m *drawn.Draw, change func(*fairdraw.Proof)) {
		*into = append(*into, storeWitness(t, name, check, m, change))
	}
	none := func(*fairdraw.Proof) {}
	must(t, os.RemoveAll(filepath.Join(vectors, "proofs/witness")))
	must(t, os.MkdirAll(filepath.Join(vectors, "proofs/witness"), 0o750))
	store(&all.Proofs, "rsa", "", of(rsa), none)
	store(&all.Proofs, "ecdsa with an intermediate", "", of(ecdsa), none)
	store(&all.Proofs, "two authorities", "", of(rsa, ecdsa), none)
	store(&all.Proofs, "one of two answered", "", of(rsa, ecdsa), func(p *fairdraw.Proof) { p.Witness = p.Witness[:1] })
	store(&all.Proofs, "none of two answered", "", of(rsa, ecdsa), func(p *fairdraw.Proof) { p.Witness = nil })
	all.Proofs = headlined(all.Proofs)
	wrong := func(name string, m *drawn.Draw, change func(*fairdraw.Proof)) {
		store(&all.WrongProofs, "wrong "+name, fairdraw.CheckWitness, m, change)
	}
	wrong("after the round was due", late, none)
	wrong("perhaps after it", of(vague), none)
	wrong("not an authority of the rules", stranger, none)
	wrong("out of order", of(rsa, ecdsa), func(p *fairdraw.Proof) { slices.Reverse(p.Witness) })
	wrong("the same twice", of(rsa), func(p *fairdraw.Proof) { p.Witness = append(p.Witness, p.Witness[0]) })
	wrong("about another record", of(rsa), func(p *fairdraw.Proof) { p.Witness = foreign })
	wrong("a byte of the signature", of(rsa), func(p *fairdraw.Proof) {
		p.Witness[0] = bytes.Clone(p.Witness[0])
		p.Witness[0][len(p.Witness[0])-1] ^= 1
	})
	for _, c := range forge.Cases([32]byte{}, forgedDue()) {
		m := forgedDraw(c.Roots())
		stamp := func(p *fairdraw.Proof) {
			c.Token.Digest = p.FreezeHash
			p.Witness = [][]byte{c.Token.DER()}
		}
		if c.Right {
			store(&all.Proofs, c.Name, "", m, stamp)
		} else {
			store(&all.WrongProofs, c.Name, fairdraw.CheckWitness, m, stamp)
		}
	}
	text, err := json.MarshalIndent(all, "", " ")
	must(t, err)
	must(t, os.WriteFile(filepath.Join(vectors, witnessVectors), append(text, '\n'), 0o600))
}

// storeWitness writes a document with tokens, and returns its vector.
func storeWitness(t *testing.T, name, check string, m *drawn.Draw, change func(*fairdraw.Proof)) vector {
	t.Helper()
	file := "proofs/witness/" + strings.NewReplacer(" ", "-", ",", "", "'", "").Replace(name) + ".json"
	hash := fairdraw.Hash(m.Chain.Hash())
	must(t, os.WriteFile(filepath.Join(vectors, file), m.Text(t, change), 0o600))
	v := vector{Name: name, File: file, ChainHash: &hash, Check: check}
	if check == "" {
		v.Authorities, v.Headline = m.Rules.Witness, "verified, witnessed by 1 of 1"
	}
	return v
}

// headlined says what the documents of real authorities show, to users that name some of them.
func headlined(proofs []vector) []vector {
	const stamped = "verified, stamped only by "
	proofs[2].Headline, proofs[3].Headline, proofs[4].Headline = "verified, witnessed by 2 of 2", "verified, witnessed by 1 of 2", "verified, unwitnessed"
	more := func(i int, name, headline string, authorities ...fairdraw.Hash) {
		v := proofs[i]
		v.Name, v.Headline, v.Authorities = v.Name+", "+name, headline, authorities
		proofs = append(proofs, v)
	}
	more(0, "nobody named", stamped+"an authority that the operator named")
	more(0, "another named", stamped+"an authority that the operator named", proofs[1].Authorities...)
	more(2, "nobody named", stamped+"authorities that the operator named")
	more(2, "one named", "verified, witnessed by 1 of 2", proofs[0].Authorities...)
	more(4, "nobody named", "verified, unwitnessed")
	return proofs
}

// forgedDue is when the round of forgedDraw is due.
func forgedDue() time.Time {
	m := forgedDraw(nil)
	return m.Chain.DueAt(m.Chain.RoundAt(m.FrozenAt) + m.Ahead)
}

// forgedDraw is a small draw of one time whose rules name some authorities.
func forgedDraw(authorities [][32]byte) *drawn.Draw {
	m := drawn.Triangle(1)
	m.FrozenAt = time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	m.WithBeacon()
	for _, a := range authorities {
		m.Rules.Witness = append(m.Rules.Witness, a)
	}
	return m
}
