package inventory

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/campaign"
	"triprize/internal/domain/fault"
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
		run.Counts["campaigns"] += len(campaigns)
		done, known := 0, len(broken)
		for _, id := range campaigns {
			holds, positions, err := ExpireHolds(ctx, db, id, limit)
			if err != nil {
				broken, failures = append(broken, id), append(failures, err)
			}
			done += holds
			run.Counts["freed"] += positions
		}
		run.Counts["expired"] += done
		run.Counts["failed"] += len(broken) - known
		metrics.Count(HoldsExpired, done)
		if len(broken) > known { // holds of failed campaigns filled the batch: there may be more of others
			done = max(done, limit)
		}
		return done, errors.Join(err, ctx.Err())
	})
	return errors.Join(append(failures, err)...)
}

// CampaignsWithHoldsOver returns the campaigns of the holds that have been over
// for longest: of at most limit holds, and without the campaigns in except. It
// locks nothing.
func CampaignsWithHoldsOver(ctx context.Context, db postgres.DB, except []uuid.UUID, limit int) ([]uuid.UUID, error) {
	ids, err := postgres.Collect(ctx, db, pgx.RowTo[uuid.UUID], `
		SELECT campaign_id FROM (
			SELECT campaign_id, expires_at FROM holds
			WHERE state = 'active' AND expires_at <= (SELECT clock_timestamp()) AND campaign_id <> ALL($2)
			ORDER BY expires_at LIMIT $1) o
		GROUP BY campaign_id ORDER BY min(expires_at)`, limit, except)
	return ids, fault.At(err, "inventory.CampaignsWithHoldsOver")
}

// ExpireHolds ends at most limit holds of a campaign that are over, and returns how many
// holds have ended and how many positions are free again.
func ExpireHolds(ctx context.Context, db postgres.Beginner, campaignID uuid.UUID, limit int) (holds, positions int, err error) {
	err = postgres.InTx(ctx, db, func(tx pgx.Tx) error {
		if err := campaign.Lock(ctx, tx, campaignID); err != nil {
			return err
		}
		var over []*Hold
		var find, end pgx.Batch
		queueRead(&find, func(h *Hold) { over = append(over, h) },
			`campaign_id = $1 AND state = 'active' AND expires_at <= (SELECT clock_timestamp()) ORDER BY expires_at LIMIT $2`, campaignID, limit)
		if err := tx.SendBatch(ctx, &find).Close(); err != nil {
			return err
		}
		changes := make(campaign.Changes)
		QueueExpire(&end, over, changes)
		changes.Queue(&end)
		holds, positions = len(over), -changes[campaignID].Reserved
		return postgres.Send(ctx, tx, &end)
	})
	if err != nil {
		return 0, 0, fmt.Errorf("inventory.ExpireHolds(%s): %w", campaignID, err)
	}
	return holds, positions, nil
}

// Prunes delete holds that ended long ago, and positions that will never be published.
func Prunes(db postgres.Pool, settings config.Holds) []sweep.Prune {
	retention := max(24*time.Hour, settings.MaxTTL*(2+maxExtensions)) // or it would be forgotten for how long users have held positions
	return []sweep.Prune{
		sweep.OlderThan("holds_deleted", db, retention, deleteEnded("holds")),
		sweep.OlderThan("held_times_deleted", db, retention, deleteEnded("held_times")), // they count no more
		{Count: "positions_deleted", Begin: func() sweep.Delete {
			return func(ctx context.Context, _ int) (deleted int, more bool, err error) { // a batch is a step of FillNext
				err = postgres.InTx(ctx, db, func(tx pgx.Tx) (err error) {
					deleted, more, err = Discard(ctx, tx)
					return err
				})
				return deleted, more, err
			}
		}},
	}
}

// deleteEnded deletes up to limit rows of a table that ended longer ago than retention, the oldest
// first. from is the cursor: rows that ended before it are skipped, since those that were
// deleted a moment ago are still in the index.
func deleteEnded(table string) func(ctx context.Context, db postgres.DB, retention time.Duration, from *time.Time, limit int) (deleted int, next *time.Time, err error) {
	return func(ctx context.Context, db postgres.DB, retention time.Duration, from *time.Time, limit int) (deleted int, next *time.Time, err error) {
		err = db.QueryRow(ctx, `
			WITH old AS MATERIALIZED (
				SELECT ctid AS tid, ended_at FROM `+table+`
				WHERE ended_at >= coalesce($2, '-infinity'::timestamptz) AND ended_at < statement_timestamp() - $1 * interval '1 second'
				ORDER BY ended_at LIMIT $3 FOR UPDATE SKIP LOCKED
			), deleted AS (
				DELETE FROM `+table+` WHERE ctid = ANY(ARRAY(SELECT tid FROM old))
			)
			SELECT count(*), coalesce(max(ended_at), $2) FROM old`, retention.Seconds(), from, limit).Scan(&deleted, &next)
		if err != nil {
			return 0, from, fmt.Errorf("inventory.deleteEnded(%s): %w", table, err)
		}
		return deleted, next, nil
	}
}
