package campaign

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/job"
	"triprize/internal/platform/postgres"
	"triprize/internal/platform/sweep"
)

// StaleLocks is the sweep that releases execution locks that were not renewed for longer than lease.
// The sweep lost-jobs finds the draw jobs of their holders.
func StaleLocks(db postgres.Pool, lease time.Duration, logger *slog.Logger) sweep.Sweep {
	return sweep.Sweep{Name: "stale-locks", Every: 5 * time.Second, Counts: []string{"released"}, Run: func(ctx context.Context, run sweep.Run) error {
		return run.Batches(func(limit int) (int, error) {
			released, err := ReleaseStale(ctx, db, lease, limit)
			for _, id := range released {
				logger.Warn("execution lock released: its worker no longer renewed it", "campaign", id)
			}
			run.Counts["released"] += len(released)
			return len(released), err
		})
	}}
}

const (
	// maxAwaited is how many campaigns one run checks.
	maxAwaited = 10_000
	// A campaign in which workers sell all the time is never free without a wait.
	lockProbes = 2
	probeWait  = 100 * time.Millisecond
	// warnAfter is how long a campaign stays locked until the log names it.
	warnAfter = 5 * time.Second
	// maxWarnings is how many campaigns a run warns of: others come in the next.
	maxWarnings = 10
	// resumeFor is how long a run issues jobs again; the next one goes on.
	resumeFor = 10 * time.Second
	// freshFor is how long the gauge reports the result of a run.
	freshFor = 10 * time.Second
)

// Resumer issues jobs again that wait for campaigns which are free now. It has those that stay
// locked, as the last run has found.
type Resumer struct {
	db        postgres.Pool
	enqueue   job.Enqueuer
	logger    *slog.Logger
	WarnAfter time.Duration // how long a campaign stays locked until the log names it

	mu        sync.Mutex
	checkedAt time.Time
	campaigns map[uuid.UUID]episode
}

// NewResumer returns a Resumer.
func NewResumer(db postgres.Pool, enqueue job.Enqueuer, logger *slog.Logger) *Resumer {
	return &Resumer{db: db, enqueue: enqueue, logger: logger, WarnAfter: warnAfter}
}

// Sweep is the part of the sweep lost-jobs that issues the jobs again that wait for campaigns which
// are free now.
func (s *Resumer) Sweep() sweep.Sweep {
	return sweep.Sweep{Counts: []string{"jobs_resumed"}, Run: s.resume}
}

// Locked returns how many campaigns the last run has found locked that jobs wait for; 0 when that is
// long ago: another process runs the sweep.
func (s *Resumer) Locked() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.checkedAt) > freshFor {
		return 0
	}
	return len(s.campaigns)
}

// resume issues the jobs again that wait for campaigns which are free now, the oldest first. For
// campaigns that stay locked it writes nothing.
func (s *Resumer) resume(ctx context.Context, run sweep.Run) error {
	awaited, now, err := job.FindAwaited(ctx, s.db, maxAwaited)
	if err != nil {
		return err
	}
	free, err := s.findFree(ctx, awaited)
	if err != nil {
		return err
	}
	named, resumed, start := s.note(awaited, free), make(map[uuid.UUID]int), time.Now()
	defer func() { s.logLocked(ctx, named, resumed) }()
	if len(free) == 0 {
		return nil
	}
	return run.Batches(func(limit int) (int, error) {
		var messages []job.Message
		var replaced int
		err = postgres.InTx(ctx, s.db, func(tx pgx.Tx) error {
			messages, replaced, err = job.Resume(ctx, tx, slices.Collect(maps.Keys(free)), now, limit)
			return err
		})
		if err != nil {
			return 0, err
		}
		for _, m := range messages {
			run.Counts["jobs_resumed"] += len(m.Jobs)
			for _, one := range m.Jobs {
				resumed[one.CampaignID]++
			}
		}
		if _, err := s.enqueue(ctx, messages); err != nil || replaced == 0 || time.Since(start) > resumeFor { // a later run finds those that could not be enqueued
			return 0, err
		}
		return limit, nil
	})
}

