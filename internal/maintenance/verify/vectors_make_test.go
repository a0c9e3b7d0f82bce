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
	"triprize/internal/simulator/tsasim"
	"triprize/internal/testkit/drawn"
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
		file := "proofs/witness/" + strings.ReplaceAll(name, " ", "-") + ".json"
		hash := fairdraw.Hash(m.Chain.Hash())
		must(t, os.WriteFile(filepath.Join(vectors, file), m.Text(t, change), 0o600))
		*into = append(*into, vector{Name: name, File: file, ChainHash: &hash, Check: check})
	}
	none := func(*fairdraw.Proof) {}
	must(t, os.MkdirAll(filepath.Join(vectors, "proofs/witness"), 0o750))
	store(&all.Proofs, "rsa", "", of(rsa), none)
	store(&all.Proofs, "ecdsa with an intermediate", "", of(ecdsa), none)
	store(&all.Proofs, "two authorities", "", of(rsa, ecdsa), none)
	store(&all.Proofs, "one of two answered", "", of(rsa, ecdsa), func(p *fairdraw.Proof) { p.Witness = p.Witness[:1] })
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
	text, err := json.MarshalIndent(all, "", " ")
	must(t, err)
	must(t, os.WriteFile(filepath.Join(vectors, witnessVectors), append(text, '\n'), 0o600))
}
