//go:build web

package web_test

import (
	"bytes"
	"encoding/asn1"
	"encoding/base64"
	"encoding/json"
	"slices"
	"testing"

	"triprize/internal/domain/fairdraw"
	"triprize/internal/testkit/drawn"
	"triprize/sandbox/tsasim"
)

// signedParts returns what the signature of a token covers, and the signature.
func signedParts(t *testing.T, token []byte) [][]byte {
	t.Helper()
	var outer struct {
		Type    asn1.ObjectIdentifier
		Content struct {
			Version    int
			Algorithms asn1.RawValue
			Content    struct {
				Type asn1.ObjectIdentifier
				Info []byte `asn1:"explicit,tag:0"`
			}
			Certificates asn1.RawValue `asn1:"tag:0"`
			Signers      []struct {
				Version   int
				Name      asn1.RawValue
				Digest    asn1.RawValue
				Signed    asn1.RawValue `asn1:"tag:0"`
				Algorithm asn1.RawValue
				Signature []byte
			} `asn1:"set"`
		} `asn1:"explicit,tag:0"`
	}
	if _, err := asn1.Unmarshal(token, &outer); err != nil {
		t.Fatal(err)
	}
	signer := outer.Content.Signers[0]
	return [][]byte{outer.Content.Content.Info, signer.Signed.FullBytes, signer.Signature}
}

// unsignedRanges returns which bytes of a proof are of a token, and say nothing of what its
// signature covers.
func unsignedRanges(t *testing.T, proof []byte) (ranges [][2]int) {
	t.Helper()
	for _, token := range tokensOf(t, proof) {
		text := base64.StdEncoding.EncodeToString(token)
		start, at := bytes.Index(proof, []byte(text)), 0
		for _, part := range signedParts(t, token) {
			from := bytes.Index(token, part)
			ranges = append(ranges, [2]int{start + at, start + from/3*4}) // a letter has six bits
			at = (from + len(part) + 2) / 3 * 4
		}
		ranges = append(ranges, [2]int{start + at, start + len(text)})
	}
	return ranges
}

// unsigned tells whether a change is within a token, and leaves what its signature covers.
func unsigned(t *testing.T, proof []byte, s survivor) bool {
	t.Helper()
	flipped := slices.Clone(proof)
	flipped[s.At] ^= byte(s.By)
	var before, after struct{ Witness [][]byte }
	if json.Unmarshal(proof, &before) != nil || json.Unmarshal(flipped, &after) != nil || len(before.Witness) != len(after.Witness) {
		return false
	}
	if s.At < bytes.LastIndex(proof, []byte(`"witness":[`)) {
		return false
	}
	for i, token := range before.Witness {
		for _, part := range signedParts(t, token) {
			if !bytes.Contains(after.Witness[i], part) {
				return false
			}
		}
	}
	return true
}

func TestTokensOfManyKindsOfAuthoritiesVerify(t *testing.T) {
	t.Parallel()
	p := open(t, newSite(t, nil).URL+"/verify")
	for name, o := range map[string]tsasim.Options{
		"RSA":                    {},
		"ECDSA":                  {ECDSA: true},
		"RSA and intermediate":   {Intermediate: true},
		"ECDSA and intermediate": {ECDSA: true, Intermediate: true},
		"only the signer in it":  {WithoutRoot: true},
		"accuracy and fractions": {Accuracy: "secs:1, millisecs:500, microsecs:100", Digits: 6},
	} {
		proof, _ := draw{beacon: true, authorities: []*tsasim.Authority{tsasim.Start(t, o)}}.proof(t, 0)
		if r := p.verify(proof, nil, chainHash()); r.Verdict != "verified" {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

// A token counts only under a root in the rules, over this record, and before the round.
func TestATokenThatShowsNothingIsFound(t *testing.T) {
	t.Parallel()
	p := open(t, newSite(t, nil).URL+"/verify")
	one, other := tsasim.Start(t, tsasim.Options{ECDSA: true}), tsasim.Start(t, tsasim.Options{ECDSA: true, Number: 1})
	proof, _ := draw{beacon: true, authorities: []*tsasim.Authority{one}}.proof(t, 0)
	strange := drawn.Tokens(t, []*tsasim.Authority{other}, freezeHashOf(t, proof))
	unlike, _ := draw{beacon: true, base: 4, authorities: []*tsasim.Authority{one}}.proof(t, 0)
	late, _ := draw{beacon: true, authorities: []*tsasim.Authority{tsasim.Start(t, tsasim.Options{ECDSA: true, Accuracy: "secs:40000"})}}.proof(t, 0) // 10 rounds are 36,000 s
	with := func(tokens [][]byte) []byte {
		return changed(t, proof, func(d map[string]any) { d["witness"] = tokens })
	}
	for i, part := range signedParts(t, tokensOf(t, proof)[0]) {
		flipped := slices.Clone(tokensOf(t, proof)[0])
		flipped[bytes.Index(flipped, part)+len(part)/2] ^= 1
		if r := p.verify(with([][]byte{flipped}), nil, chainHash()); !slices.Equal(r.with("failed"), []string{"witness"}) {
			t.Errorf("part %d of what is signed, flipped: %+v", i, r)
		}
	}
	for name, document := range map[string][]byte{"of a stranger": with(strange), "over another record": with(tokensOf(t, unlike)), "too late": late} {
		if r := p.verify(document, nil, chainHash()); r.Verdict != "failed" || !slices.Equal(r.with("failed"), []string{"witness"}) {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

func tokensOf(t *testing.T, proof []byte) (tokens [][]byte) {
	t.Helper()
	var document struct{ Witness [][]byte }
	if err := json.Unmarshal(proof, &document); err != nil {
		t.Fatal(err)
	}
	return document.Witness
}

func commitmentOf(t *testing.T, proof []byte) string {
	t.Helper()
	var document struct{ Commitment string }
	if err := json.Unmarshal(proof, &document); err != nil {
		t.Fatal(err)
	}
	return document.Commitment
}

func freezeHashOf(t *testing.T, proof []byte) fairdraw.Hash {
	t.Helper()
	var document struct {
		FreezeHash fairdraw.Hash `json:"freeze_hash"`
	}
	if err := json.Unmarshal(proof, &document); err != nil {
		t.Fatal(err)
	}
	return document.FreezeHash
}
