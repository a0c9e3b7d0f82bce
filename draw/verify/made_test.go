package verify

import (
	"bytes"
	"testing"

	"triprize.example/draw/fairdraw"
	"triprize.example/draw/testkit/drawn"
)

// optionsOf accept the campaign's chain.
func optionsOf(m *drawn.Draw) Options {
	if m.Chain == nil {
		return Options{}
	}
	return Options{Chains: []fairdraw.Hash{m.Chain.Hash()}}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// verified returns the report about a document.
func verified(t testing.TB, text []byte, o Options) Report {
	t.Helper()
	report, err := Proof(bytes.NewReader(text), o)
	must(t, err)
	return report
}
