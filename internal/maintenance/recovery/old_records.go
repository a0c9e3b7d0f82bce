package recovery

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"triprize/internal/platform/failpoint"
	"triprize/internal/platform/postgres"
	"triprize/internal/store/inventory"
	"triprize/internal/store/payment"
)

// errMore ends a run that had more to do than time.
var errMore = errors.New("recovery: the time of the run is over, and there is more")

// longestPause bounds the pause after a batch.
const longestPause = time.Second

// prune deletes one batch of a kind of old records. It reports how many it has deleted,
// and whether it may find more.
type prune func(ctx context.Context, limit int) (deleted int, more bool, err error)

// oldRecords deletes final jobs, ended holds and handled events that are past their
// retention, and positions that will never be published, until none is left, or four fifths
// of its time are used up: then it fails with errMore. It also ends when ctx is cancelled;
// what is deleted by then stays deleted.
//
// The kinds take turns, so that none has to wait until another has no more. After each
// batch it pauses for as long as the batch took: it uses half a connection at most, and
// less of a server that is busy.
func (s *Sweeper) oldRecords(ctx context.Context) (Counts, error) {
	counts := Counts{"jobs_deleted": 0, "refused_deleted": 0, "holds_deleted": 0, "held_times_deleted": 0, "events_deleted": 0, "positions_deleted": 0,
		"webhook_events_deleted": 0, "webhook_endpoints_deleted": 0, "batches": 0}
	kinds := map[string]prune{"jobs_deleted": s.expiredJobs(), "refused_deleted": s.refusedJobs(), "holds_deleted": s.endedHolds(), "held_times_deleted": s.heldTimes(),
		"events_deleted": s.paymentEvents(), "positions_deleted": s.unpublishedPositions(),
		"webhook_events_deleted": s.webhookEvents(), "webhook_endpoints_deleted": s.webhookEndpoints()}
	over := endOfWork(ctx)
	for len(kinds) > 0 {
		for what, next := range kinds {
			if ctx.Err() != nil || time.Now().After(over) {
				return counts, errMore
			}
			start := time.Now()
			deleted, more, err := next(ctx, s.settings.Scheduler.BatchSize)
			switch {
			case errors.Is(ctx.Err(), context.Canceled):
				return counts, errMore
			case err != nil:
				return counts, err
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
	return counts, nil
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

// endedHolds deletes holds that ended long ago.
func (s *Sweeper) endedHolds() prune {
	var from *time.Time
	return func(ctx context.Context, limit int) (deleted int, more bool, err error) {
		deleted, from, err = inventory.DeleteEndedHolds(ctx, s.db, s.settings.Retention.Holds, from, limit)
		return deleted, deleted == limit, err
	}
}

// heldTimes deletes what is known of how long users have kept positions, when it counts
// no more.
func (s *Sweeper) heldTimes() prune {
	var from *time.Time
	return func(ctx context.Context, limit int) (deleted int, more bool, err error) {
		deleted, from, err = inventory.DeleteHeldTimes(ctx, s.db, s.settings.Retention.Holds, from, limit)
		return deleted, deleted == limit, err
	}
}

// paymentEvents deletes events of the provider of payments that were worked off.
func (s *Sweeper) paymentEvents() prune {
	var from *time.Time
	return func(ctx context.Context, limit int) (deleted int, more bool, err error) {
		deleted, from, err = payment.DeleteEvents(ctx, s.db, s.settings.Retention.PaymentEvents, from, limit)
		return deleted, deleted == limit, err
	}
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
