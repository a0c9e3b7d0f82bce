package verify

import (
	"bytes"
	"fmt"
	"slices"
	"sync"
	"testing"

	"triprize.example/draw/beacon"
	"triprize.example/draw/fairdraw"
	"triprize.example/draw/testkit/drawn"
)

// flips are what a byte is combined with.
var flips = []byte{0x01, 0x20, 0x80}

// remembered verifies the round of one chain and signature once: most flips change neither.
func remembered() func(chain beacon.Chain, number uint64, signature []byte) error {
	var known sync.Map
	return func(chain beacon.Chain, number uint64, signature []byte) error {
		key := fmt.Sprintf("%x %d %x", chain.PublicKey, number, signature)
		if err, done := known.Load(key); done {
			err, _ := err.(error)
			return err
		}
		err := verifySignature(chain, number, signature)
		known.Store(key, err)
		return err
	}
}

// Every byte of a proof counts: whichever is flipped, a check fails and is named.
func TestEveryFlippedByteOfAProofMakesANamedCheckFail(t *testing.T) {
	t.Parallel()
	unsold := drawn.Triangle(2)
	unsold.Rules.Unsold = &fairdraw.Unsold{EndsAt: fairdraw.At(unsold.FrozenAt)}
	unsold.Sold = unsold.Sold[:2]
	for name, m := range map[string]*drawn.Draw{
		"operator": drawn.Triangle(3), "beacon": drawn.Triangle(2).WithBeacon(), "unsold": unsold,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text, o := m.Text(t), optionsOf(m)
			o.verify = remembered()
			if r := verified(t, text, o); !r.OK {
				t.Fatalf("%+v", r)
			}
			by := make(map[string]int) // how often each check was the first to fail
			flipped(t, text, func(i int, flip byte, changed []byte) {
				r := verified(t, changed, o)
				if failed := r.Failed(); r.OK || len(failed) == 0 {
					t.Errorf("byte %d (%q) with %#x: nothing failed", i, text[max(0, i-20):min(len(text), i+20)], flip)
				} else {
					by[failed[0]]++
				}
			})
			t.Logf("the first check to fail: %v", by)
		})
	}
}

func TestEveryFlippedByteOfAProofOfPurchaseMakesANamedCheckFail(t *testing.T) {
	t.Parallel()
	m := drawn.Triangle(3)
	document := m.Text(t)
	text, err := m.Purchase(t, 2).Canonical()
	must(t, err)
	if r := verified(t, document, Options{Purchase: bytes.NewReader(text)}); !r.OK {
		t.Fatalf("%+v", r)
	}
	of := []string{"purchase-form", "purchase-campaign", "inclusion"}
	flipped(t, text, func(i int, flip byte, changed []byte) {
		r := verified(t, document, Options{Purchase: bytes.NewReader(changed)})
		if failed := r.Failed(); r.OK || len(failed) == 0 || !slices.Contains(of, failed[0]) || len(r.Won) > 0 {
			t.Errorf("byte %d (%q) with %#x: failed %v", i, text[max(0, i-20):min(len(text), i+20)], flip, failed)
		}
	})
}

// flipped tries every flip of every byte of a text.
func flipped(t *testing.T, text []byte, try func(i int, flip byte, changed []byte)) {
	t.Helper()
	for i := range text {
		for _, flip := range flips {
			changed := bytes.Clone(text)
			changed[i] ^= flip
			try(i, flip, changed)
		}
	}
}

// The largest triangle, and 1,000 prizes: about 100 MB.
func BenchmarkTheLargestProof(b *testing.B) {
	m := drawn.Triangle(1000)
	m.Rules.Prizes = m.Rules.Prizes[:1000]
	m.WithBeacon()
	text := m.Text(b)
	b.SetBytes(int64(len(text)))
	b.ReportMetric(float64(len(m.Sold)), "positions")
	for b.Loop() {
		report, err := Proof(bytes.NewReader(text), Options{Chains: []fairdraw.Hash{m.Chain.Hash()}})
		if err != nil || !report.OK {
			b.Fatalf("%+v, %v", report, err)
		}
	}
}
