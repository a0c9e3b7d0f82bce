package fairdraw

import (
	"fmt"
	"math"

	"github.com/transparency-dev/merkle/compact"
	"github.com/transparency-dev/merkle/proof"
	"github.com/transparency-dev/merkle/rfc6962"
)

// SubtreeLeaves is how many leaves stand under one subtree: a power of two, so each subtree
// is a node of the RFC 9162 tree.
const SubtreeLeaves = 1024

// Subtree is the node over SubtreeLeaves leaves in a row, the last one over the rest.
type Subtree struct {
	First Position // of its first leaf
	Hash  Hash
}

// RFC 9162 has the same tree hash as RFC 6962.
var (
	hasher = rfc6962.DefaultHasher
	ranges = &compact.RangeFactory{Hash: hasher.HashChildren}
)

// Tree is the RFC 9162 Merkle tree over the leaves of a sold list, built line by line. It
// keeps one node per SubtreeLeaves lines. The zero value is the empty tree.
type Tree struct {
	count    int
	last     Position
	subtrees []Subtree      // the whole ones, then the open one without its hash
	open     *compact.Range // of the last subtree, when it is not whole
}

// Append adds the next line. The list must be sorted by layer and column and without
// repetition, or nobody else could recompute its root; any other line is an error, and the
// tree stays as it was.
func (t *Tree) Append(line SoldLine) error {
	if p := line.Position(); t.count > 0 && !t.last.Before(p) {
		return fmt.Errorf("fairdraw.Tree: the sold list is not in order at %v", p)
	}
	return t.add(line)
}

// add appends a line. Nothing about the lines before it matters.
func (t *Tree) add(line SoldLine) error {
	p := line.Position()
	if p.Layer < 0 || p.Column < 0 || p.Layer > math.MaxUint32 || p.Column > math.MaxUint32 {
		return fmt.Errorf("fairdraw.Tree: %v does not fit into a leaf", p)
	}
	if t.open == nil {
		t.open = ranges.NewEmptyRange(0)
		t.subtrees = append(t.subtrees, Subtree{First: p})
	}
	leaf := LeafHash(line.Leaf())
	if err := t.open.Append(leaf[:], nil); err != nil {
		return fmt.Errorf("fairdraw.Tree: %w", err)
	}
	t.count, t.last = t.count+1, p
	if t.open.End() == SubtreeLeaves {
		t.subtrees[len(t.subtrees)-1].Hash = rootOf(t.open)
		t.open = nil
	}
	return nil
}

// Count returns the number of leaves.
func (t *Tree) Count() int { return t.count }

// Subtrees returns the nodes over SubtreeLeaves leaves each, in order; none of nothing.
func (t *Tree) Subtrees() []Subtree {
	list := append([]Subtree(nil), t.subtrees...)
	if t.open != nil {
		list[len(list)-1].Hash = rootOf(t.open)
	}
	return list
}

// Root returns the root. That of nothing is the hash of nothing.
func (t *Tree) Root() Hash {
	subtrees := t.Subtrees()
	hashes := make([]Hash, len(subtrees))
	for i, s := range subtrees {
		hashes[i] = s.Hash
	}
	return rootOver(hashes)
}

// RootOf returns the root over lines in the order in which they stand. It does not check that they
// are sorted.
func RootOf(lines []SoldLine) (Hash, error) {
	var tree Tree
	for _, line := range lines {
		if err := tree.add(line); err != nil {
			return Hash{}, err
		}
	}
	return tree.Root(), nil
}

// LeafHash returns H(0x00 || leaf).
func LeafHash(leaf []byte) Hash { return Hash(hasher.HashLeaf(leaf)) }

// rootOver returns the root over nodes in a row, which are whole but for the last.
func rootOver(nodes []Hash) Hash {
	if len(nodes) == 0 {
		return Hash(hasher.EmptyRoot())
	}
	r := ranges.NewEmptyRange(0)
	for i := range nodes {
		if err := r.Append(nodes[i][:], nil); err != nil {
			panic(err) // only a range of another factory is refused
		}
	}
	return rootOf(r)
}

func rootOf(r *compact.Range) Hash {
	root, err := r.GetRootHash(nil)
	if err != nil {
		panic(err) // only a range that does not begin at 0 is refused
	}
	return Hash(root)
}

// InclusionPath returns the RFC 9162 path of leaf index, from the leaf upwards. page has the hashes of
// the leaves that share its subtree (LeafHash of leaves index − index mod SubtreeLeaves and following),
// subtrees the hashes of all subtrees in order. Whether they are those under a root,
// [PurchaseProof.CheckPaths] says.
func InclusionPath(page, subtrees []Hash, index int) ([]Hash, error) {
	if index < 0 {
		return nil, fmt.Errorf("fairdraw.InclusionPath: there is no leaf %d", index)
	}
	within, err := pathAmong(page, index%SubtreeLeaves)
	if err != nil {
		return nil, err
	}
	above, err := pathAmong(subtrees, index/SubtreeLeaves)
	if err != nil {
		return nil, err
	}
	return append(within, above...), nil
}

// pathAmong returns the path of one of some nodes in a row.
func pathAmong(nodes []Hash, index int) ([]Hash, error) {
	plan, err := proof.Inclusion(uint64(index), uint64(len(nodes))) //nolint:gosec // not negative; proof.Inclusion refuses what is too large
	if err != nil {
		return nil, fmt.Errorf("fairdraw.InclusionPath: %w", err)
	}
	hashes := make([][]byte, len(plan.IDs))
	for i, id := range plan.IDs {
		begin, end := id.Coverage()
		node := rootOver(nodes[begin:end])
		hashes[i] = node[:]
	}
	if hashes, err = plan.Rehash(hashes, hasher.HashChildren); err != nil {
		return nil, fmt.Errorf("fairdraw.InclusionPath: %w", err)
	}
	path := make([]Hash, len(hashes))
	for i, h := range hashes {
		path[i] = Hash(h)
	}
	return path, nil
}

// checkInclusion returns nil if path shows that leaf stands at index among count leaves
// under root.
func checkInclusion(leaf []byte, index, count int, path []Hash, root Hash) error {
	if index < 0 || index >= count {
		return fmt.Errorf("there is no leaf %d among %d", index, count)
	}
	hashes := make([][]byte, len(path))
	for i := range path {
		hashes[i] = path[i][:]
	}
	hash := LeafHash(leaf)
	got, err := proof.RootFromInclusionProof(hasher, uint64(index), uint64(count), hash[:], hashes) //nolint:gosec // checked above
	if err != nil {
		return fmt.Errorf("the path of leaf %d: %w", index, err)
	}
	if Hash(got) != root {
		return fmt.Errorf("the path of leaf %d leads to the root %x, not to %s", index, got, root)
	}
	return nil
}
