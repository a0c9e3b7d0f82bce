//go:build soak

package e2e

// seeds is how many random runs a test makes.
const seeds = 20

// someOf returns all moments.
func someOf(moments []string) []string { return moments }
