package campaign

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/platform/postgres"
)

// closing makes a new version of the board, which shows what has become of the positions.
const closing = `board_version = board_version + 1, closed_board = board_version + 1`

// QueueCancel makes a campaign cancelled, for ever: a pending or active one, whose sale is over with
// the commit, or to void its draw a drawing one, whose claims end. A trigger refuses the void of a
// draw that is not stuck. The batch fails with postgres.ErrRows in any other state.
func QueueCancel(b *pgx.Batch, id uuid.UUID, by, reason string, void bool) {
	from := []State{Pending, Active}
	if void {
		from = []State{Drawing}
	}
	b.Queue(`
		UPDATE campaigns
		SET state = 'cancelled', `+closing+`, paused_at = NULL, cancelled_at = clock_timestamp(), cancelled_by = $2, cancel_reason = nullif($3, ''),
		    `+unclaimed+`, execution_version = execution_version + (state = 'drawing')::int
		WHERE id = $1 AND state = ANY($4)`, id, by, reason, from).Exec(postgres.Exactly(1, "campaigns to be cancelled"))
}

// CancelledFor returns for how long a campaign is cancelled, and the present moment of the database.
func CancelledFor(ctx context.Context, db postgres.DB, id uuid.UUID) (since time.Duration, now time.Time, err error) {
	err = db.QueryRow(ctx, `SELECT now.at - cancelled_at, now.at FROM campaigns, (SELECT clock_timestamp() AS at) now WHERE id = $1`, id).Scan(&since, &now)
	return since, now, fault.At(err, "campaign.CancelledFor(%s)", id)
}

// EndedUnsold returns campaigns that are to be cancelled because their sale has ended
// before everything was sold, with the ends of their sales, the earliest first. It locks
// nothing. A campaign whose last positions are being paid is left out: it may still be
// sold out.
func EndedUnsold(ctx context.Context, db postgres.DB, limit int) ([]EndedSale, error) {
	ended, err := postgres.Collect(ctx, db, pgx.RowToStructByPos[EndedSale], `
		SELECT id, sale_ends_at FROM campaigns c
		WHERE state = 'active' AND sale_ends_at <= (SELECT clock_timestamp()) AND policies ->> 'unsold' = 'cancel'
		  AND EXISTS (SELECT FROM positions WHERE campaign_id = c.id AND state IN ('available', 'held'))
		ORDER BY sale_ends_at LIMIT $1`, limit)
	return ended, fault.At(err, "campaign.EndedUnsold")
}

// EndedSale is a campaign whose sale has ended.
type EndedSale struct {
	ID uuid.UUID
	At time.Time
}

// IsEndedUnsold reports, under the campaign's lock, what EndedUnsold has found, and
// whether it has found it too early: every position is sold or being paid.
func IsEndedUnsold(ctx context.Context, tx pgx.Tx, id uuid.UUID) (ended, mayBeSoldOut bool, err error) {
	err = tx.QueryRow(ctx, `
		SELECT coalesce(sale_ends_at <= clock_timestamp(), false) AND policies ->> 'unsold' = 'cancel',
		       NOT EXISTS (SELECT FROM positions WHERE campaign_id = c.id AND state IN ('available', 'held'))
		FROM campaigns c WHERE id = $1`, id).Scan(&ended, &mayBeSoldOut)
	return ended, mayBeSoldOut, fault.At(err, "campaign.IsEndedUnsold(%s)", id)
}

// EndSale ends the sale of a campaign that is drawn at the end of its sale: it is drawing,
// with any number of sales, paused or not. ended is false when its end has not come by the
// database's clock, when positions are held or reserved, or when its sale was ended
// before. Call it under the campaign's lock.
func EndSale(ctx context.Context, tx pgx.Tx, id uuid.UUID) (ended bool, err error) {
	tag, err := tx.Exec(ctx, `
		UPDATE campaigns SET state = 'drawing', `+closing+`, paused_at = NULL, draw_started_at = clock_timestamp()
		WHERE id = $1 AND state = 'active' AND draws_at <= clock_timestamp() AND positions_reserved = 0`, id)
	return tag.RowsAffected() == 1, fault.At(err, "campaign.EndSale(%s)", id)
}

