package telemetry

import (
	"context"
	"log/slog"
	"sync"
	"time"

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

const (
	readTimeout = 2 * time.Second // of one reading
	readEvery   = 5 * time.Second // between two readings, however many ask
)

// readGauges are gauges that are read when somebody asks. When they cannot be read they are missing.
type readGauges struct {
	*Gauges
	read   func(ctx context.Context) ([]prometheus.Metric, error)
	logger *slog.Logger

	reading sync.Mutex
	at      time.Time
}

// ReadGauges returns a collector of gauges that read reads.
func ReadGauges(read func(ctx context.Context) ([]prometheus.Metric, error), logger *slog.Logger, descs ...*prometheus.Desc) prometheus.Collector {
	return Bounded(&readGauges{Gauges: NewGauges(descs...), read: read, logger: logger}, readTimeout)
}

// Collect implements prometheus.Collector.
func (g *readGauges) Collect(out chan<- prometheus.Metric) {
	g.reading.Lock()
	defer g.reading.Unlock()
	if g.at.IsZero() || time.Since(g.at) >= readEvery {
		ctx, cancel := context.WithTimeout(context.Background(), readTimeout)
		defer cancel()
		now, err := g.read(ctx)
		if err != nil {
			g.logger.Warn("what waits is not counted: its gauges are missing", "error", err)
			return
		}
		g.at = time.Now()
		g.Set(now...)
	}
	g.Gauges.Collect(out)
}
