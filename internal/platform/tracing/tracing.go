// Package tracing sends spans of requests, jobs, batches, statements and calls to an OpenTelemetry collector. A
// process opens it once; until then nothing here has an effect, and no tracer is installed.
//
// Whether a request is recorded is decided at random when its span begins ([Serve]). The caller's sampled flag
// is ignored. Our decision is the sampled flag of the traceparent ([Span.Traceparent]) that is stored with the
// request's job, and the work on the job follows it ([Continue]). Work that many jobs share is recorded if one
// of them is ([Batch]).
//
// All other spans begin only below a recorded span ([Call]).
package tracing

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/time/rate"

	"triprize/internal/platform/config"
)

// tracer makes the spans of this process; nil: tracing is off.
var tracer atomic.Pointer[openTracer]

type openTracer struct {
	trace.Tracer
	provider *sdk.TracerProvider
	ratio    float64 // of the requests that are recorded
}

const (
	exportTimeout = 5 * time.Second // of one request to the collector
	flushTimeout  = 2 * time.Second // for the last spans at shutdown
)

// Open starts sending spans to the collector of the settings. closeAll flushes and stops. Without a collector Open
// does nothing. It does not connect: spans wait in a queue of 2048, and further ones are dropped. Spans that do not
// arrive are logged once a minute.
func Open(settings config.Tracing, process, version string, logger *slog.Logger) (closeAll func(), err error) {
	if settings.OTLPURL == "" {
		return func() {}, nil
	}
	outage := rate.Sometimes{First: 1, Interval: time.Minute}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		outage.Do(func() {
			logger.Warn("spans do not arrive at the collector and are dropped; nothing else is affected", "setting", "tracing.otlp_url", "error", err)
		})
	}))
	to := settings.OTLPURL
	if u, err := url.Parse(to); err == nil && strings.Trim(u.Path, "/") == "" {
		to = u.JoinPath("v1/traces").String()
	}
	exporter, err := otlptracehttp.New(context.Background(), otlptracehttp.WithEndpointURL(to), otlptracehttp.WithTimeout(cmp.Or(settings.Timeout, exportTimeout)))
	if err != nil {
		return nil, fmt.Errorf("tracing.Open: %w", err)
	}
	host, _ := os.Hostname()
	about, err := resource.Merge(resource.Default(), resource.NewSchemaless(attribute.String("service.name", "triprize-"+process),
		attribute.String("service.version", version), attribute.String("service.instance.id", fmt.Sprintf("%s-%d", host, os.Getpid()))))
	if err != nil {
		return nil, fmt.Errorf("tracing.Open: %w", err)
	}
	provider := sdk.NewTracerProvider(sdk.WithBatcher(exporter), sdk.WithResource(about), sdk.WithSampler(newSampler(settings.SampleRatio)))
	tracer.Store(&openTracer{provider.Tracer("triprize"), provider, settings.SampleRatio})
	return func() {
		tracer.Store(nil)
		ctx, cancel := context.WithTimeout(context.Background(), cmp.Or(settings.Timeout, flushTimeout))
		defer cancel()
		if err := provider.Shutdown(ctx); err != nil {
			otel.Handle(err)
		}
	}, nil
}

// On reports whether tracing is open.
func On() bool { return tracer.Load() != nil }

// newSampler returns the sampler of spans. Serve samples requests itself: it depends neither on the trace id, which a
// caller can choose, nor on a caller's flag. Sweeps are sampled by their trace id, which is ours.
func newSampler(ratio float64) sdk.Sampler {
	return sdk.ParentBased(chosenSampler{sdk.TraceIDRatioBased(ratio)}, sdk.WithRemoteParentNotSampled(chosenSampler{sdk.NeverSample()}))
}

// chosenSampler records spans that were already sampled: of requests and of a Batch.
type chosenSampler struct{ sdk.Sampler }

type chosenKey struct{}

// ShouldSample implements sdk.Sampler.
func (s chosenSampler) ShouldSample(p sdk.SamplingParameters) sdk.SamplingResult {
	if p.ParentContext.Value(chosenKey{}) != nil {
		return sdk.SamplingResult{Decision: sdk.RecordAndSample}
	}
	return s.Sampler.ShouldSample(p)
}
