package scheduler

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"triprize/internal/entry/upkeep"
	"triprize/internal/platform/config"
	"triprize/internal/platform/lock"
	"triprize/internal/platform/queue"
	"triprize/internal/platform/sweep"
	"triprize/internal/platform/tracing"
)

// Scheduler runs sweeps.
type Scheduler struct {
	sweeper *upkeep.Sweeper
	locker  *lock.Locker
	leader  *queue.Heartbeat // announced while this process leads
	ttl     time.Duration    // of the leader's lock
	finish  time.Duration    // how long a running sweep may go on at shutdown
	logger  *slog.Logger

	leading  prometheus.Gauge
	runs     *prometheus.CounterVec
	found    *prometheus.CounterVec
	duration *prometheus.HistogramVec
	success  *prometheus.GaugeVec
}

// The outcomes of sweeps.
const (
	succeeded = "ok"
	failed    = "failed"
)

// While Postgres does not answer, another scheduler may reach it.
const (
	probeEvery   = time.Second
	probeTimeout = 2 * time.Second
	resignAfter  = 3 // probes in a row that fail
)

var errNoAnswer = errors.New("this scheduler does not reach Postgres")

// New returns a Scheduler; Run runs it.
func New(sweeper *upkeep.Sweeper, locker *lock.Locker, leader *queue.Heartbeat, settings config.Scheduler, logger *slog.Logger, registry prometheus.Registerer) *Scheduler {
	s := &Scheduler{
		sweeper: sweeper, locker: locker, leader: leader, ttl: 10 * time.Second, finish: cmp.Or(settings.ShutdownTimeout, config.ShutdownTimeout), logger: logger,
		leading:  prometheus.NewGauge(prometheus.GaugeOpts{Name: "triprize_scheduler_leading", Help: "1 while this process runs the sweeps."}),
		runs:     prometheus.NewCounterVec(prometheus.CounterOpts{Name: "triprize_sweep_runs_total", Help: "Runs of sweeps by outcome: ok or failed."}, []string{"sweep", "outcome"}),
		found:    prometheus.NewCounterVec(prometheus.CounterOpts{Name: "triprize_sweep_items_total", Help: "What sweeps found and did."}, []string{"sweep", "what"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "triprize_sweep_duration_seconds", Help: "Duration of one run."}, []string{"sweep"}),
		success:  prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "triprize_sweep_last_success_timestamp_seconds", Help: "When this process last ran a sweep without a failure. Missing until then."}, []string{"sweep"}),
	}
	registry.MustRegister(s.leading, s.runs, s.found, s.duration, s.success, prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "triprize_campaigns_locked",
		Help: "Campaigns that another transaction keeps locked, as the sweep lost-jobs of this process has found: jobs wait for them. Should be 0; the log names campaign and session after 5 seconds."},
		func() float64 { return float64(sweeper.LockedCampaigns()) }))
	for _, sweep := range sweeper.Sweeps {
		s.duration.WithLabelValues(sweep.Name)
		for _, outcome := range []string{succeeded, failed} {
			s.runs.WithLabelValues(sweep.Name, outcome)
		}
	}
	return s
}

// Run leads whenever no other scheduler does and Postgres answers to probe, until ctx ends. It then waits for
// the running sweeps.
func (s *Scheduler) Run(ctx context.Context, probe func(ctx context.Context) error) {
	lead := func(ctx context.Context) { s.lead(ctx, probe) }
	for ctx.Err() == nil {
		if ask(ctx, probe) != nil {
			pause(ctx, s.ttl/3)
			continue
		}
		err := s.locker.While(ctx, "scheduler-leader", s.ttl, lead)
		switch {
		case ctx.Err() != nil:
		case errors.Is(err, lock.ErrTaken):
		case errors.Is(err, lock.ErrLost):
			s.logger.Warn("no longer the leader: the lock was lost")
		case err != nil:
			s.logger.Warn("the leader is unknown; sweeping without the lock", "error", err)
			leaderless, cancel := context.WithTimeout(ctx, s.ttl)
			lead(leaderless)
			cancel()
			continue
		}
		pause(ctx, s.ttl/3)
	}
}

// lead runs every sweep at its own interval until ctx ends or Postgres no longer answers.
func (s *Scheduler) lead(ctx context.Context, probe func(ctx context.Context) error) {
	s.logger.Info("running the sweeps")
	s.leading.Set(1)
	defer s.leading.Set(0)
	ctx, resign := context.WithCancelCause(ctx)
	defer resign(nil)
	var sweeps sync.WaitGroup
	sweeps.Go(func() {
		if err := watch(ctx, probe); err != nil {
			s.logger.Warn("postgres does not answer: another scheduler may lead", "error", err)
			resign(errNoAnswer)
		}
	})
	sweeps.Go(func() { s.leader.Run(ctx, s.logger) })
	for _, sweep := range s.sweeper.Sweeps {
		sweeps.Go(func() {
			repeat(ctx, func() time.Duration {
				report, err := s.RunOnce(ctx, sweep) // it logs the error
				switch {
				case report.More:
					return 0
				case err != nil:
					return min(sweep.Every, retryAfter)
				}
				return sweep.Every
			})
		})
	}
	sweeps.Wait()
}

// watch returns the error of the probe when it has failed resignAfter times in a row, and nil when ctx ends.
func watch(ctx context.Context, probe func(ctx context.Context) error) (err error) {
	for failures := 0; failures < resignAfter; {
		pause(ctx, probeEvery)
		err = ask(ctx, probe)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // the probe has failed because ctx has ended
		}
		if failures++; err == nil {
			failures = 0
		}
	}
	return err
}

func ask(ctx context.Context, probe func(ctx context.Context) error) error {
	bounded, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	return probe(bounded)
}

// retryAfter is how long after a failure a sweep of a long interval runs again, so that nothing reports it as failing
// for an hour after the cause has gone.
const retryAfter = time.Minute

// repeat runs a sweep until ctx ends, each time after the pause that the last run asked for.
func repeat(ctx context.Context, run func() (next time.Duration)) {
	for ctx.Err() == nil {
		pause(ctx, run())
	}
}

// RunOnce runs one sweep, and logs and counts what it found. When ctx ends, a
// running sweep may go on for the shutdown timeout, if it is not interruptible and reaches Postgres.
func (s *Scheduler) RunOnce(ctx context.Context, sweep sweep.Sweep) (sweep.Report, error) {
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() {
		finish := s.finish
		if sweep.Interruptible || errors.Is(context.Cause(ctx), errNoAnswer) {
			finish = 0
		}
		time.AfterFunc(finish, cancel)
	})()
	running, span := tracing.Root(running, "sweep "+sweep.Name)
	report, err := s.sweeper.Run(running, sweep)
	span.End(err)
	outcome, level := succeeded, slog.LevelDebug
	if err != nil {
		outcome, level = failed, slog.LevelWarn
	} else {
		s.success.WithLabelValues(sweep.Name).SetToCurrentTime()
	}
	s.logger.Log(ctx, level, "sweep", "sweep", sweep.Name, "outcome", outcome, "counts", report.Counts, "more", report.More, "duration_ms", report.DurationMS, "error", err)
	s.runs.WithLabelValues(sweep.Name, outcome).Inc()
	s.duration.WithLabelValues(sweep.Name).Observe(time.Duration(report.DurationMS * int64(time.Millisecond)).Seconds())
	for what, n := range report.Counts {
		s.found.WithLabelValues(sweep.Name, what).Add(float64(n))
	}
	return report, err
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
