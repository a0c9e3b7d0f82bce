package recovery

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"triprize/internal/inventory"
	"triprize/internal/payment"
	"triprize/internal/payment/reconciliation"
	"triprize/internal/platform/failpoint"
	"triprize/internal/platform/postgres"
	"triprize/internal/webhook"
)

// errMore ends a run that had more to do than time.
var errMore = errors.New("recovery: the time of the run is over, and there is more")

// longestPause bounds the pause after a batch.
const longestPause = time.Second

// prune deletes one batch of a kind of old records. It reports how many it has deleted,
// and whether it may find more.
type prune func(ctx context.Context, limit int) (deleted int, more bool, err error)

// retentions is what is kept for how long: the count in the sweep's report, and the
// statement that deletes a batch of what is older.
func (s *Sweeper) retentions() map[string]prune {
	keep := s.settings.Retention
	holds := max(24*time.Hour, s.settings.Holds.MaxTTL*time.Duration(2+s.settings.Holds.MaxExtensions)) // or it would be forgotten for how long users have held positions
	return map[string]prune{
		"jobs_deleted":              s.expiredJobs(), // retention.jobs and retention.purchases, as each job was made with
		"refused_deleted":           s.refusedJobs(), // retention.refused
		"holds_deleted":             s.olderThan(holds, inventory.DeleteEndedHolds),
		"held_times_deleted":        s.olderThan(holds, inventory.DeleteHeldTimes),      // they count no more
		"events_deleted":            s.olderThan(30*24*time.Hour, payment.DeleteEvents), // the provider forgets them then, too
		"balance_deleted":           s.olderThan(keep.BalanceTransactions, reconciliation.DeleteOld),
		"webhook_events_deleted":    s.olderThan(keep.Webhooks, webhook.DeleteEvents),
		"webhook_endpoints_deleted": s.webhookEndpoints(),     // soon: they were deleted, or their time is over
		"positions_deleted":         s.unpublishedPositions(), // at once: they will never be published
	}
}

// olderThan deletes what is older than keep, batch after batch from the oldest on.
func (s *Sweeper) olderThan(keep time.Duration,
	remove func(ctx context.Context, db postgres.DB, keep time.Duration, from *time.Time, limit int) (deleted int, next *time.Time, err error),
) prune {
	var from *time.Time
	return func(ctx context.Context, limit int) (deleted int, more bool, err error) {
		deleted, from, err = remove(ctx, s.db, keep, from, limit)
		return deleted, deleted == limit, err
	}
}

// oldRecords deletes what is past its retention until nothing is left, or four fifths of
// its time are used up: then it fails with errMore. It also ends when ctx is cancelled;
// what is deleted by then stays deleted.
//
// The kinds take turns, so that none has to wait until another has no more. One that fails
// is left for the next run, and the others go on. After each
// batch it pauses for as long as the batch took: it uses half a connection at most, and
// less of a server that is busy.
func (s *Sweeper) oldRecords(ctx context.Context) (Counts, error) {
	counts, kinds := Counts{"batches": 0}, s.retentions()
	for what := range kinds {
		counts[what] = 0
	}
	over := endOfWork(ctx)
	var failed error
	early := func() (Counts, error) {
		if failed != nil {
			return counts, failed
		}
		return counts, errMore
	}
	for len(kinds) > 0 {
		for what, next := range kinds {
			if ctx.Err() != nil || time.Now().After(over) {
				return early()
			}
			start := time.Now()
			deleted, more, err := next(ctx, s.settings.Scheduler.BatchSize)
			switch {
			case errors.Is(ctx.Err(), context.Canceled):
				return early()
			case err != nil:
				failed = errors.Join(failed, err)
				delete(kinds, what)
				continue
			}
			if deleted > 0 {
				failpoint.Hit("recovery.deleted", func() []string { return []string{s.settings.Redis.Namespace} })
				counts["batches"]++
			}
			counts[what] += deleted
			if !more {
				delete(kinds, what)
				continue
			}
			pause(ctx, min(time.Since(start), longestPause))
		}
	}
	return counts, failed
}

// endOfWork is when a run starts no more batches: the rest of its time is for the one
// that is under way.
func endOfWork(ctx context.Context) time.Time {
	now := time.Now()
	deadline, ok := ctx.Deadline()
	if !ok {
		return now.Add(longestPause)
	}
	return now.Add(deadline.Sub(now) * 4 / 5)
}

// unpublishedPositions deletes positions of campaigns that were cancelled after a
// publication that was cut off. A batch is a step of inventory.Filler.
func (s *Sweeper) unpublishedPositions() prune {
	return func(ctx context.Context, _ int) (deleted int, more bool, err error) {
		err = postgres.InTx(ctx, s.db, func(tx pgx.Tx) (err error) {
			deleted, more, err = inventory.Discard(ctx, tx)
			return err
		})
		return deleted, more, err
	}
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// webhookEndpoints deletes what is left of endpoints that were deleted.
func (s *Sweeper) webhookEndpoints() prune {
	return func(ctx context.Context, limit int) (deleted int, more bool, err error) {
		err = postgres.InTx(ctx, s.db, func(tx pgx.Tx) (err error) {
			deleted, err = webhook.DeleteEndpoints(ctx, tx, limit)
			return err
		})
		return deleted, deleted > 0, err
	}
}
