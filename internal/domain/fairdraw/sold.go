package fairdraw

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"github.com/google/uuid"
	"github.com/transparency-dev/merkle/compact"
	"github.com/transparency-dev/merkle/rfc6962"

	"triprize/internal/domain/triangle"
)

// NonceSize is the length in bytes of a purchase's nonce, known only to its owner.
const NonceSize = 16

// Sold is one sold position. A list of them is sorted by layer, then column.
type Sold struct {
	triangle.Position
	PurchaseID uuid.UUID
	Nonce      [NonceSize]byte
	UserID     string
}

// Leaf returns layer (4) || column (4) || purchase_id (16) || H(nonce || user_id) (32):
// it can be published and does not show who the buyer is.
func (s Sold) Leaf() []byte {
	leaf := make([]byte, 0, 4+4+16+sha256.Size)
	leaf = binary.BigEndian.AppendUint32(leaf, uint32(s.Layer))  //nolint:gosec // a layer is at most 1000
	leaf = binary.BigEndian.AppendUint32(leaf, uint32(s.Column)) //nolint:gosec // a column is at most 1000
	leaf = append(leaf, s.PurchaseID[:]...)
	owner := sha256.New()
	owner.Write(s.Nonce[:])
	owner.Write([]byte(s.UserID))
	return owner.Sum(leaf)
}

// Root returns the RFC 9162 Merkle tree root over the leaves of the sold list.
// The list must be sorted and without repetition, or nobody else could recompute
// its root; any other list is an error.
func Root(sold []Sold) ([sha256.Size]byte, error) {
	hasher := rfc6962.DefaultHasher // RFC 9162 has the same tree hash as RFC 6962
	if len(sold) == 0 {
		return [sha256.Size]byte(hasher.EmptyRoot()), nil
	}
	tree := (&compact.RangeFactory{Hash: hasher.HashChildren}).NewEmptyRange(0)
	for i, s := range sold {
		if i > 0 && !sold[i-1].Before(s.Position) {
			return [sha256.Size]byte{}, fmt.Errorf("fairdraw.Root: the sold list is not in order at %v", s.Position)
		}
		if err := tree.Append(hasher.HashLeaf(s.Leaf()), nil); err != nil {
			return [sha256.Size]byte{}, fmt.Errorf("fairdraw.Root: %w", err)
		}
	}
	root, err := tree.GetRootHash(nil)
	if err != nil {
		return [sha256.Size]byte{}, fmt.Errorf("fairdraw.Root: %w", err)
	}
	return [sha256.Size]byte(root), nil
}
