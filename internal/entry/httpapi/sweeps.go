package httpapi

import (
	"context"

	"triprize/internal/domain/fault"
	"triprize/internal/entry/httpapi/contract"
	"triprize/internal/entry/httpapi/contract/operations"
	"triprize/internal/maintenance/recovery"
)

// ListSweeps answers with every sweep and its last report.
func (s *Server) ListSweeps(ctx context.Context, _ operations.ListSweepsRequestObject) (operations.Answer, error) {
	reports, err := s.sweeper.LastReports(ctx)
	if err != nil {
		s.logger.Debug("reports of sweeps cannot be read", "error", err) // the sweeps are listed without them
	}
	var answer contract.SweepList
	for _, sweep := range s.sweeper.Sweeps() {
		one := contract.Sweep{Name: sweep.Name, IntervalSeconds: float32(sweep.Every.Seconds())}
		if last, ok := reports[sweep.Name]; ok {
			report := reportJSON(last)
			one.LastReport = &report
		}
		answer.Sweeps = append(answer.Sweeps, one)
	}
	return operations.ListSweeps200(answer, nil)
}

// RunSweep runs a sweep now, whichever scheduler leads. It ends with the time of the
// request.
func (s *Server) RunSweep(ctx context.Context, r operations.RunSweepRequestObject) (operations.Answer, error) {
	for _, sweep := range s.sweeper.Sweeps() {
		if sweep.Name != r.Sweep {
			continue
		}
		report, err := s.sweeper.Run(ctx, sweep)
		if err != nil {
			s.logger.Warn("a requested sweep failed", "sweep", sweep.Name, "error", err)
		}
		return operations.RunSweep200(reportJSON(report), nil)
	}
	return nil, fault.New(fault.NotFound, "there is no sweep with this name; GET /v1/sweeps lists them")
}

// reportJSON is a report without internal error texts.
func reportJSON(r recovery.Report) contract.SweepReport {
	if r.Error != "" {
		r.Error = "the sweep failed; the log says why"
	}
	return contract.SweepReport{Sweep: r.Sweep, StartedAt: r.StartedAt, DurationMs: r.DurationMS, Counts: r.Counts, More: r.More, Error: r.Error}
}
