package worker

import (
	"errors"

	"triprize/internal/platform/queue"
	"triprize/internal/platform/tracing"
	"triprize/internal/service/sale"
	"triprize/internal/store/job"
)

// tell sets the outcomes of a batch in the spans of its jobs.
func tell(spans *tracing.Shared, report sale.Report) {
	if spans == nil {
		return
	}
	for i := range report.Finalized {
		spans.Set(report.Finalized[i].ID, tracing.Outcome, report.Finalized[i].Code())
	}
	for _, ref := range report.Busy {
		spans.Set(ref.ID, tracing.Outcome, outcomePutOff)
	}
}

// outcomePutOff is the outcome of an attempt at a job that goes on later.
const outcomePutOff = "put_off"

// endSpan ends the span of an attempt at one job.
func endSpan(span tracing.Span, o *job.Outcome, err error) {
	switch {
	case err == nil:
		span.Set(tracing.Outcome, o.Code())
	case errors.Is(err, queue.ErrLater):
		span.Set(tracing.Outcome, outcomePutOff)
		err = nil
	}
	span.End(err)
}
