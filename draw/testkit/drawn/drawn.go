// Package drawn makes proofs of draws, right and wrong ones, for the tests of verifiers.
package drawn

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"github.com/cloudflare/circl/sign/bls"
	"github.com/google/uuid"

	"triprize.example/draw/beacon"
	"triprize.example/draw/fairdraw"
)

// Draw is a campaign that was drawn. Tests change a part and have the rest follow.
type Draw struct {
	ID       uuid.UUID
	Rules    fairdraw.Rules
	Secret   fairdraw.Hash
	Sold     []Sold
	FrozenAt time.Time
	Chain    *Chain
	Ahead    uint64 // rounds between the freeze and its round
}

// Sold is a sold position with what only its owner may see.
type Sold struct {
	fairdraw.Position
	PurchaseID uuid.UUID
	Nonce      [fairdraw.NonceSize]byte
	UserID     string
}

// Line returns the position as it is published.
func (s Sold) Line() fairdraw.SoldLine {
	return fairdraw.SoldLine{Layer: s.Layer, Column: s.Column, PurchaseID: s.PurchaseID, Holder: fairdraw.Holder(s.Nonce[:], s.UserID)}
}

// Lines returns a list as it is published.
func Lines(sold []Sold) (lines []fairdraw.SoldLine) {
	for _, s := range sold {
		lines = append(lines, s.Line())
	}
	return lines
}

// Chain is a chain that tests have the key of.
type Chain struct {
	beacon.Chain
	key *bls.PrivateKey[bls.KeyG2SigG1]
}

// Hour is the period of a Chain. The list is frozen in the middle of a round.
const Hour = 3600 // seconds

// NewChain returns a chain for a list that is frozen at a time.
func NewChain(seed string, frozenAt time.Time) *Chain {
	ikm := sha256.Sum256([]byte(seed))
	key, err := bls.KeyGen[bls.KeyG2SigG1](ikm[:], nil, nil)
	if err != nil {
		panic(err)
	}
	public, err := key.PublicKey().MarshalBinary()
	if err != nil {
		panic(err)
	}
	return &Chain{beacon.Chain{PublicKey: public, GenesisTime: frozenAt.Unix() - 1000*Hour - Hour/2, GenesisSeed: ikm[:], ID: "test", PeriodS: Hour}, key}
}

// Sign returns the signature of a round.
func (c *Chain) Sign(number uint64) []byte {
	message := sha256.Sum256(binary.BigEndian.AppendUint64(nil, number))
	return bls.Sign(c.key, message[:])
}

// Triangle returns a triangle whose positions are all sold, with a prize in every layer.
func Triangle(base int) *Draw {
	id := uuid.MustParse("0193b0a8-0000-7000-8000-000000000001")
	prizes := make([]fairdraw.Prize, base)
	for i := range prizes {
		prizes[i] = fairdraw.Prize{Number: i + 1, Layer: i + 1, Name: fmt.Sprintf("Prize <%d> für Zoë", i+1)}
	}
	return New(fairdraw.NewRules(id, fairdraw.Triangle(base), prizes, nil), nil)
}

// New returns a draw by rules whose positions are sold, without those for which unsold is
// true (nil: all are). Two positions are one purchase.
func New(rules fairdraw.Rules, unsold func(layer, column int) bool) *Draw {
	d := &Draw{ID: rules.CampaignID, Rules: rules, Secret: sha256.Sum256([]byte("secret")), FrozenAt: time.Now(), Ahead: fairdraw.RoundsAhead}
	for _, l := range rules.Layers {
		for column := 1; column <= l.Positions; column++ {
			if unsold != nil && unsold(l.Layer, column) {
				continue
			}
			n := len(d.Sold) / 2
			nonce := sha256.Sum256(fmt.Appendf(nil, "nonce %d", n))
			d.Sold = append(d.Sold, Sold{Position: fairdraw.Position{Layer: l.Layer, Column: column}, PurchaseID: uuid.NewSHA1(d.ID, fmt.Appendf(nil, "purchase %d", n)),
				Nonce: [fairdraw.NonceSize]byte(nonce[:fairdraw.NonceSize]), UserID: fmt.Sprintf("user ü %d", n)})
		}
	}
	return d
}

