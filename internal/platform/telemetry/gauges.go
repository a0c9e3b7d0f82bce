package telemetry

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// Gauges shows what the last look has found. A gauge that the look leaves out is missing.
type Gauges struct {
	descs []*prometheus.Desc

	mu    sync.Mutex
	known []prometheus.Metric
}

// NewGauges returns the collector of gauges with these descriptions. None is known yet.
func NewGauges(descs ...*prometheus.Desc) *Gauges { return &Gauges{descs: descs} }

// Set replaces all gauges.
func (g *Gauges) Set(found ...prometheus.Metric) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.known = found
}

// Describe implements prometheus.Collector.
func (g *Gauges) Describe(out chan<- *prometheus.Desc) {
	for _, d := range g.descs {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (g *Gauges) Collect(out chan<- prometheus.Metric) {
	g.mu.Lock()
	known := g.known
	g.mu.Unlock()
	for _, m := range known {
		out <- m
	}
}
