package tracing

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"iter"
	"math/rand/v2"
	"net/url"
	"strconv"
	"strings"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// Span is a part of a trace. The zero value is not recorded.
type Span struct{ span trace.Span }

// Recorded reports whether the span is recorded. It is false after its end.
func (s Span) Recorded() bool { return s.span != nil && s.span.IsRecording() }

// Set sets attributes of the span: alternating names and values.
func (s Span) Set(pairs ...string) {
	if s.Recorded() {
		s.span.SetAttributes(attributesOf(pairs)...)
	}
}

// Rename changes the name of the span.
func (s Span) Rename(name string) {
	if s.Recorded() {
		s.span.SetName(name)
	}
}

// End ends the span. An err marks it as failed, without the URL of a failed call, which may contain a secret.
func (s Span) End(err error) {
	if s.span == nil {
		return
	}
	if err != nil {
		if call, ok := errors.AsType[*url.Error](err); ok {
			err = call.Err
		}
		s.span.SetStatus(codes.Error, err.Error())
	}
	s.span.End()
}

func attributesOf(pairs []string) []attribute.KeyValue {
	all := make([]attribute.KeyValue, 0, len(pairs)/2)
	for i := 1; i < len(pairs); i += 2 {
		all = append(all, attribute.String(pairs[i-1], pairs[i]))
	}
	return all
}

// begin begins a span, unless tracing is off.
func begin(ctx context.Context, name string, kind trace.SpanKind, pairs []string, more ...trace.SpanStartOption) (context.Context, Span) {
	t := tracer.Load()
	if t == nil {
		return ctx, Span{}
	}
	more = append(more, trace.WithSpanKind(kind))
	if len(pairs) > 0 {
		more = append(more, trace.WithAttributes(attributesOf(pairs)...))
	}
	ctx, span := t.Start(ctx, name, more...)
	return ctx, Span{span}
}

// Serve begins the span of a request, in the trace of its header traceparent or in a new one. The header's sampled
// flag is ignored: requests are recorded at random. A request that is not recorded continues the trace of its
// sender, if there is one.
func Serve(ctx context.Context, traceparent string) (context.Context, Span) {
	t := tracer.Load()
	if t == nil {
		return ctx, Span{}
	}
	parent := parse(traceparent).WithTraceFlags(0)
	if rand.Float64() < t.ratio { //nolint:gosec // a sample is no secret
		if parent.IsValid() {
			ctx = trace.ContextWithRemoteSpanContext(ctx, parent)
		}
		return begin(context.WithValue(ctx, chosenKey{}, true), "request", trace.SpanKindServer, nil)
	}
	if !parent.IsValid() {
		return ctx, Span{}
	}
	var id trace.SpanID
	binary.NativeEndian.PutUint64(id[:], rand.Uint64()) //nolint:gosec // an id is no secret
	ctx = trace.ContextWithSpanContext(ctx, parent.WithSpanID(id).WithRemote(false))
	return ctx, of(ctx)
}

// Root begins a span in a new trace, for work without a request.
func Root(ctx context.Context, name string, pairs ...string) (context.Context, Span) {
	return begin(ctx, name, trace.SpanKindInternal, pairs, trace.WithNewRoot())
}

// Continue begins a span in the trace of a traceparent of ours, if that trace is recorded. Otherwise the trace is
// only propagated: see [Span.Traceparent].
func Continue(ctx context.Context, traceparent, name string, pairs ...string) (context.Context, Span) {
	parent := parse(traceparent)
	if !On() || !parent.IsValid() {
		return ctx, Span{}
	}
	ctx = trace.ContextWithRemoteSpanContext(ctx, parent)
	if !parent.IsSampled() {
		return ctx, Span{}
	}
	return begin(ctx, name, trace.SpanKindConsumer, pairs)
}

// Call begins a client span below the one of the context, if that one is recorded.
func Call(ctx context.Context, name string, pairs ...string) (context.Context, Span) {
	if !recorded(ctx) {
		return ctx, Span{}
	}
	return begin(ctx, name, trace.SpanKindClient, pairs)
}