// findFree returns those of the campaigns that no other transaction has locked now. It waits for few of
// them, in a random order.
func (s *Resumer) findFree(ctx context.Context, campaigns []uuid.UUID) (free map[uuid.UUID]bool, err error) {
	free = make(map[uuid.UUID]bool)
	if len(campaigns) == 0 {
		return free, nil
	}
	if err := s.tryLock(ctx, campaigns, postgres.SkipLocked, free); err != nil {
		return nil, err
	}
	locked := slices.DeleteFunc(slices.Clone(campaigns), func(id uuid.UUID) bool { return free[id] })
	rand.Shuffle(len(locked), func(i, j int) { locked[i], locked[j] = locked[j], locked[i] }) //nolint:gosec // an order is no secret
	for i := range min(lockProbes, len(locked)) {
		if err := s.tryLock(ctx, locked[i:i+1], postgres.WaitForLocks, free); err != nil {
			return nil, err
		}
	}
	return free, nil
}

// tryLock notes the campaigns that it can lock as free, and those that do not exist.
func (s *Resumer) tryLock(ctx context.Context, campaigns []uuid.UUID, mode postgres.LockMode, free map[uuid.UUID]bool) error {
	err := postgres.InTx(ctx, s.db, func(tx pgx.Tx) error {
		var b pgx.Batch
		postgres.QueueLimitLockWaits(&b, probeWait)
		isFree := func(id uuid.UUID) { free[id] = true }
		QueueLock(&b, campaigns, mode, isFree)
		QueueMissing(&b, campaigns, isFree) // their jobs are refused
		return tx.SendBatch(ctx, &b).Close()
	})
	if postgres.IsLockTimeout(err) {
		return nil
	}
	return err
}

// episode is the time in which a campaign stays locked.
type episode struct {
	campaign uuid.UUID
	since    time.Time
	named    bool // in the log
	over     bool
}

// note notes which campaigns stay locked, and returns those to be named in the log: that have been
// locked for long, each once, and that were named and are free.
func (s *Resumer) note(awaited []uuid.UUID, free map[uuid.UUID]bool) (named []episode) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before, now := s.campaigns, time.Now()
	if now.Sub(s.checkedAt) > freshFor {
		before = nil
	}
	s.checkedAt, s.campaigns = now, make(map[uuid.UUID]episode)
	for _, id := range awaited {
		if free[id] {
			continue
		}
		one, known := before[id]
		if !known {
			one = episode{campaign: id, since: now}
		}
		if !one.named && len(named) < maxWarnings && now.Sub(one.since) >= s.WarnAfter {
			one.named = true
			named = append(named, one)
		}
		s.campaigns[id] = one
	}
	for id, one := range before {
		if _, locked := s.campaigns[id]; !locked && one.named {
			one.over = true
			named = append(named, one)
		}
	}
	return named
}

// logLocked names campaigns in the log: with the session that has them locked, or with the jobs that a run has
// resumed of them.
func (s *Resumer) logLocked(ctx context.Context, named []episode, resumed map[uuid.UUID]int) {
	for _, one := range named {
		line := []any{"campaign", one.campaign, "locked_for", time.Since(one.since).Round(time.Millisecond)}
		if one.over {
			s.logger.Info("a campaign is not locked any more: its jobs go on", append(line, "jobs", resumed[one.campaign])...)
			continue
		}
		jobs, err := job.CountAwaiting(ctx, s.db, one.campaign)
		line = append(line, "jobs", jobs)
		locker, unknown := FindLocker(ctx, s.db, one.campaign)
		if err = errors.Join(err, unknown); err != nil {
			line = append(line, "error", err)
		}
		s.logger.Warn("a campaign stays locked: its purchases and cancellations wait", append(line, "pid", locker.PID, "application", locker.Application)...)
	}
}
