package fairdraw

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/uuid"

	"triprize.example/draw/beacon"
)

// vector is one case of testdata/draw-vectors.json, made by an independent implementation.
type vector struct {
	Name           string    `json:"name"`
	CampaignID     uuid.UUID `json:"campaign_id"`
	Secret         string    `json:"secret"`
	Rules          Rules     `json:"rules"`
	RulesCanonical string    `json:"rules_canonical"`
	RulesHash      string    `json:"rules_hash"`
	Commitment     string    `json:"commitment"`
	Sold           []struct {
		Layer      int       `json:"layer"`
		Column     int       `json:"column"`
		PurchaseID uuid.UUID `json:"purchase_id"`
		Nonce      string    `json:"nonce"`
		UserID     string    `json:"user_id"`
	} `json:"sold"`
	Leaves      []string `json:"leaves"`
	Root        string   `json:"root"`
	Randomness  string   `json:"randomness"`
	Entropy     string   `json:"entropy"`
	StreamFirst []string `json:"stream_first"`
	Winners     []struct {
		Prize  int `json:"prize"`
		Layer  int `json:"layer"`
		Column int `json:"column"`
	} `json:"winners"`
}

func TestEveryFieldOfTheVectorsAgrees(t *testing.T) {
	data, err := os.ReadFile("testdata/draw-vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	var vectors []vector
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields() // a field this test does not compare would go unnoticed
	if err := decoder.Decode(&vectors); err != nil {
		t.Fatal(err)
	}
	if len(vectors) == 0 {
		t.Fatal("no vectors")
	}
	for _, v := range vectors {
		t.Run(v.Name, func(t *testing.T) { v.check(t) })
	}
}

func (v vector) check(t *testing.T) {
	rules := NewRules(v.CampaignID, Triangle(v.Rules.BaseLength), v.Rules.Prizes, v.Rules.Beacon)
	canonical, err := rules.Canonical()
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "rules_canonical", string(canonical), v.RulesCanonical)
	rulesHash := sha256.Sum256(canonical)
	equal(t, "rules_hash", hex.EncodeToString(rulesHash[:]), v.RulesHash)
	secret := unhex(t, v.Secret)
	commitment := Commitment(v.CampaignID, canonical, secret)
	equal(t, "commitment", hex.EncodeToString(commitment[:]), v.Commitment)

	sold := v.lines(t)
	equal(t, "leaves", len(sold), len(v.Leaves))
	for i, line := range sold {
		equal(t, "leaf "+strconv.Itoa(i), hex.EncodeToString(line.Leaf()), v.Leaves[i])
	}
	root, err := RootOf(sold)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "root", hex.EncodeToString(root[:]), v.Root)

	entropy := Entropy(secret, v.CampaignID, root, unhex(t, v.Randomness))
	equal(t, "entropy", hex.EncodeToString(entropy[:]), v.Entropy)
	stream := NewStream(entropy)
	for i, want := range v.StreamFirst {
		equal(t, "stream "+strconv.Itoa(i), strconv.FormatUint(stream.Uint64(), 10), want)
	}
	winners := Select(rules.Prizes, sold, NewStream(entropy))
	equal(t, "winners", len(winners), len(v.Winners))
	for i, w := range winners {
		equal(t, "prize", w.Prize, v.Winners[i].Prize)
		equal(t, "winner", Position{w.Layer, *w.Column}, Position{Layer: v.Winners[i].Layer, Column: v.Winners[i].Column})
	}
}

func (v vector) lines(t *testing.T) []SoldLine {
	lines := make([]SoldLine, 0, len(v.Sold))
	for _, s := range v.Sold {
		lines = append(lines, SoldLine{Layer: s.Layer, Column: s.Column, PurchaseID: s.PurchaseID, Holder: Holder(unhex(t, s.Nonce), s.UserID)})
	}
	return lines
}

