package fairdraw

import (
	"fmt"

	"github.com/transparency-dev/merkle/proof"
)

// InclusionPath returns the RFC 9162 path of leaf index among count leaves, from the leaf
// upwards. page has the hashes of the leaves that share its subtree (LeafHash of leaves
// index − index mod SubtreeLeaves and following), subtrees the hashes of all subtrees in
// order. A page that is not the one under its subtree is an error.
func InclusionPath(page, subtrees []Hash, index, count int) ([]Hash, error) {
	if index < 0 || index >= count {
		return nil, fmt.Errorf("fairdraw.InclusionPath: there is no leaf %d among %d", index, count)
	}
	if want := (count + SubtreeLeaves - 1) / SubtreeLeaves; len(subtrees) != want {
		return nil, fmt.Errorf("fairdraw.InclusionPath: %d subtrees over %d leaves, want %d", len(subtrees), count, want)
	}
	number := index / SubtreeLeaves
	if want := min(count-number*SubtreeLeaves, SubtreeLeaves); len(page) != want {
		return nil, fmt.Errorf("fairdraw.InclusionPath: %d leaves under subtree %d, want %d", len(page), number, want)
	}
	if rootOver(page) != subtrees[number] {
		return nil, fmt.Errorf("fairdraw.InclusionPath: the leaves are not those under subtree %d", number)
	}
	within, err := pathAmong(page, index%SubtreeLeaves)
	if err != nil {
		return nil, err
	}
	above, err := pathAmong(subtrees, number)
	if err != nil {
		return nil, err
	}
	return append(within, above...), nil
}

// pathAmong returns the path of one of some nodes in a row.
func pathAmong(nodes []Hash, index int) ([]Hash, error) {
	plan, err := proof.Inclusion(uint64(index), uint64(len(nodes))) //nolint:gosec // the caller has checked the bounds
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

// CheckInclusion returns nil if path shows that leaf stands at index among count leaves
// under root.
func CheckInclusion(leaf []byte, index, count int, path []Hash, root Hash) error {
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