// WithBeacon binds the campaign to a chain.
func (d *Draw) WithBeacon() *Draw {
	d.Chain = NewChain("chain", d.FrozenAt)
	d.Rules.Beacon = &fairdraw.Beacon{ChainHash: d.Chain.Hash(), PeriodS: d.Chain.PeriodS}
	return d
}

// Proof returns the document without its list.
func (d *Draw) Proof(t testing.TB) fairdraw.Proof {
	t.Helper()
	rules, err := d.Rules.Canonical()
	must(t, err)
	root, err := fairdraw.RootOf(Lines(d.Sold))
	must(t, err)
	p := fairdraw.Proof{Version: fairdraw.Version, CampaignID: d.ID, Rules: rules, Commitment: fairdraw.Commitment(d.ID, rules, d.Secret[:]),
		Secret: d.Secret, Root: root, Count: len(d.Sold), FrozenAt: fairdraw.At(d.FrozenAt), Trust: fairdraw.TrustOperator}
	var randomness []byte
	if d.Chain != nil {
		number := d.Chain.RoundAt(d.FrozenAt) + d.Ahead
		signature := d.Chain.Sign(number)
		p.Round, p.Trust = &number, fairdraw.TrustBeacon
		p.Beacon = &fairdraw.ProofBeacon{ChainHash: d.Chain.Hash(), PublicKey: d.Chain.PublicKey, GenesisTime: d.Chain.GenesisTime, GenesisSeed: d.Chain.GenesisSeed,
			BeaconID: d.Chain.ID, PeriodS: d.Chain.PeriodS, Round: number, Signature: signature, Randomness: sha256.Sum256(signature)}
		randomness = p.Beacon.Randomness[:]
	}
	record, err := p.Record().Canonical()
	must(t, err)
	p.FreezeHash = fairdraw.FreezeHash(record)
	entropy := fairdraw.Entropy(d.Secret[:], d.ID, root, randomness)
	p.Winners = fairdraw.Select(d.Rules.Prizes, Lines(d.Sold), fairdraw.NewStream(entropy))
	return p
}

// Text returns the document.
func (d *Draw) Text(t testing.TB, changes ...func(*fairdraw.Proof)) []byte {
	t.Helper()
	p := d.Proof(t)
	for _, change := range changes {
		change(&p)
	}
	return TextOf(t, p, Lines(d.Sold))
}

// TextOf returns a document with another list.
func TextOf(t testing.TB, p fairdraw.Proof, sold []fairdraw.SoldLine) []byte {
	t.Helper()
	var out bytes.Buffer
	must(t, fairdraw.WriteProof(&out, p, fairdraw.All(sold)))
	return out.Bytes()
}

// Purchase returns the proof of the purchase that has the position of an index.
func (d *Draw) Purchase(t testing.TB, index int) fairdraw.PurchaseProof {
	t.Helper()
	var tree fairdraw.Tree
	page := make([]fairdraw.Hash, len(d.Sold)) // the tests have one page
	for i, s := range d.Sold {
		must(t, tree.Append(s.Line()))
		page[i] = fairdraw.LeafHash(s.Line().Leaf())
	}
	p := fairdraw.PurchaseProof{CampaignID: d.ID, Root: tree.Root(), Count: tree.Count()}
	for i, s := range d.Sold {
		if s.PurchaseID != d.Sold[index].PurchaseID {
			continue
		}
		path, err := fairdraw.InclusionPath(page, []fairdraw.Hash{tree.Root()}, i)
		must(t, err)
		p.Leaves = append(p.Leaves, fairdraw.ProofLeaf{Layer: s.Layer, Column: s.Column, PurchaseID: s.PurchaseID, Nonce: s.Nonce[:], UserID: s.UserID, Index: i, Path: path})
	}
	return p
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
