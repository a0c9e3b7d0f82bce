package fairdraw

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"iter"

	"github.com/google/uuid"
)

// The levels of trust of a draw.
const (
	TrustOperator = "operator" // no beacon: the operator knew the secret, and could buy last
	TrustBeacon   = "beacon"
)

// Proof is the proof document without its list of sold positions, which may be long. Its
// canonical JSON, with the list as "sold", is the document.
type Proof struct {
	Version    string          `json:"version"`
	CampaignID uuid.UUID       `json:"campaign_id"`
	Rules      json.RawMessage `json:"rules"` // canonical JSON
	Commitment Hash            `json:"commitment"`
	Secret     Hash            `json:"secret"`
	Root       Hash            `json:"root"`
	Count      int             `json:"count"`
	FrozenAt   Instant         `json:"frozen_at"`
	Round      *uint64         `json:"round"`
	FreezeHash Hash            `json:"freeze_hash"`
	Beacon     *ProofBeacon    `json:"beacon"`
	Winners    []ProofWinner   `json:"winners"`
	Trust      string          `json:"trust"`
}

// ProofBeacon is the round of the beacon, with everything that verifies it.
type ProofBeacon struct {
	ChainHash   Hash   `json:"chain_hash"`
	PublicKey   Bytes  `json:"public_key"`
	GenesisTime int64  `json:"genesis_time"` // Unix seconds
	GenesisSeed Bytes  `json:"genesis_seed"`
	BeaconID    string `json:"beacon_id"`
	PeriodS     int    `json:"period_s"`
	Round       uint64 `json:"round"`
	Signature   Bytes  `json:"signature"`
	Randomness  Hash   `json:"randomness"`
}

// ProofWinner is the outcome of one prize. Of a prize that is not awarded, Awarded is false
// and there are no column and purchase; of any other, Awarded is left out.
type ProofWinner struct {
	Prize      int        `json:"prize"`
	Name       string     `json:"name"`
	Layer      int        `json:"layer"`
	Column     *int       `json:"column,omitempty"`
	PurchaseID *uuid.UUID `json:"purchase_id,omitempty"`
	Awarded    *bool      `json:"awarded,omitempty"`
}

// Record returns the freeze record that the document stands on. The secret is in it if the
// record was made with a beacon.
func (p Proof) Record() FreezeRecord {
	r := FreezeRecord{
		Version: p.Version, CampaignID: p.CampaignID, Commitment: p.Commitment, Root: p.Root, Count: p.Count,
		FrozenAt: p.FrozenAt, Round: p.Round,
	}
	if p.Round != nil {
		r.Secret = &p.Secret
	}
	return r
}

// WriteProof writes the proof document with its list of sold positions, in canonical form.
// It holds one line at a time. An error in the list ends the document where it is: it must
// not be taken for a whole one. That the parts fit together is not its business.
func WriteProof(w io.Writer, p Proof, sold iter.Seq2[SoldLine, error]) error {
	if p.Winners == nil {
		p.Winners = []ProofWinner{}
	}
	return writeDocument(w, &p, p.checkValues(), sold)
}

// ReadProof reads a proof document and passes its sold positions to each, line by line.
// It takes exactly what WriteProof writes: a *FormError says where a document is spelled in
// another way, or has not exactly its members. Errors of r and of each come back wrapped.
// That the parts fit together is for the other checks.
func ReadProof(r io.Reader, each func(SoldLine) error) (p Proof, err error) {
	if err = readDocument(r, &p, each); err == nil {
		err = p.checkValues()
	}
	if err != nil {
		return Proof{}, fmt.Errorf("fairdraw.ReadProof: %w", err)
	}
	return p, nil
}

// checkValues returns nil if every value is one that a document can have.
func (p Proof) checkValues() error {
	switch {
	case p.Version != Version:
		return malformed("version", "is %q; this procedure is %q", excerpt([]byte(p.Version)), Version)
	case p.Round != nil && *p.Round > maxInteger:
		return malformed("round", "is %d, which is no integer from 0 to 2^53 − 1", *p.Round)
	case p.Winners == nil:
		return malformed("winners", "is no list")
	}
	if err := checkInteger("count", p.Count); err != nil {
		return err
	}
	if b := p.Beacon; b != nil {
		if err := b.checkValues(); err != nil {
			return err
		}
	}
	for i, w := range p.Winners {
		if err := w.checkValues(); err != nil {
			return malformed("winners", "at %d: %s", i, err)
		}
	}
	return nil
}

