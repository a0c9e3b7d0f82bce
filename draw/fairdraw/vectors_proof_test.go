package fairdraw

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the proof vectors anew")

// The index of the proof vectors, testdata/proof-vectors.json; docs/draw.md explains it.
type (
	proofVectors struct {
		Rounds         []roundVector         `json:"rounds"`
		Proofs         []proofVector         `json:"proofs"`
		WrongProofs    []wrongProofVector    `json:"wrong_proofs"`
		WrongPurchases []wrongPurchaseVector `json:"wrong_purchases"`
		Against        []againstVector       `json:"against"`
		Lists          []listVector          `json:"lists"`
		WrongLists     []wrongListVector     `json:"wrong_lists"`
	}
	roundVector struct {
		ChainHash  Hash   `json:"chain_hash"`
		PublicKey  Bytes  `json:"public_key"`
		Round      uint64 `json:"round"`
		Signature  Bytes  `json:"signature"`
		Valid      bool   `json:"valid"`
		Randomness Hash   `json:"randomness"`
	}
	proofVector struct {
		Name      string   `json:"name"`
		File      string   `json:"file"`
		ChainHash *Hash    `json:"chain_hash"`
		Purchases []string `json:"purchases"`
	}
	wrongProofVector struct {
		Name      string `json:"name"`
		File      string `json:"file"`
		ChainHash *Hash  `json:"chain_hash"`
		Check     string `json:"check"`
	}
	wrongPurchaseVector struct {
		Name  string `json:"name"`
		File  string `json:"file"`
		Proof string `json:"proof"`
		Check string `json:"check"`
	}
	againstVector struct {
		Name   string   `json:"name"`
		Files  []string `json:"files"`
		Differ bool     `json:"differ"`
	}
	listVector struct {
		Name  string `json:"name"`
		File  string `json:"file"`
		Proof string `json:"proof"`
	}
	wrongListVector struct {
		Name  string `json:"name"`
		File  string `json:"file"`
		Check string `json:"check"`
	}
)

// made is all vectors with their files, by path under testdata.
type made struct {
	proofVectors
	files map[string][]byte
}

func (m *made) file(t testing.TB, name string, text []byte) string {
	t.Helper()
	path := "proofs/" + strings.ReplaceAll(name, " ", "-") + ".json"
	if _, twice := m.files[path]; twice {
		t.Fatalf("two vectors have the name %q", name)
	}
	m.files[path] = text
	return path
}

func chainHash(d *document) *Hash {
	if d.Beacon == nil {
		return nil
	}
	hash := Hash(testChain.Hash())
	return &hash
}

// proof adds a document that verifies, and the proofs of purchase of some of its lines.
func (m *made) proof(t testing.TB, name string, d *document, purchases ...int) {
	t.Helper()
	v := proofVector{Name: name, File: m.file(t, name, d.bytes(t)), ChainHash: chainHash(d), Purchases: []string{}}
	if d.Beacon != nil && d.Beacon.BeaconID == "quicknet" {
		v.ChainHash = nil // every verifier knows it
	}
	for i, index := range purchases {
		text, err := d.purchase(t, index).Canonical()
		if err != nil {
			t.Fatal(err)
		}
		v.Purchases = append(v.Purchases, m.file(t, name+" purchase "+string(rune('1'+i)), text))
	}
	m.Proofs = append(m.Proofs, v)
}

// wrong adds a document of which a check must fail.
func (m *made) wrong(t testing.TB, check, name string, d *document) {
	t.Helper()
	m.wrongText(t, check, name, chainHash(d), d.bytes(t))
}

func (m *made) wrongText(t testing.TB, check, name string, chain *Hash, text []byte) {
	t.Helper()
	file := m.file(t, "wrong "+check+" "+name, text)
	m.WrongProofs = append(m.WrongProofs, wrongProofVector{Name: name, File: file, ChainHash: chain, Check: check})
}

func makeVectors(t testing.TB) *made {
	t.Helper()
	m := &made{files: map[string][]byte{}}
	m.rounds()
	m.rightProofs(t)
	m.wrongForms(t)
	m.wrongSales(t)
	m.wrongDraws(t)
	m.wrongBeacons(t)
	m.wrongPurchases(t)
	m.rightBounds(t)
	m.wrongBounds(t)
	m.lists(t)
	index, err := json.MarshalIndent(m.proofVectors, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	m.files["proof-vectors.json"] = append(index, '\n')
	return m
}

// With -update the files are written; they must be read and understood then.
func TestTheProofVectorsAreThoseThatTheProcedureMakes(t *testing.T) {
	t.Parallel()
	m := makeVectors(t)
	if *update {
		for _, path := range stored(t) {
			if err := os.Remove(filepath.Join("testdata", path)); err != nil {
				t.Fatal(err)
			}
		}
		for path, text := range m.files {
			if err := os.WriteFile(filepath.Join("testdata", path), text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	for path, want := range m.files {
		got, err := os.ReadFile(filepath.Join("testdata", path))
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is not what is made (%v); see the flag -update", path, err)
		}
	}
	for _, path := range stored(t) {
		if _, ok := m.files[path]; !ok {
			t.Errorf("%s is no vector", path)
		}
	}
}

// stored returns the files of proofs under testdata.
func stored(t testing.TB) (paths []string) {
	t.Helper()
	entries, err := os.ReadDir("testdata/proofs")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		paths = append(paths, "proofs/"+e.Name())
	}
	return paths
}

func (m *made) rightProofs(t testing.TB) {
	t.Helper()
	m.proof(t, "operator", operatorDraw(t), 0, 4)
	m.proof(t, "beacon", beaconDraw(t), 0, 9)
	early := open("latest round", NewRules(seedID("latest round", 0), Triangle(3), prizes(3, 3, 3), bound(testChain.Chain)), positionsOf(Triangle(3)))
	m.proof(t, "beacon latest round", early.rounds(testChain, MostRoundsAhead).all(t))
	m.proof(t, "quicknet", quicknetDraw(t), 2)
	m.proof(t, "unsold", unsoldDraw(t), 1)
	m.proof(t, "unsold with nothing sold", unsold("nothing sold", nil).all(t))
	m.proof(t, "unsold but sold out", unsold("sold out early", positionsOf(Triangle(3))).before().all(t))
	m.proof(t, "no triangle", otherShape(t), 7)
	m.proof(t, "no prizes", open("no prizes", NewRules(seedID("no prizes", 0), Triangle(3), nil, nil), positionsOf(Triangle(3))).all(t))
	m.proof(t, "two subtrees", open("two subtrees", NewRules(seedID("two subtrees", 0), Triangle(50), prizes(1, 7, 49, 50, 50, 50), nil), positionsOf(Triangle(50))).all(t), 0, 1023, 1274)
	m.proof(t, "hall", hallDraw(t), 0, 59, 119)
	m.proof(t, "raffle", raffleDraw(t), 0, 1024, 2499)
	m.proof(t, "no prizes in a hall", shapedDraw(t, "no prizes in a hall", layersOf(3, 3)), 5)
}
