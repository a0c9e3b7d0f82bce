//go:build web

package web_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/cloudflare/circl/sign/bls"
	"github.com/google/uuid"
	"github.com/gowebpki/jcs"

	"triprize/internal/domain/beacon"
	"triprize/internal/domain/fairdraw"
	"triprize/internal/domain/shape"
	"triprize/internal/platform/config"
	"triprize/internal/platform/timestamp"
	"triprize/internal/simulator/tsasim"
)

// draw describes a draw to make a proof of. The zero value is a triangle of three layers,
// all sold, with a prize in layer 2 and two in layer 3, and no beacon.
type draw struct {
	layers      []int // positions of each; no triangle
	base        int   // base length of a triangle; 0: 3
	prizes      []fairdraw.Prize
	beacon      bool
	authorities []*tsasim.Authority
	unsold      func(layer, column int) bool
}

// A chain of our own, with rounds of an hour, so that an authority is always in time.
var (
	chainKey = mustKey()
	chain    = beacon.Chain{PublicKey: mustPublic(), GenesisTime: 1700000000, GenesisSeed: bytes.Repeat([]byte{7}, 32), ID: "test", PeriodS: 3600}
)

func mustKey() *bls.PrivateKey[bls.KeyG2SigG1] {
	key, err := bls.KeyGen[bls.KeyG2SigG1](bytes.Repeat([]byte{9}, 32), nil, nil)
	if err != nil {
		panic(err)
	}
	return key
}

func mustPublic() []byte {
	public, err := chainKey.PublicKey().MarshalBinary()
	if err != nil {
		panic(err)
	}
	return public
}

func chainHash() string { return fairdraw.Hash(chain.Hash()).String() }

var campaignID = uuid.MustParse("4420823c-fde6-41c2-ab30-f90ec7dd01e4")

func (d draw) rules() fairdraw.Rules {
	base := d.base
	if base == 0 {
		base = 3
	}
	prizes := d.prizes
	if prizes == nil {
		prizes = []fairdraw.Prize{{Number: 1, Layer: 2, Name: `<img src=x onerror="document.title='marked'">`}, {Number: 2, Layer: 3, Name: "ein großer Preis 🏆"}, {Number: 3, Layer: 3, Name: "a \"mug\"\n"}}
	}
	rules := fairdraw.NewRules(campaignID, shape.Triangle(base), prizes, nil)
	if d.layers != nil {
		rules.BaseLength, rules.Layers = 0, nil
		for i, positions := range d.layers {
			rules.Layers = append(rules.Layers, fairdraw.Layer{Layer: i + 1, Positions: positions})
		}
	}
	if d.beacon {
		rules.Beacon = &fairdraw.Beacon{ChainHash: chain.Hash(), PeriodS: chain.PeriodS}
	}
	for _, a := range d.authorities {
		rules.Witness = append(rules.Witness, a.Root)
	}
	if d.unsold != nil {
		rules.Unsold = &fairdraw.Unsold{EndsAt: fairdraw.At(time.Now().Add(-time.Hour))}
	}
	return rules
}

// sold returns the list of sold positions: two positions are one purchase.
func (d draw) sold(rules fairdraw.Rules) (sold []fairdraw.Sold) {
	for _, l := range rules.Layers {
		for column := 1; column <= l.Positions; column++ {
			if d.unsold != nil && d.unsold(l.Layer, column) {
				continue
			}
			s := fairdraw.Sold{PurchaseID: uuid.NewSHA1(campaignID, []byte(fmt.Sprint(len(sold)/2))), UserID: fmt.Sprintf("user ü %d", len(sold)/2)}
			s.Layer, s.Column = l.Layer, column
			binary.BigEndian.PutUint64(s.Nonce[:], uint64(len(sold)/2))
			sold = append(sold, s)
		}
	}
	return sold
}

