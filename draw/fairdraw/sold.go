package fairdraw

import (
	"crypto/sha256"
	"encoding/binary"

	"github.com/google/uuid"
)

// LeafSize is the length in bytes of a leaf.
const LeafSize = 4 + 4 + 16 + sha256.Size

// NonceSize is the length in bytes of a purchase's nonce, known only to its owner.
const NonceSize = 16

// Position is one place; Layer and Column count from 1.
type Position struct {
	Layer  int `json:"layer"`
	Column int `json:"column"`
}

// Before orders positions by layer, then column: the order of lists and leaves.
func (p Position) Before(q Position) bool {
	if p.Layer != q.Layer {
		return p.Layer < q.Layer
	}
	return p.Column < q.Column
}

// Sold is one sold position with what only its owner may see. A list of them is sorted by
// layer, then column.
type Sold struct {
	Position
	PurchaseID uuid.UUID
	Nonce      [NonceSize]byte
	UserID     string
}

// Line returns the position as it is published.
func (s Sold) Line() SoldLine {
	return SoldLine{Layer: s.Layer, Column: s.Column, PurchaseID: s.PurchaseID, Holder: Holder(s.Nonce[:], s.UserID)}
}

// Leaf returns the leaf of the position's published line.
func (s Sold) Leaf() []byte { return s.Line().Leaf() }

// Lines returns a sold list as it is published.
func Lines(sold []Sold) []SoldLine {
	lines := make([]SoldLine, len(sold))
	for i, s := range sold {
		lines[i] = s.Line()
	}
	return lines
}

// Holder returns H(nonce || user_id): it shows nobody the buyer, and the buyer, who has the
// nonce, that the line is its own.
func Holder(nonce []byte, userID string) Hash {
	h := sha256.New()
	h.Write(nonce)
	h.Write([]byte(userID))
	return Hash(h.Sum(nil))
}

// SoldLine is a sold position as it is published: it does not show who the buyer is.
type SoldLine struct {
	Layer      int       `json:"layer"`
	Column     int       `json:"column"`
	PurchaseID uuid.UUID `json:"purchase_id"`
	Holder     Hash      `json:"holder"` // H(nonce || user_id)
}

// Position returns where the line stands.
func (l SoldLine) Position() Position { return Position{Layer: l.Layer, Column: l.Column} }

// Leaf returns layer (4) || column (4) || purchase_id (16) || holder (32), the bytes that
// stand in the tree.
func (l SoldLine) Leaf() []byte {
	return l.AppendLeaf(make([]byte, 0, LeafSize))
}

// AppendLeaf appends the leaf.
func (l SoldLine) AppendLeaf(leaf []byte) []byte {
	leaf = binary.BigEndian.AppendUint32(leaf, uint32(l.Layer))  //nolint:gosec // Tree.Append bounds it
	leaf = binary.BigEndian.AppendUint32(leaf, uint32(l.Column)) //nolint:gosec // Tree.Append bounds it
	leaf = append(leaf, l.PurchaseID[:]...)
	return append(leaf, l.Holder[:]...)
}

// LineOf returns the line of a leaf, which has LeafSize bytes.
func LineOf(leaf []byte) SoldLine {
	return SoldLine{
		Layer: int(binary.BigEndian.Uint32(leaf)), Column: int(binary.BigEndian.Uint32(leaf[4:])),
		PurchaseID: uuid.UUID(leaf[8:24]), Holder: Hash(leaf[24:LeafSize]),
	}
}
