package recovery

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"

	"triprize/internal/domain/payprovider"
	"triprize/internal/drawing"
	"triprize/internal/entry/upkeep"
	"triprize/internal/inventory"
	"triprize/internal/job"
	"triprize/internal/payment/cards"
	"triprize/internal/payment/reconciliation"
	"triprize/internal/platform/audit"
	"triprize/internal/platform/config"
	"triprize/internal/platform/postgres"
	"triprize/internal/platform/queue"
	"triprize/internal/sale"
	"triprize/internal/wallet"
)

// Counts is how much a run of a sweep has found and done, by name.
type Counts map[string]int

// Sweep is one kind of recovery. An interruptible one does nothing that has to be
// finished: it can be stopped at any moment.
type Sweep struct {
	Name          string
	Every         time.Duration
	Interruptible bool
	run           func(ctx context.Context) (Counts, error)
}

// Report is the result of one run of a sweep. More says that the run has ended before it
// was done; only old-records, missed-events and reconciliation tell.
type Report struct {
	Sweep      string    `json:"sweep"`
	StartedAt  time.Time `json:"started_at"`
	DurationMS int64     `json:"duration_ms"`
	Counts     Counts    `json:"counts"`
	More       bool      `json:"more,omitempty"`
	Error      string    `json:"error,omitempty"`
}

// Sweeper runs sweeps.
type Sweeper struct {
	db       postgres.Pool
	settings config.Settings
	logger   *slog.Logger
	client   *queue.Client
	finder   *queue.Finder
	rdb      redis.UniversalClient
	holds    *inventory.HoldMetrics
	draws    *drawing.Triggers // nil: the draws that sweeps trigger are not counted
	wallets  *wallet.Executor
	seller   *sale.Seller
	auditor  *audit.Auditor

	locked    lockedCampaigns
	warnAfter time.Duration // see the constant

	events   *cards.Events // nil: there is no provider of payments
	provider payprovider.Provider
	books    *reconciliation.Reconciler
}

// RowWait is how long a sweep should wait for a campaign that is locked, before it
// leaves it for its next run.
const RowWait = 250 * time.Millisecond

const (
	batchSize    = 500              // most rows that one statement of a sweep changes
	maxBatches   = 40               // most statements of a kind in one run; the next run goes on. old-records goes on until it is done
	sweepTimeout = 30 * time.Second // one run of one sweep
)

// New returns a Sweeper. db is a pool, or a view of it for transactions that may wait
// for locks. It counts the holds that it ends in holds.
func New(settings config.Settings, db postgres.Pool, rdb redis.UniversalClient, holds *inventory.HoldMetrics, logger *slog.Logger) *Sweeper {
	namespace, most := settings.Redis.Namespace, &settings.Scheduler
	most.BatchSize, most.MaxBatches = cmp.Or(most.BatchSize, batchSize), cmp.Or(most.MaxBatches, maxBatches)
	return &Sweeper{
		books: reconciliation.New(db, nil, settings.Retention.BalanceTransactions, logger),
		db:    db, settings: settings, logger: logger, rdb: rdb, holds: holds,
		client:  queue.NewClient(rdb, namespace),
		finder:  queue.NewFinder(rdb, namespace),
		auditor: upkeep.NewAuditor(db, logger), warnAfter: warnAfter,
		wallets: wallet.NewExecutor(db, wallet.Documents{}, wallet.Options{}), // Expire skips locked wallets, so it needs no lock in Redis
		seller: sale.NewSeller(db, settings.Retention.Jobs, sale.Reservations{For: settings.Payments.Reservation,
			MaxExtension: cmp.Or(settings.Payments.MaxExtension, sale.MaxExtension), MaxPerUser: settings.Payments.MaxPositionsPerUser}),
	}
}

// CountDraws counts the draws that the sweeps trigger.
func (s *Sweeper) CountDraws(triggers *drawing.Triggers) { s.draws = triggers }

// UseProvider lets the sweeps missed-events, missing-permissions and reconciliation ask a
// provider of payments.
func (s *Sweeper) UseProvider(events *cards.Events, provider payprovider.Provider) {
	s.events, s.provider = events, provider
	s.books = reconciliation.New(s.db, provider, s.settings.Retention.BalanceTransactions, s.logger)
}

// Sweeps lists the sweeps, in the best order for running each once.
func (s *Sweeper) Sweeps() []Sweep {
	all := []Sweep{
		{"expired-holds", 10 * time.Second, false, s.expiredHolds},
		{"expired-authorizations", time.Minute, false, s.expiredAuthorizations},
		{"expired-reservations", 10 * time.Second, false, s.expiredReservations},
		{"due-items", time.Second, false, s.dueItems},
		{"missed-events", time.Minute, true, s.missedEvents},
		{"missing-permissions", time.Hour, true, s.missingPermissions},
		{"reconciliation", 10 * time.Minute, true, s.reconciliation},
		{"stale-locks", 5 * time.Second, false, s.staleLocks},
		{"ended-sales", 10 * time.Second, false, s.endedSales},
		{"stuck-draws", time.Minute, false, s.stuckDraws},
		{"lost-jobs", LostJobsEvery, false, s.lostJobs},
		{"old-records", time.Minute, true, s.oldRecords},
		{"audit", 10 * time.Second, true, s.audit},
	}
	for i, sweep := range all {
		all[i].Every = cmp.Or(s.settings.Sweeps.Every[sweep.Name], sweep.Every)
	}
	return all
}

// Run runs one sweep within its time limit. When it fails, what it has done stays done
// and is in the report.
func (s *Sweeper) Run(ctx context.Context, sweep Sweep) (report Report, err error) {
	ctx, cancel := context.WithTimeout(postgres.As(ctx, postgres.TxSweep), cmp.Or(s.settings.Scheduler.SweepTimeout, sweepTimeout))
	defer cancel()
	start := time.Now()
	report = Report{Sweep: sweep.Name, StartedAt: start.UTC()}
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("recovery.Run(%s): panicked: %v", sweep.Name, p)
		}
		report.DurationMS = time.Since(start).Milliseconds()
		if report.Counts == nil {
			report.Counts = Counts{}
		}
		if err != nil {
			report.Error = err.Error()
		}
		s.remember(ctx, report)
	}()
	report.Counts, err = sweep.run(ctx)
	if report.More = errors.Is(err, errMore); report.More {
		err = nil
	}
	return report, err
}

// batches calls one until it has done less than a full batch, at most maxBatches times.
func (s *Sweeper) batches(one func(limit int) (done int, err error)) error {
	limit := s.settings.Scheduler.BatchSize
	for range s.settings.Scheduler.MaxBatches {
		done, err := one(limit)
		if err != nil {
			return err
		}
		if done < limit {
			return nil
		}
	}
	return nil
}

// enqueue puts committed messages in the queue. A message that cannot be enqueued stays
// in the outbox for a later run.
func (s *Sweeper) enqueue(ctx context.Context, messages []job.Message) (enqueued int, err error) {
	for _, m := range messages {
		if err := s.client.Enqueue(ctx, m.Task()); err != nil {
			return enqueued, err
		}
		enqueued++
	}
	return enqueued, nil
}

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

// audit checks the invariants on the next parts of the rows.
func (s *Sweeper) audit(ctx context.Context) (Counts, error) {
	done, err := s.auditor.Run(ctx)
	return Counts{"turns": done.Turns, "looked_at": done.Looked, "found": done.Found, "gone": done.Gone, "unchecked": done.Unchecked}, err
}
