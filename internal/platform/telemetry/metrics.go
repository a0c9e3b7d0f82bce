package telemetry

import (
	"runtime"

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