// proof returns the proof document, and that of the purchase that has a line of the list.
func (d draw) proof(t *testing.T, line int) (proof, purchase []byte) {
	t.Helper()
	rules := d.rules()
	canonical, err := rules.Canonical()
	if err != nil {
		t.Fatal(err)
	}
	sold := d.sold(rules)
	lines := fairdraw.Lines(sold)
	secret := sha256.Sum256([]byte("a secret"))
	p := fairdraw.Proof{
		Version: fairdraw.Version, CampaignID: campaignID, Rules: canonical, Secret: secret, Count: len(sold), Trust: fairdraw.TrustOperator,
		Commitment: fairdraw.Commitment(campaignID, canonical, secret[:]), FrozenAt: fairdraw.At(time.Now()),
	}
	if p.Root, err = fairdraw.Root(sold); err != nil {
		t.Fatal(err)
	}
	var randomness []byte
	if d.beacon {
		p.Trust, p.Beacon = fairdraw.TrustBeacon, round(t, chain.RoundAt(p.FrozenAt.Time)+fairdraw.RoundsAhead)
		p.Round, randomness = &p.Beacon.Round, p.Beacon.Randomness[:]
	}
	record, err := p.Record().Canonical()
	if err != nil {
		t.Fatal(err)
	}
	p.FreezeHash = fairdraw.FreezeHash(record)
	p.Witness = stamps(t, d.authorities, p.FreezeHash)
	entropy := fairdraw.Entropy(secret[:], campaignID, p.Root, randomness)
	p.Winners = fairdraw.Winners(fairdraw.Select(rules.Prizes, lines, fairdraw.NewStream(entropy)))
	var document bytes.Buffer
	if err := fairdraw.WriteProof(&document, p, func(yield func(fairdraw.SoldLine, error) bool) {
		for _, l := range lines {
			if !yield(l, nil) {
				return
			}
		}
	}); err != nil {
		t.Fatal(err)
	}
	return document.Bytes(), purchaseProof(t, p, sold, line)
}

func round(t *testing.T, number uint64) *fairdraw.ProofBeacon {
	t.Helper()
	message := sha256.Sum256(binary.BigEndian.AppendUint64(nil, number))
	r, err := chain.Verify(number, bls.Sign(chainKey, message[:]))
	if err != nil {
		t.Fatal(err)
	}
	return &fairdraw.ProofBeacon{
		ChainHash: chain.Hash(), PublicKey: chain.PublicKey, GenesisTime: chain.GenesisTime, GenesisSeed: chain.GenesisSeed, BeaconID: chain.ID,
		PeriodS: chain.PeriodS, Round: number, Signature: r.Signature, Randomness: r.Randomness,
	}
}

func stamps(t *testing.T, authorities []*tsasim.Authority, hash fairdraw.Hash) (tokens [][]byte) {
	t.Helper()
	slices.SortFunc(authorities, func(a, b *tsasim.Authority) int { return bytes.Compare(a.Root[:], b.Root[:]) })
	for _, a := range authorities {
		client, err := timestamp.New(config.Timestamps{Authorities: a.URL + " " + a.Chain, Timeout: time.Minute}, nil, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		got, err := client.Stamp(t.Context(), hash, client.Authorities())
		if err != nil || len(got) != 1 {
			t.Fatal(got, err)
		}
		tokens = append(tokens, got[0].DER)
	}
	return tokens
}

func purchaseProof(t *testing.T, p fairdraw.Proof, sold []fairdraw.Sold, line int) []byte {
	t.Helper()
	if len(sold) > 1024 || len(sold) == 0 {
		return nil // its paths would need more than one page
	}
	leaves := make([]fairdraw.Hash, len(sold))
	for i, s := range sold {
		leaves[i] = fairdraw.LeafHash(s.Leaf())
	}
	proof := fairdraw.PurchaseProof{CampaignID: campaignID, Root: p.Root, Count: p.Count}
	for i, s := range sold {
		if s.PurchaseID != sold[line].PurchaseID {
			continue
		}
		path, err := fairdraw.InclusionPath(leaves, []fairdraw.Hash{p.Root}, i, len(sold))
		if err != nil {
			t.Fatal(err)
		}
		proof.Leaves = append(proof.Leaves, fairdraw.ProofLeaf{
			Layer: s.Layer, Column: s.Column, PurchaseID: s.PurchaseID, Nonce: s.Nonce[:], UserID: s.UserID, Index: i, Path: path,
		})
	}
	text, err := proof.Canonical()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// changed returns a document in canonical form after a change.
func changed(t *testing.T, document []byte, change func(map[string]any)) []byte {
	t.Helper()
	var members map[string]any
	decoder := json.NewDecoder(bytes.NewReader(document))
	decoder.UseNumber()
	if err := decoder.Decode(&members); err != nil {
		t.Fatal(err)
	}
	change(members)
	plain, err := json.Marshal(members)
	if err != nil {
		t.Fatal(err)
	}
	text, err := jcs.Transform(plain)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
