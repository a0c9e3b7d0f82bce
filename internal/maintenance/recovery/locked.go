package recovery

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/campaign"
	"triprize/internal/job"
	"triprize/internal/platform/postgres"
)

const (
	// awaitedMost is how many campaigns one run looks after.
	awaitedMost = 10_000
	// A campaign in which workers sell all the time is never free without a wait.
	lookWaits = 2
	lookWait  = 100 * time.Millisecond
	// warnAfter is how long a campaign stays locked until the log names it.
	warnAfter = 5 * time.Second
	// warnMost is how many campaigns a run warns of: others come in the next.
	warnMost = 10
	// resumeFor is how long a run issues jobs again; the next one goes on.
	resumeFor = 10 * time.Second
	// lookFresh is how long the result of a run is told by the gauge.
	lookFresh = 10 * time.Second
)

// lockedCampaigns are those that stay locked, as the last run has found.
type lockedCampaigns struct {
	mu        sync.Mutex
	looked    time.Time
	campaigns map[uuid.UUID]episode
}

// LockedCampaigns returns how many campaigns the last run of lost-jobs has found locked that jobs
// wait for; 0 when that is long ago: another process runs the sweep.
func (s *Sweeper) LockedCampaigns() int {
	s.locked.mu.Lock()
	defer s.locked.mu.Unlock()
	if time.Since(s.locked.looked) > lookFresh {
		return 0
	}
	return len(s.locked.campaigns)
}

// resumeJobs issues the jobs again that wait for campaigns which are free now, the oldest first. For
// campaigns that stay locked it writes nothing.
func (s *Sweeper) resumeJobs(ctx context.Context, counts Counts) error {
	awaited, now, err := job.FindAwaited(ctx, s.db, awaitedMost)
	if err != nil {
		return err
	}
	free, err := s.findFree(ctx, awaited)
	if err != nil {
		return err
	}
	named, resumed, start := s.locked.note(awaited, free, s.warnAfter), make(map[uuid.UUID]int), time.Now()
	defer func() { s.logLocked(ctx, named, resumed) }()
	if len(free) == 0 {
		return nil
	}
	return s.batches(func(limit int) (int, error) {
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
			counts["jobs_resumed"] += len(m.Jobs)
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
func (s *Sweeper) findFree(ctx context.Context, campaigns []uuid.UUID) (free map[uuid.UUID]bool, err error) {
	free = make(map[uuid.UUID]bool)
	if len(campaigns) == 0 {
		return free, nil
	}
	if err := s.tryLock(ctx, campaigns, postgres.SkipLocked, free); err != nil {
		return nil, err
	}
	locked := slices.DeleteFunc(slices.Clone(campaigns), func(id uuid.UUID) bool { return free[id] })
	rand.Shuffle(len(locked), func(i, j int) { locked[i], locked[j] = locked[j], locked[i] }) //nolint:gosec // an order is no secret
	for i := range min(lookWaits, len(locked)) {
		if err := s.tryLock(ctx, locked[i:i+1], postgres.WaitForLocks, free); err != nil {
			return nil, err
		}
	}
	return free, nil
}

// tryLock notes the campaigns that it can lock as free, and those that do not exist.
func (s *Sweeper) tryLock(ctx context.Context, campaigns []uuid.UUID, mode postgres.LockMode, free map[uuid.UUID]bool) error {
	err := postgres.InTx(ctx, s.db, func(tx pgx.Tx) error {
		var b pgx.Batch
		postgres.QueueLimitLockWaits(&b, lookWait)
		isFree := func(id uuid.UUID) { free[id] = true }
		campaign.QueueLock(&b, campaigns, mode, isFree)
		campaign.QueueMissing(&b, campaigns, isFree) // their jobs are refused
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
func (l *lockedCampaigns) note(awaited []uuid.UUID, free map[uuid.UUID]bool, long time.Duration) (named []episode) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before, now := l.campaigns, time.Now()
	if now.Sub(l.looked) > lookFresh {
		before = nil
	}
	l.looked, l.campaigns = now, make(map[uuid.UUID]episode)
	for _, id := range awaited {
		if free[id] {
			continue
		}
		one, known := before[id]
		if !known {
			one = episode{campaign: id, since: now}
		}
		if !one.named && len(named) < warnMost && now.Sub(one.since) >= long {
			one.named = true
			named = append(named, one)
		}
		l.campaigns[id] = one
	}
	for id, one := range before {
		if _, locked := l.campaigns[id]; !locked && one.named {
			one.over = true
			named = append(named, one)
		}
	}
	return named
}

// logLocked names campaigns in the log: with the session that has them locked, or with the jobs that a run has
// resumed of them.
func (s *Sweeper) logLocked(ctx context.Context, named []episode, resumed map[uuid.UUID]int) {
	for _, one := range named {
		line := []any{"campaign", one.campaign, "locked_for", time.Since(one.since).Round(time.Millisecond)}
		if one.over {
			s.logger.Info("a campaign is not locked any more: its jobs go on", append(line, "jobs", resumed[one.campaign])...)
			continue
		}
		jobs, err := job.CountAwaiting(ctx, s.db, one.campaign)
		line = append(line, "jobs", jobs)
		locker, unknown := campaign.FindLocker(ctx, s.db, one.campaign)
		if err = errors.Join(err, unknown); err != nil {
			line = append(line, "error", err)
		}
		s.logger.Warn("a campaign stays locked: its purchases and cancellations wait", append(line, "pid", locker.PID, "application", locker.Application)...)
	}
}