// ToDraw returns up to limit campaigns on sale that are drawn at the end of their sale and
// whose end has come, the longest ended first. It locks nothing.
func ToDraw(ctx context.Context, db postgres.DB, limit int) ([]uuid.UUID, error) {
	ids, err := postgres.Collect(ctx, db, pgx.RowTo[uuid.UUID], `
		SELECT id FROM campaigns WHERE state = 'active' AND draws_at <= (SELECT clock_timestamp()) ORDER BY draws_at, id LIMIT $1`, limit)
	return ids, fault.At(err, "campaign.ToDraw")
}

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
	if err == nil && tag.RowsAffected() != 1 {
		err = errors.New("it is not active, or its counters do not say that all is sold")
	}
	return fault.At(err, "campaign.StartDraw(%s)", id)
}

// SoldNow returns how many positions of a campaign its counter says are sold, and the time of the
// database's clock.
func SoldNow(ctx context.Context, db postgres.DB, id uuid.UUID) (sold int, now time.Time, err error) {
	err = db.QueryRow(ctx, `SELECT positions_sold, clock_timestamp() FROM campaigns WHERE id = $1`, id).Scan(&sold, &now)
	return sold, now, fault.At(err, "campaign.SoldNow(%s)", id)
}

// Execution is a claim on the draw of a campaign. Every write of its holder names
// the lock and its version, so it changes nothing once another worker has claimed
// the draw.
type Execution struct {
	CampaignID uuid.UUID
	LockID     uuid.UUID
	Version    int64
	StartedAt  time.Time // when the draw began
}

// unclaimed frees the execution lock.
const unclaimed = `execution_lock_id = NULL, execution_locked_at = NULL, execution_locked_by = NULL`

// Claim takes the execution lock of a campaign that is drawing for a holder, whose name people read, if the
// lock is free or its holder has not renewed it for longer than lease. ok is false when
// the campaign is not drawing, is drawn already, or another worker has the lock.
func Claim(ctx context.Context, db postgres.DB, id uuid.UUID, holder string, lease time.Duration) (e Execution, ok bool, err error) {
	e = Execution{CampaignID: id, LockID: uuid.New()}
	err = db.QueryRow(ctx, `
		UPDATE campaigns
		SET execution_lock_id = $2, execution_locked_at = clock_timestamp(), execution_locked_by = $4, execution_version = execution_version + 1
		WHERE id = $1 AND state = 'drawing'
		  AND (execution_lock_id IS NULL OR execution_locked_at < clock_timestamp() - $3 * interval '1 second')
		  AND NOT EXISTS (SELECT FROM draws WHERE campaign_id = $1)
		RETURNING execution_version, coalesce(draw_started_at, clock_timestamp())`, id, e.LockID, lease.Seconds(), holder).Scan(&e.Version, &e.StartedAt)
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
	tag, err := db.Exec(ctx, `UPDATE campaigns `+set+`
		WHERE id = $1 AND state = 'drawing' AND execution_lock_id = $2 AND execution_version = $3`, e.CampaignID, e.LockID, e.Version)
	if err == nil && tag.RowsAffected() != 1 {
		err = ErrFenced
	}
	return fault.At(err, "campaign.Execution.%s(%s, version %d)", what, e.CampaignID, e.Version)
}

// ExecutionLock is the execution lock of a campaign.
type ExecutionLock struct {
	CampaignID uuid.UUID
	LockID     uuid.UUID
	Holder     string
	RenewedAt  time.Time
	Stale      bool // not renewed for longer than the lease: ReleaseStale frees it
}

// ListLocked returns up to limit execution locks, those first that were not renewed for longest.
func ListLocked(ctx context.Context, db postgres.DB, lease time.Duration, limit int) ([]ExecutionLock, error) {
	all, err := postgres.Collect(ctx, db, pgx.RowToStructByPos[ExecutionLock], `
		SELECT id, execution_lock_id, execution_locked_by, execution_locked_at, execution_locked_at < clock_timestamp() - $1 * interval '1 second'
		FROM campaigns WHERE state = 'drawing' AND execution_lock_id IS NOT NULL ORDER BY execution_locked_at LIMIT $2`, lease.Seconds(), limit)
	return all, fault.At(err, "campaign.ListLocked")
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
	if err == nil && int(tag.RowsAffected()) != len(numbers) {
		err = fmt.Errorf("%d of %d prizes awarded", tag.RowsAffected(), len(numbers))
	}
	return fault.At(err, "campaign.AwardPrizes(%s)", id)
}
