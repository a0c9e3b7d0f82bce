package fairdraw

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"slices"
	"testing"
	"time"

	"github.com/cloudflare/circl/sign/bls"
	"github.com/google/uuid"

	"triprize.example/draw/beacon"
)

// What the proof vectors are made of: everything follows from names, so it is the same on
// every machine.

func seed(name string, i int) Hash {
	return sha256.Sum256(binary.BigEndian.AppendUint64([]byte("proof vectors "+name+"\x00"), uint64(i)))
}

func seedID(name string, i int) uuid.UUID {
	s := seed(name, i)
	s[6], s[8] = s[6]&0x0f|0x40, s[8]&0x3f|0x80 // of version 4
	return uuid.UUID(s[:16])
}

// signer is a chain of which the vectors know the key.
type signer struct {
	beacon.Chain
	key *bls.PrivateKey[bls.KeyG2SigG1]
}

func newSigner(name string) signer {
	ikm := seed(name, 0)
	key, err := bls.KeyGen[bls.KeyG2SigG1](ikm[:], nil, nil)
	if err != nil {
		panic(err)
	}
	public, err := key.PublicKey().MarshalBinary()
	if err != nil {
		panic(err)
	}
	genesis := seed(name, 1)
	return signer{Chain: beacon.Chain{PublicKey: public, GenesisTime: 1_700_000_000, GenesisSeed: genesis[:], ID: name, PeriodS: 3}, key: key}
}

func (s signer) sign(round uint64) []byte {
	message := sha256.Sum256(binary.BigEndian.AppendUint64(nil, round))
	return bls.Sign(s.key, message[:])
}

var (
	testChain  = newSigner("vectors")
	otherChain = newSigner("vectors of a liar")
	// The round of quicknet that drand's clients use as their test data.
	published, _ = hex.DecodeString("b713718a38ae728dfd477991af2822e08d2f305e47718cef9f7848ce4050e7be41076862b98fad56e91a6b85b89cd97b")
)

const publishedRound = 657413

// document is a proof document with its list, and what it was made from.
type document struct {
	Proof
	lines []SoldLine
	sold  []Sold
	law   Rules
}

// open begins a document: a campaign that is named, with its rules and who bought what.
func open(name string, law Rules, sold []Position) *document {
	d := &document{law: law}
	for i, p := range sold {
		nonce := seed(name+" nonce", i/2)
		d.sold = append(d.sold, Sold{
			Position: p, PurchaseID: seedID(name+" purchase", i/2), // two positions each
			Nonce: [NonceSize]byte(nonce[:NonceSize]), UserID: "user ü " + hex.EncodeToString([]byte{byte(i / 2)}),
		})
	}
	d.Version, d.CampaignID, d.lines, d.Count = Version, law.CampaignID, Lines(d.sold), len(sold)
	d.Secret, d.Trust = seed(name+" secret", 0), TrustOperator
	d.FrozenAt = At(time.Date(2026, 3, 1, 12, 30, 0, 123456000, time.UTC))
	return d
}

// rounds adds the beacon: the round that is some rounds after the one due at the freeze.
func (d *document) rounds(s signer, after uint64) *document {
	round := s.RoundAt(d.FrozenAt.Time) + after
	d.beacon(s.Chain, round, s.sign(round))
	return d
}

func (d *document) beacon(c beacon.Chain, round uint64, signature []byte) {
	d.Round, d.Trust = &round, TrustBeacon
	d.Beacon = &ProofBeacon{
		ChainHash: c.Hash(), PublicKey: c.PublicKey, GenesisTime: c.GenesisTime, GenesisSeed: c.GenesisSeed, BeaconID: c.ID,
		PeriodS: c.PeriodS, Round: round, Signature: signature, Randomness: sha256.Sum256(signature),
	}
}

// The steps of a draw, from what the document says. A document that lies repeats those that
// hide its lie.

func (d *document) commit(t testing.TB) *document {
	t.Helper()
	rules, err := d.law.Canonical()
	if err != nil {
		t.Fatal(err)
	}
	d.Rules, d.Commitment = rules, Commitment(d.CampaignID, rules, d.Secret[:])
	return d
}

func (d *document) grow() *document {
	leaves := make([]Hash, len(d.lines))
	for i, l := range d.lines {
		leaves[i] = LeafHash(l.Leaf())
	}
	d.Root = rootByDefinition(leaves)
	return d
}

func (d *document) freeze(t testing.TB) *document {
	t.Helper()
	record, err := d.Record().Canonical()
	if err != nil {
		t.Fatal(err)
	}
	d.FreezeHash = FreezeHash(record)
	return d
}

func (d *document) draw() *document {
	var randomness []byte
	if d.Beacon != nil {
		randomness = d.Beacon.Randomness[:]
	}
	byLayer := slices.Clone(d.lines)
	slices.SortStableFunc(byLayer, func(a, b SoldLine) int { return cmp.Compare(a.Layer, b.Layer) })
	d.Winners = Winners(Select(d.law.Prizes, byLayer, NewStream(Entropy(d.Secret[:], d.CampaignID, d.Root, randomness))))
	return d
}

// all makes every step.
func (d *document) all(t testing.TB) *document {
	t.Helper()
	return d.commit(t).grow().freeze(t).draw()
}

func (d *document) bytes(t testing.TB) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := WriteProof(&b, d.Proof, All(d.lines)); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// purchase returns the proof of purchase of the buyer of line i.
func (d *document) purchase(t testing.TB, i int) *PurchaseProof {
	t.Helper()
	p := &PurchaseProof{CampaignID: d.CampaignID, Root: d.Root, Count: d.Count}
	leaves := make([]Hash, len(d.lines))
	for j, l := range d.lines {
		leaves[j] = LeafHash(l.Leaf())
	}
	for j, s := range d.sold {
		if s.PurchaseID == d.sold[i].PurchaseID {
			p.Leaves = append(p.Leaves, ProofLeaf{
				Layer: s.Layer, Column: s.Column, PurchaseID: s.PurchaseID, Nonce: s.Nonce[:], UserID: s.UserID, Index: j, Path: pathByDefinition(leaves, j),
			})
		}
	}
	return p
}

func prizes(layers ...int) []Prize {
	list := make([]Prize, len(layers))
	for i, layer := range layers {
		list[i] = Prize{Number: i + 1, Layer: layer, Name: []string{"coffee cup", "a \"night\" in 東京 ☕", "<b>bold</b> & \u2028new line\t😀"}[i%3]}
	}
	return list
}

func bound(c beacon.Chain) *Beacon { return &Beacon{ChainHash: c.Hash(), PeriodS: c.PeriodS} }
