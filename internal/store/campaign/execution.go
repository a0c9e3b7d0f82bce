package campaign

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/platform/failpoint"
	"triprize/internal/platform/postgres"
)

// ErrFenced means that the execution lock was taken over or released. Its former
// holder must not write anything.
var ErrFenced = errors.New("campaign: the execution lock was taken over")

// StartDraw ends the sale of a campaign whose last position the transaction has sold:
// from its commit on nothing about the campaign changes but its name, and the draw. Call
// it under the campaign's lock.
func StartDraw(ctx context.Context, tx pgx.Tx, id uuid.UUID) error {
	tag, err := tx.Exec(ctx, `
		UPDATE campaigns SET state = 'drawing', paused_at = NULL, draw_started_at = clock_timestamp()
		WHERE id = $1 AND state = 'active' AND positions_sold = positions_total`, id)
	if err != nil {
		return fmt.Errorf("campaign.StartDraw(%s): %w", id, err)
	}
	if tag.RowsAffected() != 1 {
		return fmt.Errorf("campaign.StartDraw(%s): it is not active, or its counters do not say that all is sold", id)
	}
	return nil
}

// SoldNow returns how many positions of a campaign its counter says are sold, the time of the
// database's clock, and for how long its draw is under way.
func SoldNow(ctx context.Context, db postgres.DB, id uuid.UUID) (sold int, now time.Time, drawing time.Duration, err error) {
	err = db.QueryRow(ctx, `
		SELECT positions_sold, now.at, coalesce(now.at - draw_started_at, '0') FROM campaigns, (SELECT clock_timestamp() AS at) now WHERE id = $1`, id).
		Scan(&sold, &now, &drawing)
	return sold, now, drawing, fault.At(err, "campaign.SoldNow(%s)", id)
}

// Execution is a claim on the draw of a campaign. Every write of its holder names
// the lock and its version, so it changes nothing once another worker has claimed
// the draw.
type Execution struct {
	CampaignID uuid.UUID
	LockID     uuid.UUID
	Version    int64
}

// unclaimed frees the execution lock.
const unclaimed = `execution_lock_id = NULL, execution_locked_at = NULL, execution_locked_by = NULL`

// Claim takes the execution lock of a campaign that is drawing for a holder, whose name people read, if the
// lock is free or its holder has not renewed it for longer than lease. ok is false when
// the campaign is not drawing, is drawn already, or another worker has the lock.
func Claim(ctx context.Context, db postgres.DB, id uuid.UUID, holder string, lease time.Duration) (e Execution, ok bool, err error) {
	e = Execution{CampaignID: id, LockID: uuid.New()}
	if unlocked(id) {
		return e, true, nil
	}
	err = db.QueryRow(ctx, `
		UPDATE campaigns
		SET execution_lock_id = $2, execution_locked_at = clock_timestamp(), execution_locked_by = $4, execution_version = execution_version + 1
		WHERE id = $1 AND state = 'drawing'
		  AND (execution_lock_id IS NULL OR execution_locked_at < clock_timestamp() - $3 * interval '1 second')
		  AND NOT EXISTS (SELECT FROM draws WHERE campaign_id = $1)
		RETURNING execution_version`, id, e.LockID, lease.Seconds(), holder).Scan(&e.Version)
	ok, err = postgres.Found(err)
	return e, ok, fault.At(err, "campaign.Claim(%s)", id)
}

// Renew extends the lease of the holder, or returns ErrFenced.
func (e Execution) Renew(ctx context.Context, db postgres.DB) error {
	return e.guarded(ctx, db, "Renew", `SET execution_locked_at = clock_timestamp()`)
}

// Release frees the lock, or returns ErrFenced.
func (e Execution) Release(ctx context.Context, db postgres.DB) error {
	return e.guarded(ctx, db, "Release", `SET `+unclaimed)
}

// Complete ends the campaign and frees the lock, or returns ErrFenced. Call it
// first in the transaction that records the draw: the row stays locked, so no
// later claim can succeed before the commit.
func (e Execution) Complete(ctx context.Context, tx pgx.Tx) error {
	return e.guarded(ctx, tx, "Complete", `
		SET state = 'completed', `+closing+`, draw_completed_at = clock_timestamp(), `+unclaimed)
}

func (e Execution) guarded(ctx context.Context, db postgres.DB, what, set string) error {
	if unlocked(e.CampaignID) {
		if what != "Complete" {
			return nil
		}
		_, err := db.Exec(ctx, `UPDATE campaigns `+set+` WHERE id = $1`, e.CampaignID)
		return err
	}
	tag, err := db.Exec(ctx, `UPDATE campaigns `+set+`
		WHERE id = $1 AND state = 'drawing' AND execution_lock_id = $2 AND execution_version = $3`, e.CampaignID, e.LockID, e.Version)
	if err != nil {
		return fmt.Errorf("campaign.Execution.%s(%s): %w", what, e.CampaignID, err)
	}
	if tag.RowsAffected() != 1 {
		return fmt.Errorf("campaign.Execution.%s(%s, version %d): %w", what, e.CampaignID, e.Version, ErrFenced)
	}
	return nil
}

// unlocked reports whether a test has taken the execution lock of a campaign away: then
// every claim succeeds and no fence looks. Without it the primary keys of the
// draw records keep draws single. In binaries without failpoints it is always false.
func unlocked(id uuid.UUID) bool {
	return failpoint.Off("campaign.execution", func() []string { return []string{id.String()} })
}

// ReleaseStale frees up to limit execution locks whose holders have not renewed
// them for longer than lease, and returns their campaigns. It raises the version,
// so that a holder that is still alive gets ErrFenced.
func ReleaseStale(ctx context.Context, db postgres.DB, lease time.Duration, limit int) ([]uuid.UUID, error) {
	released, err := postgres.Collect(ctx, db, pgx.RowTo[uuid.UUID], `
		UPDATE campaigns SET `+unclaimed+`, execution_version = execution_version + 1
		WHERE id IN (
			SELECT id FROM campaigns
			WHERE state = 'drawing' AND execution_locked_at < clock_timestamp() - $1 * interval '1 second'
			ORDER BY id LIMIT $2 FOR NO KEY UPDATE SKIP LOCKED)
		RETURNING id`, lease.Seconds(), limit)
	return released, fault.At(err, "campaign.ReleaseStale")
}

// AwardPrizes writes the winning columns: columns[i] wins prize numbers[i].
func AwardPrizes(ctx context.Context, tx pgx.Tx, id uuid.UUID, numbers, columns []int) error {
	tag, err := tx.Exec(ctx, `
		UPDATE prizes p SET winning_column = w.col
		FROM unnest($2::int[], $3::int[]) AS w (number, col)
		WHERE p.campaign_id = $1 AND p.number = w.number AND p.winning_column IS NULL`, id, numbers, columns)
	if err != nil {
		return fmt.Errorf("campaign.AwardPrizes(%s): %w", id, err)
	}
	if int(tag.RowsAffected()) != len(numbers) {
		return fmt.Errorf("campaign.AwardPrizes(%s): %d of %d prizes awarded", id, tag.RowsAffected(), len(numbers))
	}
	return nil
}
