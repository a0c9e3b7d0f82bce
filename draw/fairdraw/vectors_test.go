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
	"strconv"
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

	sold := v.sold(t)
	equal(t, "leaves", len(sold), len(v.Leaves))
	for i, s := range sold {
		equal(t, "leaf "+strconv.Itoa(i), hex.EncodeToString(s.Line().Leaf()), v.Leaves[i])
	}
	root, err := RootOf(Lines(sold))
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
	winners := Select(rules.Prizes, Lines(sold), NewStream(entropy))
	equal(t, "winners", len(winners), len(v.Winners))
	for i, w := range winners {
		equal(t, "prize", w.Prize.Number, v.Winners[i].Prize)
		equal(t, "winner", w.Line.Position(), Position{Layer: v.Winners[i].Layer, Column: v.Winners[i].Column})
	}
}

func (v vector) sold(t *testing.T) []Sold {
	sold := make([]Sold, 0, len(v.Sold))
	for _, s := range v.Sold {
		sold = append(sold, Sold{
			Position:   Position{Layer: s.Layer, Column: s.Column},
			PurchaseID: s.PurchaseID,
			Nonce:      [NonceSize]byte(unhex(t, s.Nonce)),
			UserID:     s.UserID,
		})
	}
	return sold
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
