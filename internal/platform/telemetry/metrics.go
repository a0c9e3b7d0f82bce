package telemetry

import (
	"context"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"triprize/internal/domain/buildinfo"
)

// NewRegistry returns a registry with the metrics of the Go runtime and the process, and
// with the release that it runs.
func NewRegistry() *prometheus.Registry {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	info := prometheus.NewGauge(prometheus.GaugeOpts{Name: "triprize_build_info", Help: "Always 1; the labels say which release runs.",
		ConstLabels: prometheus.Labels{"version": buildinfo.Version(), "goversion": runtime.Version()}})
	info.Set(1)
	registry.MustRegister(info)
	return registry
}

// Expect lets counters with one label begin at 0: Prometheus sees no increase from nothing.
func Expect[T ~string](counters *prometheus.CounterVec, values ...T) {
	for _, value := range values {
		counters.WithLabelValues(string(value))
	}
}

// RegisterPool exports how busy a connection pool is.
func RegisterPool(registry prometheus.Registerer, pool *pgxpool.Pool) {
	gauge := func(name, help string, value func(*pgxpool.Stat) float64) {
		registry.MustRegister(prometheus.NewGaugeFunc(
			prometheus.GaugeOpts{Name: "triprize_postgres_" + name, Help: help},
			func() float64 { return value(pool.Stat()) }))
	}
	gauge("connections", "Open connections.", func(s *pgxpool.Stat) float64 { return float64(s.TotalConns()) })
	gauge("connections_in_use", "Connections in use.", func(s *pgxpool.Stat) float64 { return float64(s.AcquiredConns()) })
	gauge("connections_max", "Most connections this process may open.", func(s *pgxpool.Stat) float64 { return float64(s.MaxConns()) })
}

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
