//go:build soak

package e2e

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// seeds is how many random runs a test makes.
func seeds() uint64 {
	if testing.Short() {
		return 2
	}
	return 20
}

// first is where short runs begin: each takes other moments.
var first = rand.IntN(4)

// someOf returns all moments, or every fourth in a short run. The names of the tests tell
// which.
func someOf(moments []string) (some []string) {
	if !testing.Short() {
		return moments
	}
	for i, m := range slices.Sorted(slices.Values(moments)) {
		if i%4 == first {
			some = append(some, m)
		}
	}
	return some
}