// Into returns ctx with the span as parent.
func Into(ctx context.Context, span Span) context.Context {
	if span.span == nil {
		return ctx
	}
	return trace.ContextWithSpan(ctx, span.span)
}

// of returns the span of a context.
func of(ctx context.Context) Span { return Span{trace.SpanFromContext(ctx)} }

// Traceparent returns the header traceparent (W3C Trace Context, version 00) of the span, recorded or not; "" if
// there is none, and while tracing is off. The sampled flag is ours.
func (s Span) Traceparent() string {
	if s.span == nil || !s.span.SpanContext().IsValid() {
		return ""
	}
	at := s.span.SpanContext()
	id, span := at.TraceID(), at.SpanID()
	text := append(make([]byte, 0, length), "00-"...)
	text = append(hex.AppendEncode(text, id[:]), '-')
	text = append(hex.AppendEncode(text, span[:]), '-')
	return string(hex.AppendEncode(text, []byte{byte(at.TraceFlags() & trace.FlagsSampled)}))
}

// length is the length of a traceparent in version 00.
const length = len("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")

// Recorded reports whether the trace of a traceparent of ours is recorded; never while tracing is off.
func Recorded(traceparent string) bool {
	return len(traceparent) == length && strings.IndexByte("13579bdf", traceparent[length-1]) >= 0 && On()
}

// Traceparent returns the traceparent of a request in version 00; "" if it is missing or invalid.
func Traceparent(header string) string {
	return Span{trace.SpanFromContext(trace.ContextWithSpanContext(context.Background(), parse(header)))}.Traceparent()
}

// TraceID returns the trace id (32 hex digits) of a traceparent of ours; "" for "".
func TraceID(traceparent string) string {
	if traceparent == "" {
		return ""
	}
	return traceparent[3:35]
}

// parse parses a traceparent. The result is invalid if it is.
func parse(traceparent string) trace.SpanContext {
	if traceparent == "" {
		return trace.SpanContext{}
	}
	ctx := propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{"traceparent": traceparent})
	return trace.SpanContextFromContext(ctx)
}

// Names of attributes that several packages set.
const (
	JobID     = "triprize.job_id"
	RequestID = "triprize.request_id"
	Outcome   = "triprize.outcome"
)

// Shared are the spans of a batch and of its jobs; nil: none is recorded.
type Shared struct {
	batch Span
	jobs  map[uuid.UUID]Span
}

// Batch begins a span in its own trace for work that size jobs share, and one in the trace of each recorded job,
// which links to the first. jobs yields the ids and traceparents of the recorded jobs; if there are none, no span
// begins.
func Batch(ctx context.Context, name string, size int, jobs iter.Seq2[uuid.UUID, string]) (context.Context, *Shared) {
	var s *Shared
	var link trace.SpanStartOption
	for id, traceparent := range jobs {
		if s == nil {
			s = &Shared{jobs: make(map[uuid.UUID]Span)}
			ctx, s.batch = begin(context.WithValue(ctx, chosenKey{}, true), name+" batch", trace.SpanKindInternal, []string{"triprize.jobs", strconv.Itoa(size)}, trace.WithNewRoot())
			link = trace.WithLinks(trace.LinkFromContext(ctx))
		}
		parent := trace.ContextWithRemoteSpanContext(context.Background(), parse(traceparent)) //nolint:contextcheck // ctx has the span of the batch
		_, s.jobs[id] = begin(parent, name, trace.SpanKindConsumer, []string{JobID, id.String()}, link)
	}
	return ctx, s
}

// Set sets attributes of the span of a recorded job.
func (s *Shared) Set(id uuid.UUID, pairs ...string) {
	if s != nil {
		s.jobs[id].Set(pairs...)
	}
}

// End ends all spans. An err marks them as failed.
func (s *Shared) End(err error) {
	if s == nil {
		return
	}
	for _, one := range s.jobs {
		one.End(err)
	}
	s.batch.End(err)
}
