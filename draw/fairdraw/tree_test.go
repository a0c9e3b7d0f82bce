package fairdraw

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"testing"

	"github.com/google/uuid"
)

// line returns the i-th line of a long list: a made-up purchase in column i + 1 of layer 1.
func line(i int) SoldLine {
	seed := sha256.Sum256(binary.BigEndian.AppendUint64(nil, uint64(i)))
	return SoldLine{Layer: 1, Column: i + 1, PurchaseID: uuid.UUID(seed[:16]), Holder: seed}
}

func grow(t testing.TB, n int) (tree *Tree, leaves []Hash) {
	t.Helper()
	tree = new(Tree)
	for i := range n {
		if err := tree.Append(line(i)); err != nil {
			t.Fatal(err)
		}
		leaves = append(leaves, LeafHash(line(i).Leaf()))
	}
	return tree, leaves
}

// rootByDefinition is RFC 9162, section 2.1.1, word by word.
func rootByDefinition(leaves []Hash) Hash {
	switch len(leaves) {
	case 0:
		return sha256.Sum256(nil)
	case 1:
		return leaves[0]
	}
	k := split(len(leaves))
	left, right := rootByDefinition(leaves[:k]), rootByDefinition(leaves[k:])
	return sha256.Sum256(slices.Concat([]byte{1}, left[:], right[:]))
}

// pathByDefinition is RFC 9162, section 2.1.3.1, word by word.
func pathByDefinition(leaves []Hash, index int) []Hash {
	if len(leaves) == 1 {
		return nil
	}
	if k := split(len(leaves)); index < k {
		return append(pathByDefinition(leaves[:k], index), rootByDefinition(leaves[k:]))
	} else { //nolint:revive // as the RFC has it
		return append(pathByDefinition(leaves[k:], index-k), rootByDefinition(leaves[:k]))
	}
}

// split returns the largest power of two below n.
func split(n int) int {
	k := 1
	for k*2 < n {
		k *= 2
	}
	return k
}

func TestTheTreeHasTheRootAndThePathsOfTheRFC(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, 1, 2, 3, 5, 8, 1022, 1023, 1024, 1025, 1026, 2047, 2048, 2049, 3073, 5000, 500_500} {
		tree, leaves := grow(t, n)
		root := tree.Root()
		if want := rootByDefinition(leaves); root != want {
			t.Errorf("%d leaves: root %s, want %s", n, root, want)
		}
		if got, want := len(tree.Subtrees()), (n+SubtreeLeaves-1)/SubtreeLeaves; tree.Count() != n || got != want {
			t.Errorf("%d leaves: count %d and %d subtrees, want %d", n, tree.Count(), got, want)
		}
		for i, s := range tree.Subtrees() {
			page := leaves[i*SubtreeLeaves : min((i+1)*SubtreeLeaves, n)]
			if s.First != line(i*SubtreeLeaves).Position() || s.Hash != rootByDefinition(page) {
				t.Errorf("%d leaves: subtree %d is %v", n, i, s)
			}
		}
		for _, index := range []int{0, 1, n / 2, 1022, 1023, 1024, 1025, n - 2, n - 1} {
			if index >= 0 && index < n {
				checkPath(t, tree, leaves, index, root)
			}
		}
	}
}

func checkPath(t *testing.T, tree *Tree, leaves []Hash, index int, root Hash) {
	t.Helper()
	path, err := InclusionPath(page(leaves, index), nodes(tree), index)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(path, pathByDefinition(leaves, index)) {
		t.Errorf("leaf %d of %d has another path", index, len(leaves))
	}
	leaf := line(index).Leaf()
	if err := checkInclusion(leaf, index, len(leaves), path, root); err != nil {
		t.Error(err)
	}
	if checkInclusion(line(index+1).Leaf(), index, len(leaves), path, root) == nil {
		t.Errorf("the path of leaf %d of %d shows another leaf", index, len(leaves))
	}
	if checkInclusion(leaf, index+1, len(leaves), path, root) == nil {
		t.Errorf("the path of leaf %d of %d shows it at the next index", index, len(leaves))
	}
	if checkInclusion(leaf, index, len(leaves), append(path, root), root) == nil {
		t.Errorf("a longer path shows leaf %d of %d", index, len(leaves))
	}
}

func page(leaves []Hash, index int) []Hash {
	begin := index / SubtreeLeaves * SubtreeLeaves
	return leaves[begin:min(begin+SubtreeLeaves, len(leaves))]
}

func nodes(tree *Tree) (hashes []Hash) {
	for _, s := range tree.Subtrees() {
		hashes = append(hashes, s.Hash)
	}
	return hashes
}

func TestAPathIsRefusedOverLeavesThatAreNotThose(t *testing.T) {
	t.Parallel()
	tree, leaves := grow(t, 2100)
	changed := slices.Clone(page(leaves, 0))
	changed[7][0] ^= 1
	for name, c := range map[string]struct {
		page, nodes []Hash
		index       int
	}{
		"another page":        {page(leaves, 0), nodes(tree), 1030},
		"a short page":        {page(leaves, 0)[1:], nodes(tree), 3},
		"a subtree less":      {page(leaves, 0), nodes(tree)[:2], 3},
		"an index too high":   {page(leaves, 2099), nodes(tree), 2100},
		"an index below 0":    {page(leaves, 0), nodes(tree), -1},
		"a leaf of nothing":   {nil, nil, 0},
		"a changed neighbour": {changed, nodes(tree), 3},
	} {
		path, err := InclusionPath(c.page, c.nodes, c.index)
		if err == nil && checkInclusion(line(c.index).Leaf(), c.index, tree.Count(), path, tree.Root()) == nil {
			t.Errorf("%s: it has a path of %d", name, len(path))
		}
	}
}

func TestATreeTakesASortedListOnly(t *testing.T) {
	t.Parallel()
	tree, leaves := grow(t, 5)
	for _, wrong := range []SoldLine{line(4), line(0), {Layer: 0, Column: 9}, {Layer: -1, Column: 1}, {Layer: 1 << 32, Column: 1}} {
		if tree.Append(wrong) == nil {
			t.Errorf("%v was taken after %v", wrong.Position(), line(4).Position())
		}
	}
	if tree.Root() != rootByDefinition(leaves) {
		t.Error("a line that was refused is in the tree")
	}
}
