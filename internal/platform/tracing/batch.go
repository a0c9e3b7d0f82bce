package tracing

import (
	"context"
	"strconv"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/trace"
)

// batch is the span of a batch, and those of its jobs.
type batch struct {
	span Span
	jobs map[uuid.UUID]Span
}

type batchKey struct{}

// Batch begins a span in a trace of its own for work that size jobs share, and one in the trace
// of each recorded job, which links the first. jobs are the traceparents of those, by the id of the job;
// without any, nothing begins. end ends all spans.
func Batch(ctx context.Context, name string, size int, jobs map[uuid.UUID]string) (_ context.Context, end func(err error)) {
	if len(jobs) == 0 || !On() {
		return ctx, func(error) {}
	}
	ctx, span := begin(context.WithValue(ctx, sharedKey{}, true), name+" batch", trace.SpanKindInternal, []string{"triprize.jobs", strconv.Itoa(size)}, trace.WithNewRoot())
	b := &batch{span, make(map[uuid.UUID]Span, len(jobs))}
	link := trace.WithLinks(trace.Link{SpanContext: trace.SpanContextFromContext(ctx)})
	for id, traceparent := range jobs {
		parent := trace.ContextWithRemoteSpanContext(context.Background(), parse(traceparent))
		_, b.jobs[id] = begin(parent, name, trace.SpanKindConsumer, []string{JobID, id.String()}, link)
	}
	return context.WithValue(ctx, batchKey{}, b), func(err error) {
		for _, one := range b.jobs {
			one.End(err)
		}
		b.span.End(err)
	}
}

// Job returns the span of a job in the batch of ctx; one that is not recorded if there is none.
func Job(ctx context.Context, id uuid.UUID) Span {
	if b, ok := ctx.Value(batchKey{}).(*batch); ok {
		return b.jobs[id]
	}
	return Span{}
}

// The names of attributes.
const (
	JobID     = "triprize.job_id"
	RequestID = "triprize.request_id"
	Outcome   = "triprize.outcome"
)