// publicKeySize is the length of a chain's public key in bytes: a compressed point of G2.
const publicKeySize = 96

// checkValues refuses other lengths than those of the scheme: the hash of a chain is over its parts
// in a row, so a byte that moves from one to the next would not show.
func (b ProofBeacon) checkValues() error {
	switch {
	case !isInteger(int(b.GenesisTime), b.PeriodS) || b.Round > maxInteger:
		return malformed("beacon", "has a number that is no integer from 0 to 2^53 − 1")
	case len(b.PublicKey) != publicKeySize:
		return malformed("beacon", "has a public key of %d bytes, not %d", len(b.PublicKey), publicKeySize)
	case len(b.GenesisSeed) != sha256.Size:
		return malformed("beacon", "has a genesis seed of %d bytes, not %d", len(b.GenesisSeed), sha256.Size)
	}
	return nil
}

func (w ProofWinner) checkValues() error {
	won := w.Column != nil && w.PurchaseID != nil && w.Awarded == nil
	not := w.Column == nil && w.PurchaseID == nil && w.Awarded != nil && !*w.Awarded
	if !won && !not {
		return fmt.Errorf("prize %d has neither a column and a purchase nor \"awarded\": false", w.Prize)
	}
	if !isInteger(w.Prize, w.Layer) || won && !isInteger(*w.Column) {
		return fmt.Errorf("prize %d has a number that is no integer from 0 to 2^53 − 1", w.Prize)
	}
	return nil
}

// The distance of a beacon's round from the one that was newest when the list was frozen.
// The record is public before anybody can know its round.
const (
	RoundsAhead     = 10
	MostRoundsAhead = 30 // with a clock that is wrong by more, nothing is frozen
)

// FreezeRecord is what the draw will be made from: the sold list, as its root, and where
// its randomness will come from. It is public from its commit on.
type FreezeRecord struct {
	Version    string    `json:"version"`
	CampaignID uuid.UUID `json:"campaign_id"`
	Commitment Hash      `json:"commitment"`
	Root       Hash      `json:"root"`
	Count      int       `json:"count"` // leaves under the root
	FrozenAt   Instant   `json:"frozen_at"`
	Round      *uint64   `json:"round"`  // of the beacon; nil: no beacon
	Secret     *Hash     `json:"secret"` // revealed here with a beacon; else with the result
}

// Canonical returns the record as RFC 8785 canonical JSON, the bytes that FreezeHash takes.
func (r FreezeRecord) Canonical() ([]byte, error) { return canonical(r) }

// FreezeHash returns H("triprize-draw/1 freeze" || 0x00 || record): what people note before
// the round is due.
func FreezeHash(record []byte) Hash {
	return sha256.Sum256(append([]byte(Version+" freeze\x00"), record...))
}

// List is the list document without its list of sold positions: the frozen list, which is
// public before its round is due. Its canonical JSON, with the list as "sold", is the
// document. With the freeze record and the round, anybody computes the outcome from it.
type List struct {
	CampaignID uuid.UUID `json:"campaign_id"`
	Count      int       `json:"count"` // leaves under the root
	Root       Hash      `json:"root"`
}

// WriteList writes the list document with its list of sold positions, in canonical form. It
// holds one line at a time. An error in the list ends the document where it is, as in
// [WriteProof]. That the parts fit together is not its business.
func WriteList(w io.Writer, l List, sold iter.Seq2[SoldLine, error]) error {
	return writeDocument(w, &l, checkInteger("count", l.Count), sold)
}

// ReadList reads a list document and hands over its sold positions line by line. It takes
// exactly what WriteList writes: a *FormError says where a document is spelled in another
// way, or has not exactly its members. Errors of r and of each come back wrapped.
func ReadList(r io.Reader, each func(SoldLine) error) (l List, err error) {
	if err = readDocument(r, &l, each); err == nil {
		err = checkInteger("count", l.Count)
	}
	if err != nil {
		return List{}, fmt.Errorf("fairdraw.ReadList: %w", err)
	}
	return l, nil
}
