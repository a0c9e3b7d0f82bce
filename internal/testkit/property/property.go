// Package property tries a property on ten random cases, or on TRIPRIZE_TEST_CASES.
//
// -rapid.seed chooses them again. It is imported by tests only.
package property

import (
	"flag"
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
