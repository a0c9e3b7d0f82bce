package worker

import (
	"context"
	"log/slog"

	"github.com/google/uuid"

	"triprize/internal/platform/telemetry"
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
	code := string(job.Succeeded)
	if o.Problem != nil {
		code = string(o.Problem.Code)
	}
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
