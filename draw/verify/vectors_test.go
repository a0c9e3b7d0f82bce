package verify

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/uuid"

	"triprize.example/draw/fairdraw"
)

const vectors = "../fairdraw/testdata"

func vectorFile(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(vectors, name))
	must(t, err)
	return text
}

// vectorList is what proof-vectors.json has for verifiers.
type vectorList struct {
	Proofs         []vector `json:"proofs"`
	WrongProofs    []vector `json:"wrong_proofs"`
	WrongPurchases []vector `json:"wrong_purchases,omitempty"`
	Against        []vector `json:"against,omitempty"`
}

type vector struct {
	Name      string         `json:"name"`
	File      string         `json:"file,omitempty"`
	ChainHash *fairdraw.Hash `json:"chain_hash,omitempty"` // to be accepted besides quicknet's
	Purchases []string       `json:"purchases,omitempty"`
	Proof     string         `json:"proof,omitempty"`
	Check     string         `json:"check,omitempty"` // that must fail
	Files     []string       `json:"files,omitempty"`
	Differ    bool           `json:"differ,omitempty"`
}

// The vectors name the check that must fail, and are wrong in one thing only. They are made by nobody who knows this package.
func TestEveryVectorEndsAsItSays(t *testing.T) {
	var all vectorList
	must(t, json.Unmarshal(vectorFile(t, "proof-vectors.json"), &all))
	if len(all.Proofs) == 0 || len(all.WrongProofs) == 0 || len(all.WrongPurchases) == 0 || len(all.Against) == 0 {
		t.Fatal("there are no vectors")
	}
	chains := make(map[string]Options)
	accepting := func(v vector) (o Options) {
		if v.ChainHash != nil {
			o.Chains = []fairdraw.Hash{*v.ChainHash}
		}
		return o
	}
	for _, v := range all.Proofs {
		o := accepting(v)
		chains[v.File] = o
		text := vectorFile(t, v.File)
		if r := verified(t, text, o); !r.OK || r.Headline != "verified" || len(r.Checks) != 1+len(checks) || r.CampaignID == uuid.Nil {
			t.Errorf("%s: %v failed, %q", v.Name, r.Failed(), r.Headline)
		}
		for _, name := range v.Purchases {
			o.Purchase = bytes.NewReader(vectorFile(t, name))
			if r := verified(t, text, o); !r.OK {
				t.Errorf("%s, %s: %v failed", v.Name, name, r.Failed())
			}
		}
	}
	for _, v := range all.WrongProofs {
		r := verified(t, vectorFile(t, v.File), accepting(v))
		others := len(r.Failed()) > 1 && v.Check != "chain" // without a beacon in one of both, its round cannot fit either
		if r.OK || !slices.Contains(r.Failed(), v.Check) || others {
			t.Errorf("%s: %v failed, %s must", v.Name, r.Failed(), v.Check)
		}
		if unknown := v.Name == "that nobody named"; r.OnlyChainUnknown != unknown || len(r.Shows)+len(r.Remains) > 0 {
			t.Errorf("%s: only the chain is unknown: %t; it shows %q", v.Name, r.OnlyChainUnknown, r.Shows)
		}
	}
	for _, v := range all.WrongPurchases {
		o := chains[v.Proof]
		o.Purchase = bytes.NewReader(vectorFile(t, v.File))
		if r := verified(t, vectorFile(t, v.Proof), o); r.OK || !slices.Contains(r.Failed(), v.Check) || len(r.Won) > 0 {
			t.Errorf("%s: %v failed, %s must", v.Name, r.Failed(), v.Check)
		}
	}
	for _, v := range all.Against {
		o := chains[v.Files[0]]
		o.Against = bytes.NewReader(vectorFile(t, v.Files[1]))
		if r := verified(t, vectorFile(t, v.Files[0]), o); r.OK == v.Differ {
			t.Errorf("%s: %+v", v.Name, checkOf(r, "against"))
		}
	}
}
