package verify

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"triprize.example/draw/fairdraw"
)

// Draw is what a server says of a draw that may never take place: of the answer of
// GET /v1/campaigns/{id}/draw, the members from which the winners follow.
type Draw struct {
	State  string                `json:"state"` // of the campaign
	Rules  *fairdraw.Rules       `json:"rules"`
	Secret *fairdraw.Hash        `json:"secret"`
	Chain  *fairdraw.ProofBeacon `json:"chain"` // without its round
	Freeze *struct {
		Hash   fairdraw.Hash         `json:"hash"`
		Record fairdraw.FreezeRecord `json:"record"`
	} `json:"freeze"`
}

// Void verifies the proof document that a draw would have left: of the answer about the draw, the list
// document, and the signature of the round (48 bytes). The winners of the report are those that would
// have won. An error means that the files could not be read, or that no winners follow from them.
func Void(draw, list io.Reader, signature []byte, o Options) (Report, error) {
	var d Draw
	if err := json.NewDecoder(io.LimitReader(draw, fairdraw.MaxDocument)).Decode(&d); err != nil {
		return Report{}, fmt.Errorf("the draw cannot be read: %w", err)
	}
	var sold []fairdraw.SoldLine
	l, err := fairdraw.ReadList(list, func(line fairdraw.SoldLine) error {
		sold = append(sold, line)
		return nil
	})
	if err != nil {
		return Report{}, fmt.Errorf("the list cannot be read: %w", err)
	}
	p, err := d.proof(l, sold, signature)
	if err != nil {
		return Report{}, err
	}
	var document bytes.Buffer
	err = fairdraw.WriteProof(&document, p, func(yield func(fairdraw.SoldLine, error) bool) {
		for _, line := range sold {
			if !yield(line, nil) {
				return
			}
		}
	})
	if err != nil {
		return Report{}, err
	}
	return Proof(&document, o)
}

// proof returns the document without its list.
func (d Draw) proof(l fairdraw.List, sold []fairdraw.SoldLine, signature []byte) (fairdraw.Proof, error) {
	switch {
	case d.State == "completed":
		return fairdraw.Proof{}, errors.New("the draw took place: its proof has the winners (GET /v1/campaigns/{id}/draw/proof)")
	case d.Rules == nil:
		return fairdraw.Proof{}, errors.New("the draw has no rules: the campaign was never published")
	case d.Rules.Beacon == nil:
		return fairdraw.Proof{}, errors.New("the draw has no beacon: its secret stays hidden until the result, so nobody can compute who would have won")
	case d.Freeze == nil:
		return fairdraw.Proof{}, errors.New("the draw has no freeze record: nothing follows from a list that was never frozen")
	case d.Chain == nil || d.Secret == nil || d.Freeze.Record.Round == nil:
		return fairdraw.Proof{}, errors.New("the draw has a beacon, but not its chain, its round, and its secret")
	case l.CampaignID != d.Freeze.Record.CampaignID:
		return fairdraw.Proof{}, fmt.Errorf("the list is of campaign %s, and the draw of %s", l.CampaignID, d.Freeze.Record.CampaignID)
	case l.Root != d.Freeze.Record.Root || l.Count != d.Freeze.Record.Count:
		return fairdraw.Proof{}, errors.New("the list is not the one of the freeze record: it has another root or count")
	}
	rules, err := d.Rules.Canonical()
	if err != nil {
		return fairdraw.Proof{}, err
	}
	record, chain := d.Freeze.Record, *d.Chain
	chain.Round, chain.Signature, chain.Randomness = *record.Round, signature, sha256.Sum256(signature)
	p := fairdraw.Proof{
		Version: record.Version, CampaignID: record.CampaignID, Rules: rules, Commitment: record.Commitment, Secret: *d.Secret, Root: record.Root,
		Count: record.Count, FrozenAt: record.FrozenAt, Round: record.Round, FreezeHash: d.Freeze.Hash, Beacon: &chain, Trust: fairdraw.TrustBeacon,
	}
	entropy := fairdraw.Entropy(p.Secret[:], p.CampaignID, p.Root, chain.Randomness[:])
	p.Winners = fairdraw.Winners(fairdraw.Select(d.Rules.Prizes, sold, fairdraw.NewStream(entropy)))
	return p, nil
}
