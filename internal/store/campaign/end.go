package campaign

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/platform/postgres"
)

// closing makes a new version of the board, which shows what has become of the positions.
const closing = `board_version = board_version + 1, closed_board = board_version + 1`

// Cancellation is who cancelled a campaign, when and why.
type Cancellation struct {
	At     time.Time
	By     string  // role:client, and /user when one was signed in; system
	Reason *string // at most 500 characters; nil: none was given
}

// QueueCancel makes a pending or active campaign cancelled, for ever. Its sale is over
// with the commit. The batch fails with postgres.ErrRows in any other state.
func QueueCancel(b *pgx.Batch, id uuid.UUID, by, reason string) {
	b.Queue(`
		UPDATE campaigns
		SET state = 'cancelled', `+closing+`, paused_at = NULL, cancelled_at = clock_timestamp(), cancelled_by = $2, cancel_reason = nullif($3, '')
		WHERE id = $1 AND state IN ('pending', 'active')`, id, by, reason).Exec(postgres.Exactly(1, "pending or active campaigns"))
}

// QueueVoid makes a drawing campaign cancelled, for ever, and ends every claim on its draw. A
// trigger refuses it while the draw is not stuck. The batch fails with postgres.ErrRows in any
// other state.
func QueueVoid(b *pgx.Batch, id uuid.UUID, by, reason string) {
	b.Queue(`
		UPDATE campaigns
		SET state = 'cancelled', `+closing+`, cancelled_at = clock_timestamp(), cancelled_by = $2, cancel_reason = nullif($3, ''),
		    `+unclaimed+`, execution_version = execution_version + 1
		WHERE id = $1 AND state = 'drawing'`, id, by, reason).Exec(postgres.Exactly(1, "drawing campaigns"))
}

// CancellationOf returns the cancellation of a campaign, or false when it is not
// cancelled.
func CancellationOf(ctx context.Context, db postgres.DB, id uuid.UUID) (Cancellation, bool, error) {
	c, err := postgres.CollectOne(ctx, db, pgx.RowToStructByPos[Cancellation],
		`SELECT cancelled_at, cancelled_by, cancel_reason FROM campaigns WHERE id = $1 AND state = 'cancelled'`, id)
	ok, err := postgres.Found(err)
	return c, ok, fault.At(err, "campaign.CancellationOf(%s)", id)
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
func EndedUnsold(ctx context.Context, db postgres.DB, limit int) ([]Ended, error) {
	ended, err := postgres.Collect(ctx, db, pgx.RowToStructByPos[Ended], `
		SELECT id, sale_ends_at FROM campaigns c
		WHERE state = 'active' AND sale_ends_at <= (SELECT clock_timestamp()) AND policies ->> 'unsold' = 'cancel'
		  AND EXISTS (SELECT FROM positions WHERE campaign_id = c.id AND state IN ('available', 'held'))
		ORDER BY sale_ends_at LIMIT $1`, limit)
	return ended, fault.At(err, "campaign.EndedUnsold")
}

// Ended is a campaign whose sale has ended.
type Ended struct {
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
	if err != nil {
		return false, false, fmt.Errorf("campaign.IsEndedUnsold(%s): %w", id, err)
	}
	return ended, mayBeSoldOut, nil
}

// EndSale ends the sale of a campaign that is drawn at the end of its sale: it is drawing,
// with any number of sales, paused or not. ended is false when its end has not come by the
// database's clock, when positions are held or reserved, or when its sale was ended
// before. Call it under the campaign's lock.
func EndSale(ctx context.Context, tx pgx.Tx, id uuid.UUID) (ended bool, err error) {
	tag, err := tx.Exec(ctx, `
		UPDATE campaigns SET state = 'drawing', `+closing+`, paused_at = NULL, draw_started_at = clock_timestamp()
		WHERE id = $1 AND state = 'active' AND draws_at <= clock_timestamp() AND positions_reserved = 0`, id)
	if err != nil {
		return false, fmt.Errorf("campaign.EndSale(%s): %w", id, err)
	}
	return tag.RowsAffected() == 1, nil
}

// ToDraw returns up to limit campaigns on sale that are drawn at the end of their sale and
// whose end has come, the longest ended first. It locks nothing.
func ToDraw(ctx context.Context, db postgres.DB, limit int) ([]uuid.UUID, error) {
	ids, err := postgres.Collect(ctx, db, pgx.RowTo[uuid.UUID], `
		SELECT id FROM campaigns WHERE state = 'active' AND draws_at <= (SELECT clock_timestamp()) ORDER BY draws_at, id LIMIT $1`, limit)
	return ids, fault.At(err, "campaign.ToDraw")
}