func equal[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

func unhex(t *testing.T, text string) []byte {
	t.Helper()
	b, err := hex.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func text(t *testing.T, file string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", file))
	if err != nil {
		t.Fatal(err)
	}
	return b
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

// proofVectors is what this package uses of the index testdata/proof-vectors.json, which docs/draw.md explains. The
// procedure is final: the documents beside it are never made anew.
type proofVectors struct {
	Rounds []struct {
		PublicKey  Bytes `json:"public_key"`
		Round      uint64
		Signature  Bytes
		Valid      bool
		Randomness Hash
	}
	Proofs      []proofVector
	WrongProofs []proofVector `json:"wrong_proofs"`
	Lists       []proofVector
	WrongLists  []proofVector `json:"wrong_lists"`
}

type proofVector struct {
	Name, File string
	ChainHash  *Hash  `json:"chain_hash"` // to be accepted besides quicknet's
	Proof      string // of a list
	Check      string // that must fail, of a wrong one
}

func index(t *testing.T) (v proofVectors) {
	t.Helper()
	if err := json.Unmarshal(text(t, "proof-vectors.json"), &v); err != nil {
		t.Fatal(err)
	}
	if len(v.Rounds) == 0 || len(v.Proofs) == 0 || len(v.WrongProofs) == 0 || len(v.Lists) == 0 || len(v.WrongLists) == 0 {
		t.Fatal("there are vectors missing")
	}
	return v
}

func TestTheRoundsOfTheVectorsVerifyOrNot(t *testing.T) {
	t.Parallel()
	for _, r := range index(t).Rounds {
		round, err := beacon.Chain{PublicKey: r.PublicKey}.Verify(r.Round, r.Signature)
		if (err == nil) != r.Valid || (r.Valid && Hash(round.Randomness) != r.Randomness) {
			t.Errorf("round %d of %s: %v", r.Round, r.PublicKey, err)
		}
	}
}

func writeList(t testing.TB, l List, lines []SoldLine) string {
	t.Helper()
	var b bytes.Buffer
	if err := WriteList(&b, l, All(lines)); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func readList(text string) (l List, lines []SoldLine, err error) {
	l, err = ReadList(strings.NewReader(text), func(line SoldLine) error {
		lines = append(lines, line)
		return nil
	})
	return l, lines, err
}

func TestEveryProofIsWrittenAsItIsRead(t *testing.T) {
	t.Parallel()
	for _, c := range index(t).Proofs {
		document := string(text(t, c.File))
		p, lines, err := read(document)
		if err != nil || write(t, p, lines) != document {
			t.Errorf("%s is written in another way: %v", c.Name, err)
		}
	}
}

// fault is the name of the check that a list fails.
func fault(document string) (check string, err error) {
	l, lines, err := readList(document)
	if errors.As(err, new(*FormError)) {
		return "form", err
	}
	var tree Tree
	for _, line := range lines {
		if err := tree.Append(line); err != nil {
			return "sold-list", err
		}
	}
	switch {
	case tree.Count() != l.Count:
		return "count", err
	case tree.Root() != l.Root:
		return "root", err
	}
	return "", err
}

func TestEveryListIsThatOfItsProofAndWrongOnesFailAsTheySay(t *testing.T) {
	t.Parallel()
	v := index(t)
	for _, c := range v.Lists {
		document := string(text(t, c.File))
		if check, err := fault(document); check != "" || err != nil {
			t.Errorf("%s: %s: %v", c.Name, check, err)
		}
		l, lines, _ := readList(document)
		if writeList(t, l, lines) != document {
			t.Errorf("%s is written in another way", c.Name)
		}
		p, sold, err := read(string(text(t, c.Proof)))
		if want := (List{CampaignID: p.CampaignID, Count: p.Count, Root: p.Root}); err != nil || l != want || !slices.Equal(lines, sold) {
			t.Errorf("%s is not the list of %s: %v", c.Name, c.Proof, err)
		}
	}
	for _, c := range v.WrongLists {
		if check, err := fault(string(text(t, c.File))); check != c.Check {
			t.Errorf("%s, %s: %s fails: %v", c.Check, c.Name, check, err)
		}
	}
}
