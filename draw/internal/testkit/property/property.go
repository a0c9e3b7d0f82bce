// Package property tries a property on ten random cases, or on TRIPRIZE_TEST_CASES.
//
// A test says by which seed it chose them, and
// -rapid.seed chooses them again. It is imported by tests only.
package property

import (
	"flag"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"

	"pgregory.net/rapid"
)

const casesVariable = "TRIPRIZE_TEST_CASES"

var cases = sync.OnceValues(func() (int, error) {
	n := 10
	if text := os.Getenv(casesVariable); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil || n < 1 {
			return 0, &strconv.NumError{Func: casesVariable, Num: text, Err: strconv.ErrRange}
		}
	}
	return n, flag.Set("rapid.checks", strconv.Itoa(n))
})

// Cases returns how many cases are tried.
func Cases(t testing.TB) int {
	t.Helper()
	n, err := cases()
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// Check tries a property. Rapid tells the seed of a case that fails.
func Check(t *testing.T, property func(*rapid.T)) {
	t.Helper()
	Cases(t)
	rapid.Check(t, property)
}

// Sample returns as many numbers below n as there are cases, or all of them, in order.
func Sample(t testing.TB, n int) []int {
	t.Helper()
	wanted := min(Cases(t), n)
	seed, err := strconv.ParseUint(flag.Lookup("rapid.seed").Value.String(), 10, 64)
	if err != nil || seed == 0 {
		seed = rand.Uint64() //nolint:gosec // chooses cases of tests
	}
	t.Logf("%d of %d, by -rapid.seed=%d", wanted, n, seed)
	random := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // the same cases for the same seed
	sample := make([]int, 0, wanted)
	for i := range n {
		if random.IntN(n-i) < wanted-len(sample) {
			sample = append(sample, i)
		}
	}
	return sample
}
