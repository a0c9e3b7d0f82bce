// Package otlp is a collector of OpenTelemetry for tests: it takes spans over HTTP in protobuf.
package otlp

import (
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	trace "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// Span is a span that has arrived.
type Span struct {
	Process           string // service.name
	Name              string
	Trace, ID, Parent string            // in hex; Parent is empty at the root
	Links             []string          // trace and id of other spans, as Ref has them
	Attributes        map[string]string // those that are texts
	Kind              trace.Span_SpanKind
	Failed            bool
}

// Ref names the span in a link.
func (s Span) Ref() string { return s.Trace + "/" + s.ID }

// Collector is a running collector.
type Collector struct {
	URL string
	mu  sync.Mutex
	all []Span
	key string
}

// Start starts a collector, which ends with the test.
func Start(t testing.TB) *Collector {
	c := &Collector{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var sent collector.ExportTraceServiceRequest
		if err != nil || r.URL.Path != "/v1/traces" || proto.Unmarshal(body, &sent) != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.key = r.Header.Get("Authorization")
		c.take(&sent)
		w.Header().Set("Content-Type", "application/x-protobuf")
	}))
	t.Cleanup(server.Close)
	c.URL = server.URL
	return c
}

func (c *Collector) take(sent *collector.ExportTraceServiceRequest) {
	for _, of := range sent.GetResourceSpans() {
		process := ""
		for _, a := range of.GetResource().GetAttributes() {
			if a.GetKey() == "service.name" {
				process = a.GetValue().GetStringValue()
			}
		}
		for _, scope := range of.GetScopeSpans() {
			for _, s := range scope.GetSpans() {
				span := Span{Process: process, Name: s.GetName(), Kind: s.GetKind(), Failed: s.GetStatus().GetCode() == trace.Status_STATUS_CODE_ERROR,
					Trace: hex.EncodeToString(s.GetTraceId()), ID: hex.EncodeToString(s.GetSpanId()), Parent: hex.EncodeToString(s.GetParentSpanId()),
					Attributes: make(map[string]string)}
				for _, l := range s.GetLinks() {
					span.Links = append(span.Links, hex.EncodeToString(l.GetTraceId())+"/"+hex.EncodeToString(l.GetSpanId()))
				}
				for _, a := range s.GetAttributes() {
					span.Attributes[a.GetKey()] = a.GetValue().GetStringValue()
				}
				c.all = append(c.all, span)
			}
		}
	}
}

// Spans returns the spans that have arrived so far.
func (c *Collector) Spans() []Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.all)
}

// Key returns the header Authorization of the last request.
func (c *Collector) Key() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.key
}
