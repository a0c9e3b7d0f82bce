package telemetry

import (
	"bytes"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// scrapeEvery is how long a page of metrics is shared by all who ask.
const scrapeEvery = time.Second

// scrapes shows the metrics of a registry. They are gathered and written once a second
// at most, however many ask, unless a request says Cache-Control: no-cache. A
// collector that fails does not hold back the others.
type scrapes struct {
	handler http.Handler

	mu   sync.Mutex // held while a page is made: others wait for it, and share it
	at   time.Time
	page *page
}

func newScrapes(registry prometheus.Gatherer) *scrapes {
	return &scrapes{handler: promhttp.HandlerFor(registry, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError, DisableCompression: true})}
}

// ServeHTTP implements http.Handler.
func (s *scrapes) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p := s.current(r)
	w.Header().Set("Content-Type", p.header.Get("Content-Type"))
	w.WriteHeader(p.status)
	_, _ = w.Write(p.text.Bytes()) // it fails when the client is gone
}

func (s *scrapes) current(r *http.Request) *page {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.page == nil || time.Since(s.at) >= scrapeEvery || r.Header.Get("Cache-Control") == "no-cache" {
		plain := r.Clone(r.Context())
		plain.Header = nil // one format for all
		s.page = &page{header: make(http.Header), status: http.StatusOK}
		s.handler.ServeHTTP(s.page, plain)
		s.at = time.Now()
	}
	return s.page
}

// page is an answer in memory.
type page struct {
	header http.Header
	status int
	text   bytes.Buffer
}

// Header implements http.ResponseWriter.
func (p *page) Header() http.Header { return p.header }

// WriteHeader implements http.ResponseWriter.
func (p *page) WriteHeader(status int) { p.status = status }

// Write implements http.ResponseWriter.
func (p *page) Write(b []byte) (int, error) { return p.text.Write(b) }
