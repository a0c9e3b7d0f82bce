package verify

import (
	"bytes"
	"testing"

	"triprize.example/draw/fairdraw"
	"triprize.example/draw/testkit/drawn"
)

// The largest triangle, and 1,000 prizes: about 100 MB.
func BenchmarkTheLargestProof(b *testing.B) {
	m := drawn.Triangle(1000)
	m.Rules.Prizes = m.Rules.Prizes[:1000]
	m.WithBeacon()
	text := m.Text(b)
	b.SetBytes(int64(len(text)))
	b.ReportMetric(float64(len(m.Sold)), "positions")
	for b.Loop() {
		report, err := Proof(bytes.NewReader(text), Options{Chains: []fairdraw.Hash{m.Chain.Hash()}})
		if err != nil || !report.OK {
			b.Fatalf("%+v, %v", report, err)
		}
	}
}
