package telemetry

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
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

// bounded limits how long a collector may take, such as one that asks a server.
type bounded struct {
	prometheus.Collector
	patience time.Duration
	asking   atomic.Bool
}

// Bounded lets a collector take no longer than patience. Later metrics are
// left out, so that it does not delay others. While it is
// still busy it is not asked again.
func Bounded(c prometheus.Collector, patience time.Duration) prometheus.Collector {
	return &bounded{Collector: c, patience: patience}
}

// Collect implements prometheus.Collector.
func (b *bounded) Collect(out chan<- prometheus.Metric) {
	if !b.asking.CompareAndSwap(false, true) {
		return
	}
	told := make(chan prometheus.Metric)
	left := make(chan struct{}) // closed when Collect has returned
	defer close(left)
	go func() {
		defer b.asking.Store(false)
		defer close(told)
		all := make(chan prometheus.Metric)
		go func() { defer close(all); b.Collector.Collect(all) }()
		for m := range all { // to the end, so that the collector does not block
			select {
			case told <- m:
			case <-left:
			}
		}
	}()
	over := time.NewTimer(b.patience)
	defer over.Stop()
	for {
		select {
		case m, ok := <-told:
			if !ok {
				return
			}
			out <- m
		case <-over.C:
			return
		}
	}
}
