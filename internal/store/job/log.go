package job

import (
	"context"
	"log/slog"

	"github.com/google/uuid"

	"triprize/internal/platform/telemetry"
)

// Attrs are what a log line says of the request that a job comes from; none without one.
func (o Origin) Attrs() (all []any) {
	for _, a := range o.attrs(nil) {
		all = append(all, a)
	}
	return all
}

// attrs adds them to those of a line.
func (o Origin) attrs(line []slog.Attr) []slog.Attr {
	if o.RequestID != "" {
		line = append(line, slog.String("request_id", o.RequestID))
	}
	if trace := telemetry.TraceID(o.Traceparent); trace != "" {
		line = append(line, slog.String("trace_id", trace))
	}
	return line
}

// LogFinal logs the outcomes of committed jobs, one line each.
func LogFinal(ctx context.Context, logger *slog.Logger, outcomes []Outcome) {
	if !logger.Enabled(ctx, slog.LevelInfo) {
		return
	}
	var common *slog.Logger // with what the lines of jobs of one kind and campaign have in common: it is put into words once
	for i := range outcomes {
		o := &outcomes[i]
		if i == 0 || o.Job.Kind != outcomes[i-1].Job.Kind || o.Job.CampaignID != outcomes[i-1].Job.CampaignID {
			about := []any{slog.String("kind", string(o.Job.Kind))}
			if o.Job.CampaignID != uuid.Nil {
				about = append(about, slog.String("campaign", o.Job.CampaignID.String()))
			}
			common = logger.With(about...)
		}
		o.log(ctx, common)
	}
}

func (o *Outcome) log(ctx context.Context, logger *slog.Logger) {
	var room [9]slog.Attr
	line := append(room[:0], slog.String("job", o.ID.String()), slog.String("outcome", o.Code()))
	if o.PurchaseID != uuid.Nil {
		line = append(line, slog.String("purchase", o.PurchaseID.String()))
	}
	if o.Positions != "" {
		line = append(line, slog.String("positions", o.Positions))
	}
	line = append(line, telemetry.Took(o.Job.Took), slog.Int("attempts", o.Job.Attempts))
	logger.LogAttrs(ctx, slog.LevelInfo, "job finalized", o.Job.attrs(line)...)
}

// Code is succeeded, or why the job has failed.
func (o *Outcome) Code() string {
	if o.Problem != nil {
		return string(o.Problem.Code)
	}
	return string(Succeeded)
}
