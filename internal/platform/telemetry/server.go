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

// Serve answers /healthz, /readyz and /metrics on listen until ctx ends. With
// an empty listen it only waits. It is for operators: clients do not get here.
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
		ready := health.Ready() //nolint:contextcheck // a look is shared, and does not end with one request
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
		_ = server.Close() // scrapes are cheap to repeat
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

// scrapes shows the metrics of a registry. A collector that fails does not hold back the others.
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

// scrapeEvery is how long what was gathered is shared by all who ask.
const scrapeEvery = time.Second

// gathered gathers once in scrapeEvery at most, however many ask, unless it is told to forget.
type gathered struct {
	prometheus.Gatherer

	mu       sync.Mutex // held while it gathers: others wait for it, and share it
	at       time.Time
	families []*dto.MetricFamily
	err      error
}

// Gather implements prometheus.Gatherer.
func (g *gathered) Gather() ([]*dto.MetricFamily, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if time.Since(g.at) >= scrapeEvery {
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
