package job

import (
	"context"
	"crypto/sha256"
	"log/slog"
	"time"

	"github.com/google/uuid"

	"triprize/internal/domain/uuidv7"
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

// By is what has triggered a draw.
type By string

// What triggers draws.
const (
	BySellOut  By = "sell_out"
	BySaleEnd  By = "sale_end"
	ByOperator By = "operator" // over HTTP
	BySweep    By = "sweep"    // its job was given up
)

// DrawRequest returns the request for the job that draws a sold-out campaign. The
// first job of a campaign has the key lottery-draw-{id}. A new job, after the first
// was given up, needs a suffix. from is empty when a sweep makes it.
func DrawRequest(campaignID uuid.UUID, by By, suffix string, keep time.Duration, from Origin) Request {
	key := "lottery-draw-" + campaignID.String() + suffix
	return Request{ID: uuidv7.New(), Client: System, Key: key, Hash: sha256.Sum256([]byte(key)), Kind: KindDraw, CampaignID: campaignID, Keep: keep, By: by, Origin: from}
}

// UnsoldRequest returns the request for the job that cancels a campaign because its sale
// ended before everything was sold. There is one for each end of a sale: an end that was
// put off is another one. A new job, after the first was given up, needs a suffix.
func UnsoldRequest(campaignID uuid.UUID, end time.Time, payload []byte, suffix string, keep time.Duration) Request {
	key := "unsold-" + campaignID.String() + "-" + end.UTC().Format("20060102T150405.000000Z") + suffix
	return Request{ID: uuidv7.New(), Client: System, Key: key, Hash: sha256.Sum256([]byte(key)), Kind: KindCampaignCancellation, CampaignID: campaignID,
		Payload: payload, Keep: keep}
}
