package fairdraw

import (
	"errors"
	"fmt"
	"io"

	"github.com/google/uuid"
)

// PurchaseProof shows a buyer that its positions are among the frozen ones. It is for the
// buyer only: it has the nonce.
type PurchaseProof struct {
	CampaignID uuid.UUID   `json:"campaign_id"`
	Root       Hash        `json:"root"`
	Count      int         `json:"count"` // leaves under the root
	Leaves     []ProofLeaf `json:"leaves"`
}

// ProofLeaf is one leaf with its RFC 9162 inclusion path.
type ProofLeaf struct {
	Layer      int       `json:"layer"`
	Column     int       `json:"column"`
	PurchaseID uuid.UUID `json:"purchase_id"`
	Nonce      Bytes     `json:"nonce"` // NonceSize bytes
	UserID     string    `json:"user_id"`
	Index      int       `json:"index"` // from 0, in the order of layer and column
	Path       []Hash    `json:"path"`  // from the leaf upwards
}

// Line returns the leaf as it is published.
func (l ProofLeaf) Line() SoldLine {
	return SoldLine{Layer: l.Layer, Column: l.Column, PurchaseID: l.PurchaseID, Holder: Holder(l.Nonce, l.UserID)}
}

// Canonical returns the proof of purchase as RFC 8785 canonical JSON.
func (p PurchaseProof) Canonical() ([]byte, error) {
	if err := p.checkValues(); err != nil {
		return nil, fmt.Errorf("fairdraw.PurchaseProof: %w", err)
	}
	return canonical(p)
}

// ReadPurchaseProof reads what Canonical returns. A *FormError says where a document is
// spelled in another way; errors of r come back wrapped.
func ReadPurchaseProof(r io.Reader) (PurchaseProof, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxMember+1))
	if err != nil {
		return PurchaseProof{}, fmt.Errorf("fairdraw.ReadPurchaseProof: %w", err)
	}
	if len(text) > maxMember {
		return PurchaseProof{}, malformed("", "is longer than %d bytes", maxMember)
	}
	var p PurchaseProof
	if err := decodeCanonical(text, &p); err != nil {
		return PurchaseProof{}, malformed("", "%s", err)
	}
	if err := p.checkValues(); err != nil {
		return PurchaseProof{}, err
	}
	return p, nil
}

// checkValues returns nil if every value is one that the document can have.
func (p PurchaseProof) checkValues() error {
	if err := checkInteger("count", p.Count); err != nil {
		return err
	}
	if len(p.Leaves) == 0 {
		return malformed("leaves", "is no list of at least one leaf")
	}
	for i, l := range p.Leaves {
		switch {
		case len(l.Nonce) != NonceSize:
			return malformed("leaves", "at %d: the nonce has %d bytes, not %d", i, len(l.Nonce), NonceSize)
		case l.Path == nil:
			return malformed("leaves", "at %d: the path is no list", i)
		case !isInteger(l.Layer, l.Column, l.Index):
			return malformed("leaves", "at %d: a number is no integer from 0 to 2^53 − 1", i)
		}
	}
	return nil
}

// CheckPaths returns nil if every leaf stands under the root, at ascending indexes, else
// what is wrong, for each leaf.
func (p PurchaseProof) CheckPaths() error {
	var wrong []error
	last := -1
	for _, l := range p.Leaves {
		if l.Index <= last {
			wrong = append(wrong, fmt.Errorf("leaf %d stands behind leaf %d", l.Index, last))
		}
		last = l.Index
		if err := checkInclusion(l.Line().Leaf(), l.Index, p.Count, l.Path, p.Root); err != nil {
			wrong = append(wrong, err)
		}
	}
	return errors.Join(wrong...)
}
