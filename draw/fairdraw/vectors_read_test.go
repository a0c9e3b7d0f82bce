package fairdraw

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"triprize.example/draw/beacon"
)

func text(t *testing.T, file string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", file))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestEveryProofIsReadAndWhatIsSpelledInAnotherWayIsNot(t *testing.T) {
	t.Parallel()
	v := index(t)
	for _, p := range v.Proofs {
		proof, lines, err := read(string(text(t, p.File)))
		if err != nil {
			t.Errorf("%s: %v", p.Name, err)
			continue
		}
		if write(t, proof, lines) != string(text(t, p.File)) {
			t.Errorf("%s is written in another way", p.Name)
		}
		rules, err := ParseRules(proof.Rules)
		if err != nil {
			t.Errorf("%s: %v", p.Name, err)
		}
		if err := rules.Check(proof.CampaignID); err != nil {
			t.Errorf("%s: %v", p.Name, err)
		}
	}
	for _, w := range v.WrongProofs {
		proof, _, err := read(string(text(t, w.File)))
		var form *FormError
		if wrong := errors.As(err, &form); wrong != (w.Check == CheckForm) {
			t.Errorf("%s, %s: %v", w.Check, w.Name, err)
		}
		if err != nil {
			continue
		}
		rules, err := ParseRules(proof.Rules)
		if err == nil {
			err = rules.Check(proof.CampaignID)
		}
		if (err != nil) != (w.Check == CheckRules) {
			t.Errorf("%s, %s: %v", w.Check, w.Name, err)
		}
	}
}

func TestEveryProofOfPurchaseLeadsToItsRoot(t *testing.T) {
	t.Parallel()
	v := index(t)
	for _, p := range v.Proofs {
		proof, lines, err := read(string(text(t, p.File)))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range p.Purchases {
			if !holds(t, file, proof, lines) {
				t.Errorf("%s does not hold", file)
			}
		}
	}
	for _, w := range v.WrongPurchases {
		proof, lines, err := read(string(text(t, w.Proof)))
		if err != nil {
			t.Fatal(err)
		}
		if holds(t, w.File, proof, lines) {
			t.Errorf("%s, %s: holds", w.Check, w.Name)
		}
	}
}

func TestALeafWithAValueThatItCannotHaveIsRefused(t *testing.T) {
	t.Parallel()
	document := text(t, "proofs/operator-purchase-1.json")
	for pattern, by := range map[string]string{`"index":[0-9]+`: `"index":-1`, `"path":\[[^]]*\]`: `"path":null`} {
		changed := regexp.MustCompile(pattern).ReplaceAll(document, []byte(by))
		if bytes.Equal(changed, document) {
			t.Fatalf("the document has no %s", pattern)
		}
		_, err := ReadPurchaseProof(bytes.NewReader(changed))
		if form, ok := errors.AsType[*FormError](err); !ok || form.Member != "leaves" {
			t.Errorf("%s: %v", by, err)
		}
	}
}

// holds tells whether a proof of purchase passes its checks.
func holds(t *testing.T, file string, proof Proof, lines []SoldLine) bool {
	t.Helper()
	p, err := ReadPurchaseProof(bytes.NewReader(text(t, file)))
	if err != nil {
		return false
	}
	if again, err := p.Canonical(); err != nil || !bytes.Equal(again, text(t, file)) {
		t.Errorf("%s is written in another way (%v)", file, err)
	}
	ok := p.CheckPaths() == nil && p.CampaignID == proof.CampaignID && p.Root == proof.Root && p.Count == proof.Count
	for _, l := range p.Leaves {
		ok = ok && l.Index < len(lines) && lines[l.Index] == l.Line()
	}
	return ok
}

func TestTheRoundsOfTheVectorsVerifyOrNot(t *testing.T) {
	t.Parallel()
	for _, r := range index(t).Rounds {
		round, err := beacon.Chain{PublicKey: r.PublicKey}.Verify(r.Round, r.Signature)
		if (err == nil) != r.Valid || (r.Valid && Hash(round.Randomness) != r.Randomness) {
			t.Errorf("round %d of %s: %v", r.Round, r.ChainHash, err)
		}
	}
}

func index(t *testing.T) (v proofVectors) {
	t.Helper()
	if err := json.Unmarshal(text(t, "proof-vectors.json"), &v); err != nil {
		t.Fatal(err)
	}
	return v
}
