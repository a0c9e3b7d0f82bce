package recovery

import (
	"context"
	"encoding/json"
	"fmt"
	"time"
)

// reportTimeout bounds the calls to Redis for reports. No promise depends on reports.
const reportTimeout = time.Second

func (s *Sweeper) reportsKey() string { return s.settings.Redis.Namespace + ":sweeps" }

// remember stores the last report of each sweep in Redis, where every process finds it.
// When that fails nothing else is affected.
func (s *Sweeper) remember(ctx context.Context, report Report) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), reportTimeout)
	defer cancel()
	text, err := json.Marshal(report)
	if err == nil {
		err = s.rdb.HSet(ctx, s.reportsKey(), report.Sweep, text).Err()
	}
	if err != nil {
		s.logger.Debug("the report of a sweep was not kept", "sweep", report.Sweep, "error", err)
	}
}

// LastReports returns the last report of each sweep that has run, by name.
func (s *Sweeper) LastReports(ctx context.Context) (map[string]Report, error) {
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	texts, err := s.rdb.HGetAll(ctx, s.reportsKey()).Result()
	if err != nil {
		return nil, fmt.Errorf("recovery.LastReports: %w", err)
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
