package verify

import (
	"bytes"
	"testing"

	"triprize/internal/domain/fairdraw"
)

// The largest triangle, and 1,000 prizes: about 100 MB. ADR 26 has figures.
func BenchmarkTheLargestProof(b *testing.B) {
	m := newMade(1000)
	m.rules.Prizes = m.rules.Prizes[:1000]
	m.withBeacon(b)
	text := m.text(b)
	b.SetBytes(int64(len(text)))
	b.ReportMetric(float64(len(m.sold)), "positions")
	for b.Loop() {
		report, err := Proof(bytes.NewReader(text), Options{Chains: []fairdraw.Hash{m.chain.hash()}})
		if err != nil || !report.OK {
			b.Fatalf("%+v, %v", report, err)
		}
	}
}
