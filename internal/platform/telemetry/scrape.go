package telemetry

import (
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
)

// scrapeEvery is how long gathered metrics are shared by all who ask.
const scrapeEvery = time.Second

// scrapesAtOnce bounds the scrapes that are answered at the same time; others get 503.
const scrapesAtOnce = 16

// metricsHandler answers with the metrics of a registry. They are gathered once a
// second at most, however many ask, unless a request says Cache-Control: no-cache. A
// collector that fails does not hold back the others.
func metricsHandler(registry prometheus.Gatherer) http.Handler {
	gathered := &shared{source: registry}
	options := promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError, MaxRequestsInFlight: scrapesAtOnce}
	handler := promhttp.HandlerFor(gathered, options)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Cache-Control") == "no-cache" {
			gathered.forget()
		}
		handler.ServeHTTP(w, r)
	})
}

// shared is a Gatherer whose result is shared for a while.
type shared struct {
	source prometheus.Gatherer

	mu       sync.Mutex // held while it gathers: others wait, and share
	at       time.Time
	families []*dto.MetricFamily
	err      error
}

// Gather implements prometheus.Gatherer.
func (s *shared) Gather() ([]*dto.MetricFamily, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.at.IsZero() || time.Since(s.at) >= scrapeEvery {
		s.families, s.err = s.source.Gather()
		s.at = time.Now()
	}
	return s.families, s.err
}

func (s *shared) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at = time.Time{}
}
