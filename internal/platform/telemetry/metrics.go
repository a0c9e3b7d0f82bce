package telemetry

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"triprize/internal/domain/buildinfo"
)

// NewRegistry returns a registry with the metrics of the Go runtime, the process and the release.
func NewRegistry() *prometheus.Registry {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	info := prometheus.NewGauge(prometheus.GaugeOpts{Name: "triprize_build_info", Help: "Always 1; the labels have the release.",
		ConstLabels: prometheus.Labels{"version": buildinfo.Version(), "goversion": runtime.Version()}})
	info.Set(1)
	registry.MustRegister(info)
	return registry
}

// Expect initializes counters with one label to 0: otherwise Prometheus misses the first increase.
func Expect[T ~string](counters *prometheus.CounterVec, values ...T) {
	for _, value := range values {
		counters.WithLabelValues(string(value))
	}
}

// RegisterPool exports the use of a connection pool.
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

// Gauges exports the gauges of the last Set. The registry checks those that are not described as they come.
type Gauges struct {
	mu    sync.Mutex
	known []prometheus.Metric
}

// Set replaces all gauges.
func (g *Gauges) Set(found ...prometheus.Metric) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.known = found
}

// Describe implements prometheus.Collector.
func (*Gauges) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (g *Gauges) Collect(out chan<- prometheus.Metric) {
	g.mu.Lock()
	known := g.known
	g.mu.Unlock()
	for _, m := range known {
		out <- m
	}
}

// bounded limits the duration of a collector.
type bounded struct {
	prometheus.Collector
	timeout      time.Duration
	isCollecting atomic.Bool
}

// Bounded limits the duration of a collector, so that it does not delay others. Metrics after timeout are left
// out. While the collector is still running it is not called again.
func Bounded(c prometheus.Collector, timeout time.Duration) prometheus.Collector {
	return &bounded{Collector: c, timeout: timeout}
}

// Collect implements prometheus.Collector.
func (b *bounded) Collect(out chan<- prometheus.Metric) {
	if !b.isCollecting.CompareAndSwap(false, true) {
		return
	}
	collected := make(chan prometheus.Metric)
	left := make(chan struct{}) // closed when Collect has returned
	defer close(left)
	go func() {
		defer b.isCollecting.Store(false)
		defer close(collected)
		all := make(chan prometheus.Metric)
		go func() { defer close(all); b.Collector.Collect(all) }()
		for m := range all { // to the end, so that the collector does not block
			select {
			case collected <- m:
			case <-left:
			}
		}
	}()
	over := time.NewTimer(b.timeout)
	defer over.Stop()
	for {
		select {
		case m, ok := <-collected:
			if !ok {
				return
			}
			out <- m
		case <-over.C:
			return
		}
	}
}
