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
