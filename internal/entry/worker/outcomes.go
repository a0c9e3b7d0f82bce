package worker

import (
	"context"
	"errors"
	"log/slog"

	"github.com/google/uuid"

	"triprize/internal/platform/queue"
	"triprize/internal/platform/telemetry"
	"triprize/internal/platform/tracing"
	"triprize/internal/service/sale"
	"triprize/internal/store/job"
)

// logFinalized logs the outcomes of jobs, one line each.
func (w *Worker) logFinalized(outcomes []job.Outcome) {
	for i := range outcomes {
		w.logger.LogAttrs(context.Background(), slog.LevelInfo, "job finalized", attributesOf(&outcomes[i])...)
	}
}

// attributesOf returns what the log says of an outcome.
func attributesOf(o *job.Outcome) []slog.Attr {
	code := codeOf(o)
	all := make([]slog.Attr, 0, 9)
	all = append(all, slog.String("job", o.ID.String()), slog.String("kind", string(o.Job.Kind)), slog.String("outcome", code),
		slog.Duration("took", o.Job.Took), slog.Int("attempts", o.Job.Attempts))
	for name, id := range map[string]uuid.UUID{"campaign": o.Job.CampaignID, "purchase": o.PurchaseID} {
		if id != uuid.Nil {
			all = append(all, slog.String(name, id.String()))
		}
	}
	if o.Job.RequestID != "" {
		all = append(all, slog.String("request_id", o.Job.RequestID))
	}
	if trace := telemetry.TraceID(o.Job.Traceparent); trace != "" {
		all = append(all, slog.String("trace_id", trace))
	}
	return all
}

// codeOf is succeeded, or why the job has failed.
func codeOf(o *job.Outcome) string {
	if o.Problem != nil {
		return string(o.Problem.Code)
	}
	return string(job.Succeeded)
}

// tell sets the outcomes of a batch in the spans of its jobs.
func tell(spans *tracing.Shared, report sale.Report) {
	if spans == nil {
		return
	}
	for i := range report.Finalized {
		spans.Set(report.Finalized[i].ID, tracing.Outcome, codeOf(&report.Finalized[i]))
	}
	for _, ref := range report.Busy {
		spans.Set(ref.ID, tracing.Outcome, isPutOff)
	}
}

// isPutOff is the outcome of an attempt at a job that goes on later.
const isPutOff = "put_off"

// endSpan ends the span of an attempt at one job.
func endSpan(span tracing.Span, o *job.Outcome, err error) {
	switch {
	case err == nil:
		span.Set(tracing.Outcome, codeOf(o))
	case errors.Is(err, queue.ErrLater):
		span.Set(tracing.Outcome, isPutOff)
		err = nil
	}
	span.End(err)
}
