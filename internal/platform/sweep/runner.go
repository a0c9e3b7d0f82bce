package sweep

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"

	"triprize/internal/platform/config"
	"triprize/internal/platform/postgres"
)

// RowWait is how long a sweep should wait for a campaign that is locked, before it
// leaves it for its next run.
const RowWait = 250 * time.Millisecond

const (
	batchSize  = 500
	maxBatches = 40
	timeout    = 30 * time.Second // of one run
)

// Report is the result of one run of a sweep. More says that the run has ended before it
// was done: its sweep has failed with ErrMore.
type Report struct {
	Sweep      string    `json:"sweep"`
	StartedAt  time.Time `json:"started_at"`
	DurationMS int64     `json:"duration_ms"`
	Counts     Counts    `json:"counts"`
	More       bool      `json:"more,omitempty"`
	Error      string    `json:"error,omitempty"`
}

// Runner runs sweeps, and has their last reports.
type Runner struct {
	rdb       redis.UniversalClient
	namespace string
	timeout   time.Duration // of a run
	forReport time.Duration // of a call to Redis
	bounds    Run
	logger    *slog.Logger
}

// NewRunner returns a Runner.
func NewRunner(rdb redis.UniversalClient, settings config.Settings, logger *slog.Logger) *Runner {
	bounds := settings.Scheduler
	return &Runner{rdb: rdb, namespace: settings.Redis.Namespace, timeout: cmp.Or(bounds.SweepTimeout, timeout), forReport: cmp.Or(bounds.ReportTimeout, reportTimeout), logger: logger,
		bounds: Run{BatchSize: cmp.Or(bounds.BatchSize, batchSize), MaxBatches: cmp.Or(bounds.MaxBatches, maxBatches)}}
}

// Run runs one sweep within its time limit. When it fails, what it has done stays done
// and is in the report.
func (r *Runner) Run(ctx context.Context, s Sweep) (report Report, err error) {
	ctx, cancel := context.WithTimeout(postgres.As(ctx, postgres.TxSweep), r.timeout)
	defer cancel()
	start, run := time.Now(), r.bounds
	run.Counts = make(Counts, len(s.Counts))
	for _, name := range s.Counts {
		run.Counts[name] = 0
	}
	report = Report{Sweep: s.Name, StartedAt: start.UTC(), Counts: run.Counts}
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("sweep.Run(%s): panicked: %v", s.Name, p)
		}
		report.DurationMS = time.Since(start).Milliseconds()
		if err != nil {
			report.Error = err.Error()
		}
		r.store(ctx, report)
	}()
	err = s.Run(ctx, run)
	if report.More = errors.Is(err, ErrMore); report.More {
		err = nil
	}
	return report, err
}

// reportTimeout bounds the calls to Redis for reports. No promise depends on reports.
const reportTimeout = time.Second

func (r *Runner) reportsKey() string { return r.namespace + ":sweeps" }

// Succeeded ends the name of the last report of a run that did not fail.
const Succeeded = ":succeeded"

// store stores the last report of each sweep in Redis, where every process finds it.
// When that fails nothing else is affected.
func (r *Runner) store(ctx context.Context, report Report) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.forReport)
	defer cancel()
	text, err := json.Marshal(report)
	fields := []any{report.Sweep, text}
	if report.Error == "" {
		fields = append(fields, report.Sweep+Succeeded, text)
	}
	if err == nil {
		err = r.rdb.HSet(ctx, r.reportsKey(), fields...).Err()
	}
	if err != nil {
		r.logger.Debug("the report of a sweep was not kept", "sweep", report.Sweep, "error", err)
	}
}

// LastReports returns the last report of each sweep that has run, by name, and that of its last success, by name and [Succeeded].
func (r *Runner) LastReports(ctx context.Context) (map[string]Report, error) {
	ctx, cancel := context.WithTimeout(ctx, r.forReport)
	defer cancel()
	texts, err := r.rdb.HGetAll(ctx, r.reportsKey()).Result()
	if err != nil {
		return nil, fmt.Errorf("sweep.LastReports: %w", err)
	}
	reports := make(map[string]Report, len(texts))
	for name, text := range texts {
		var report Report
		if err := json.Unmarshal([]byte(text), &report); err == nil { // skip what another version wrote
			reports[name] = report
		}
	}
	return reports, nil
}
