package inventory

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/campaign"
	"triprize/internal/domain/fault"
	"triprize/internal/platform/postgres"
)

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
		holds, positions = 0, 0
		if err := campaign.Lock(ctx, tx, campaignID); err != nil {
			return err
		}
		e := effects{changes: make(campaign.Changes)}
		var find pgx.Batch
		QueueFindOver(&find, []uuid.UUID{campaignID}, &e.over)
		if err := tx.SendBatch(ctx, &find).Close(); err != nil {
			return err
		}
		e.over = e.over[:min(len(e.over), limit)]
		if err := e.end(ctx, tx); err != nil {
			return err
		}
		holds, positions = len(e.over), -e.changes[campaignID].Reserved
		return e.write(ctx, tx, HoldQuota{})
	})
	if err != nil {
		return 0, 0, fmt.Errorf("inventory.ExpireHolds(%s): %w", campaignID, err)
	}
	return holds, positions, nil
}

// DeleteEndedHolds deletes up to limit holds that ended longer ago than keep, the oldest
// first, and returns how many. from is the cursor: holds that ended before it are skipped,
// since those that were deleted a moment ago are still in the index.
func DeleteEndedHolds(ctx context.Context, db postgres.DB, keep time.Duration, from *time.Time, limit int) (deleted int, next *time.Time, err error) {
	return deleteEnded(ctx, db, "holds", keep, from, limit)
}

// DeleteHeldTimes deletes up to limit times whose last hold ended longer ago than keep,
// as DeleteEndedHolds does. keep must be longer than a Rest and the longest hold together.
func DeleteHeldTimes(ctx context.Context, db postgres.DB, keep time.Duration, from *time.Time, limit int) (deleted int, next *time.Time, err error) {
	return deleteEnded(ctx, db, "held_times", keep, from, limit)
}

func deleteEnded(ctx context.Context, db postgres.DB, table string, keep time.Duration, from *time.Time, limit int) (deleted int, next *time.Time, err error) {
	err = db.QueryRow(ctx, `
		WITH old AS MATERIALIZED (
			SELECT ctid AS place, ended_at FROM `+table+`
			WHERE ended_at >= coalesce($2, '-infinity'::timestamptz) AND ended_at < statement_timestamp() - $1 * interval '1 second'
			ORDER BY ended_at LIMIT $3 FOR UPDATE SKIP LOCKED
		), deleted AS (
			DELETE FROM `+table+` WHERE ctid = ANY(ARRAY(SELECT place FROM old))
		)
		SELECT count(*), coalesce(max(ended_at), $2) FROM old`, keep.Seconds(), from, limit).Scan(&deleted, &next)
	if err != nil {
		return 0, from, fmt.Errorf("inventory.deleteEnded(%s): %w", table, err)
	}
	return deleted, next, nil
}
