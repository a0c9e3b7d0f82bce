//go:build !soak

package e2e

import "slices"

// seeds is how many random runs a test makes.
const seeds = 2

// someOf returns every fourth of the moments; the soak tries all.
func someOf(moments []string) (some []string) {
	for i, m := range slices.Sorted(slices.Values(moments)) {
		if i%4 == 1 {
			some = append(some, m)
		}
	}
	return some
}
