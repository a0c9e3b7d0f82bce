package tracing

import (
	"context"
	"iter"
	"strconv"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/trace"
)

// The names of attributes that several packages set.
const (
	JobID     = "triprize.job_id"
	RequestID = "triprize.request_id"
	Outcome   = "triprize.outcome"
)

// Shared are the spans of a batch and of its jobs; nil: none of them is recorded.
type Shared struct {
	batch Span
	jobs  map[uuid.UUID]Span
}

// Batch begins a span in a trace of its own for work that size jobs share, and one in the trace of
// each recorded job, which links the first. jobs yields the traceparents of those, by the id of the
// job; without any, nothing begins.
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

// Set sets attributes of the span of a job, if it is recorded.
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
