package telemetry

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
)

// Serve serves /healthz, /readyz and /metrics to operators on listen until ctx ends. With an empty listen it only
// waits.
func Serve(ctx context.Context, listen string, health *Health, registry *prometheus.Registry) error {
	if listen == "" {
		<-ctx.Done()
		return nil
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, map[string]string{"status": StatusOK})
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		ready := health.Ready() //nolint:contextcheck // checks are shared and do not end with one request
		answer(w, ready.HTTPStatus(), ready)
	})
	mux.Handle("GET /metrics", scrapes(registry))
	server := &http.Server{
		Handler:           mux,
		ReadHeaderTimeout: 5 * time.Second,
		WriteTimeout:      10 * time.Second,
		IdleTimeout:       time.Minute,
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", listen)
	if err != nil {
		return err
	}
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		<-ctx.Done()
		_ = server.Close() // scrapes can be repeated
	}()
	err = server.Serve(listener)
	if ctx.Err() == nil {
		return err
	}
	<-stopped
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}

// scrapes serves the metrics of a registry, without those of failing collectors.
func scrapes(registry prometheus.Gatherer) http.Handler {
	shared := &gathered{Gatherer: registry}
	page := promhttp.HandlerFor(shared, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError, DisableCompression: true})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Cache-Control") == "no-cache" {
			shared.forget()
		}
		page.ServeHTTP(w, r)
	})
}

// scrapeInterval is how long all scrapes share the gathered metrics.
const scrapeInterval = time.Second

// gathered gathers at most once per scrapeInterval, unless forget is called.
type gathered struct {
	prometheus.Gatherer

	mu       sync.Mutex // held while it gathers: concurrent scrapes share the result
	at       time.Time
	families []*dto.MetricFamily
	err      error
}

// Gather implements prometheus.Gatherer.
func (g *gathered) Gather() ([]*dto.MetricFamily, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if time.Since(g.at) >= scrapeInterval {
		g.families, g.err = g.Gatherer.Gather()
		g.at = time.Now()
	}
	return g.families, g.err
}

func (g *gathered) forget() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.at = time.Time{}
}
