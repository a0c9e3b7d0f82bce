package verify

import (
	"bytes"
	"encoding/asn1"
	"encoding/base64"
	"fmt"
	"slices"
	"sync"
	"testing"

	"triprize/internal/domain/beacon"
	"triprize/internal/domain/fairdraw"
	"triprize/internal/testkit/drawn"
	"triprize/internal/testkit/property"
	"triprize/sandbox/tsasim"
)

// flips are what a byte is combined with.
var flips = []byte{0x01, 0x20, 0x80}

// remembered verifies the round of one chain and signature once: most flips change neither.
func remembered() verifyRound {
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

// Every byte of a proof counts: whichever is flipped, a check fails and is named. In a
// token that is true of what its signature covers.
func TestEveryFlippedByteOfAProofMakesANamedCheckFail(t *testing.T) {
	t.Parallel()
	authority := tsasim.Start(t, tsasim.Options{ECDSA: true, Accuracy: "secs:1"})
	unsold := drawn.Triangle(2)
	unsold.Rules.Unsold = &fairdraw.Unsold{EndsAt: fairdraw.At(unsold.FrozenAt)}
	unsold.Sold = unsold.Sold[:2]
	for name, m := range map[string]*drawn.Draw{
		"operator": drawn.Triangle(3), "beacon": drawn.Triangle(2).WithBeacon(), "witness": drawn.Triangle(2).WithBeacon().WithWitness(authority), "unsold": unsold,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text, o := m.Text(t), optionsOf(m)
			o.verify = remembered()
			if r := verified(t, text, o); !r.OK {
				t.Fatalf("%+v", r)
			}
			free := uncovered(t, text)
			by := make(map[string]int) // how often each check was the first to fail
			sampled(t, text, func(i int, flip byte, changed []byte) {
				r := verified(t, changed, o)
				switch failed := r.Failed(); {
				case r.OK && free(changed):
				case r.OK || len(failed) == 0:
					t.Errorf("byte %d (%q) with %#x: nothing failed", i, text[max(0, i-20):min(len(text), i+20)], flip)
				default:
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
	of := []string{fairdraw.CheckPurchaseForm, fairdraw.CheckPurchaseCampaign, fairdraw.CheckInclusionPath}
	sampled(t, text, func(i int, flip byte, changed []byte) {
		r := verified(t, document, Options{Purchase: bytes.NewReader(changed)})
		if failed := r.Failed(); r.OK || len(failed) == 0 || !slices.Contains(of, failed[0]) || len(r.Won) > 0 {
			t.Errorf("byte %d (%q) with %#x: failed %v", i, text[max(0, i-20):min(len(text), i+20)], flip, failed)
		}
	})
}

// sampled tries flips of bytes of a text: as many as there are cases.
func sampled(t *testing.T, text []byte, try func(i int, flip byte, changed []byte)) {
	t.Helper()
	for _, n := range property.Sample(t, len(text)*len(flips)) {
		i, flip := n/len(flips), flips[n%len(flips)]
		changed := bytes.Clone(text)
		changed[i] ^= flip
		try(i, flip, changed)
	}
}

// uncovered returns a function that tells whether a changed document differs only in bytes
// of a token that its signature does not cover.
func uncovered(t *testing.T, text []byte) func(changed []byte) bool {
	t.Helper()
	const before = `"witness":["`
	begin := bytes.LastIndex(text, []byte(before)) + len(before)
	if !bytes.HasSuffix(text, []byte(`"]}`)) || begin < len(before) {
		return func([]byte) bool { return false }
	}
	end := bytes.LastIndexByte(text, '"')
	token, err := base64.StdEncoding.DecodeString(string(text[begin:end]))
	must(t, err)
	covered := coveredBytes(t, token)
	return func(changed []byte) bool {
		if !bytes.Equal(changed[:begin], text[:begin]) || !bytes.Equal(changed[end:], text[end:]) {
			return false
		}
		other, err := base64.StdEncoding.DecodeString(string(changed[begin:end]))
		if err != nil || len(other) != len(token) || bytes.Equal(other, token) {
			return false
		}
		for i := range token {
			if other[i] != token[i] && covered[i] {
				return false
			}
		}
		return true
	}
}

// coveredBytes marks the content of a token, its certificates, its signed attributes and
// its signature.
func coveredBytes(t *testing.T, token []byte) []bool {
	t.Helper()
	elements := func(der []byte) (list []asn1.RawValue) {
		for len(der) > 0 {
			var v asn1.RawValue
			rest, err := asn1.Unmarshal(der, &v)
			must(t, err)
			list, der = append(list, v), rest
		}
		return list
	}
	inside := func(v asn1.RawValue) []asn1.RawValue { return elements(v.Bytes) }
	data := inside(inside(inside(elements(token)[0])[1])[0]) // version, digests, content, certificates, signers
	content, certificates, signer := inside(data[2])[1], data[3], inside(inside(data[4])[0])
	covered := make([]bool, len(token))
	for _, part := range [][]byte{inside(content)[0].Bytes, certificates.Bytes, signer[3].FullBytes, signer[5].Bytes} {
		at := bytes.Index(token, part)
		for i := range part {
			covered[at+i] = true
		}
	}
	return covered
}
