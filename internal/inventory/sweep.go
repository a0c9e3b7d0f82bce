package inventory

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/platform/config"
	"triprize/internal/platform/postgres"
	"triprize/internal/platform/sweep"
)

// ExpiredHolds is the sweep that ends holds that are over, with a short transaction for each
// campaign. A campaign that fails does not stop the others. It counts the holds in metrics.
func ExpiredHolds(db postgres.Pool, metrics *HoldMetrics) sweep.Sweep {
	return sweep.Sweep{Name: "expired-holds", Every: 10 * time.Second, Counts: []string{"campaigns", "expired", "freed", "failed"},
		Run: func(ctx context.Context, run sweep.Run) error { return expireAll(ctx, run, db, metrics) }}
}

func expireAll(ctx context.Context, run sweep.Run, db postgres.Pool, metrics *HoldMetrics) error {
	var failures []error
	broken := []uuid.UUID{} // campaigns that failed: not to be found again in this run
	err := run.Batches(func(limit int) (int, error) {
		campaigns, err := CampaignsWithHoldsOver(ctx, db, broken, limit)
		if err != nil {
			return 0, err
		}
		run.Counts["campaigns"] += len(campaigns)
		done, failed := 0, false
		for _, id := range campaigns {
			holds, positions, err := ExpireHolds(ctx, db, id, limit)
			if err != nil {
				broken = append(broken, id)
				run.Counts["failed"]++
				failed = true
				failures = append(failures, err)
				continue
			}
			done += holds
			run.Counts["expired"] += holds
			run.Counts["freed"] += positions
		}
		metrics.Count(HoldsExpired, done)
		if failed { // holds of failed campaigns filled the batch: there may be more of others
			done = max(done, limit)
		}
		return done, ctx.Err()
	})
	return errors.Join(append(failures, err)...)
}

// Prunes delete holds that ended long ago, and positions that will never be published.
func Prunes(db postgres.Pool, settings config.Holds) []sweep.Prune {
	keep := max(24*time.Hour, settings.MaxTTL*time.Duration(2+settings.MaxExtensions)) // or it would be forgotten for how long users have held positions
	return []sweep.Prune{
		sweep.OlderThan("holds_deleted", db, keep, DeleteEndedHolds),
		sweep.OlderThan("held_times_deleted", db, keep, DeleteHeldTimes), // they count no more
		{Count: "positions_deleted", Begin: func() sweep.Delete { return discardUnpublished(db) }},
	}
}

// discardUnpublished deletes positions of campaigns that were cancelled after a publication that
// was cut off. A batch is a step of [Filler].
func discardUnpublished(db postgres.Pool) sweep.Delete {
	return func(ctx context.Context, _ int) (deleted int, more bool, err error) {
		err = postgres.InTx(ctx, db, func(tx pgx.Tx) (err error) {
			deleted, more, err = Discard(ctx, tx)
			return err
		})
		return deleted, more, err
	}
}
