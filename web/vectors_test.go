//go:build web

package web_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// vectors is what this page uses of proof-vectors.json: files are beside it.
type vectors struct {
	Proofs         []vector
	WrongProofs    []vector                                    `json:"wrong_proofs"`
	WrongPurchases []struct{ Name, File, Proof, Check string } `json:"wrong_purchases"`
}

type vector struct {
	Name, File string
	ChainHash  string `json:"chain_hash"`
	Purchases  []string
	Check      string // that fails, of a wrong one
}

func (v vector) told() told {
	user := told{}
	if v.ChainHash != "" {
		user.ChainHashes = []string{v.ChainHash}
	}
	return user
}

const vectorsFolder = "../draw/fairdraw/testdata"

func readVector(t *testing.T, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(vectorsFolder, name))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestThePublishedVectorsVerifyAndTheWrongOnesFailAsTheySay(t *testing.T) {
	t.Parallel()
	p := open(t, newSite(t, nil).URL+"/verify")
	var v vectors
	if err := json.Unmarshal(readVector(t, "proof-vectors.json"), &v); err != nil {
		t.Fatal(err)
	}
	if len(v.Proofs) == 0 || len(v.WrongProofs) == 0 {
		t.Fatal("there are no vectors")
	}
	for _, good := range v.Proofs {
		proof := readVector(t, good.File)
		if r := p.verify(proof, nil, good.told()); r.Verdict != "verified" || r.Headline != "verified" || len(r.Checks) != 14 {
			t.Errorf("%s: %+v", good.Name, r)
		}
		for _, purchase := range good.Purchases {
			if r := p.verify(proof, readVector(t, purchase), good.told()); r.Verdict != "verified" || len(r.Checks) != 17 || len(r.Purchase) == 0 {
				t.Errorf("%s, %s: %+v", good.Name, purchase, r)
			}
		}
	}
	for _, wrong := range v.WrongProofs {
		r := p.verify(readVector(t, wrong.File), nil, wrong.told())
		others := len(r.with("failed")) > 1 && wrong.Check != "chain" // without a beacon in one of both, its round cannot fit either
		if r.Verdict != "failed" || !slices.Contains(r.with("failed"), wrong.Check) || others {
			t.Errorf("%s: want %s to fail: %+v", wrong.Name, wrong.Check, r)
		}
	}
	for _, wrong := range v.WrongPurchases {
		r := p.verify(readVector(t, wrong.Proof), readVector(t, wrong.File), told{})
		if r.Verdict != "failed" || !slices.Contains(r.with("failed"), wrong.Check) || r.Purchase != nil {
			t.Errorf("%s: want %s to fail: %+v", wrong.Name, wrong.Check, r)
		}
	}
}
