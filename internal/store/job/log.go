package job

import (
	"context"
	"log/slog"

	"github.com/google/uuid"

	"triprize/internal/platform/telemetry"
)

// Attrs are what a log line says of the request that a job comes from; none without one.
func (o Origin) Attrs() (all []any) {
	if o.RequestID != "" {
		all = append(all, slog.String("request_id", o.RequestID))
	}
	if trace := telemetry.TraceID(o.Traceparent); trace != "" {
		all = append(all, slog.String("trace_id", trace))
	}
	return all
}

// LogFinal logs the outcomes of committed jobs, one line each.
func LogFinal(ctx context.Context, logger *slog.Logger, outcomes []Outcome) {
	if !logger.Enabled(ctx, slog.LevelInfo) {
		return
	}
	for i := range outcomes {
		outcomes[i].log(ctx, logger)
	}
}

func (o *Outcome) log(ctx context.Context, logger *slog.Logger) {
	var room [10]slog.Attr
	line := append(room[:0], slog.String("job", o.ID.String()), slog.String("kind", string(o.Job.Kind)), slog.String("outcome", o.Code()))
	if o.Job.CampaignID != uuid.Nil {
		line = append(line, slog.String("campaign", o.Job.CampaignID.String()))
	}
	if o.PurchaseID != uuid.Nil {
		line = append(line, slog.String("purchase", o.PurchaseID.String()))
	}
	line = append(line, telemetry.Took(o.Job.Took), slog.Int("attempts", o.Job.Attempts))
	for _, a := range o.Job.Attrs() {
		line = append(line, a.(slog.Attr)) //nolint:forcetypeassert // see Attrs
	}
	logger.LogAttrs(ctx, slog.LevelInfo, "job finalized", line...)
}

// Code is succeeded, or why the job has failed.
func (o *Outcome) Code() string {
	if o.Problem != nil {
		return string(o.Problem.Code)
	}
	return string(Succeeded)
}
