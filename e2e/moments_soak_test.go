//go:build soak

package e2e

import (
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

// someOf returns all moments, or every fourth in a short run.
func someOf(moments []string) (some []string) {
	if !testing.Short() {
		return moments
	}
	for i, m := range slices.Sorted(slices.Values(moments)) {
		if i%4 == 1 {
			some = append(some, m)
		}
	}
	return some
}
