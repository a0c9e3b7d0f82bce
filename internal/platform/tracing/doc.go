// Package tracing tells a collector of OpenTelemetry how requests become jobs, batches,
// statements and calls. A process opens it once; while it is not open, nothing here does
// anything, and no tracer is installed anywhere.
//
// A request is recorded or not when its span begins ([Serve]), by chance. The
// caller's sampled flag counts for nothing. Our decision is the sampled flag of the traceparent
// ([Span.Traceparent]) that is stored with the request's job, and the work on the job follows it
// ([Continue]). Work that many jobs share is recorded when one of them is ([Batch]).
//
// All other spans begin only below a span that is recorded ([Call]): the rest costs a look
// into the context.
package tracing
