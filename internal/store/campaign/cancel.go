package campaign

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/platform/postgres"
)

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
		SET state = 'cancelled', paused_at = NULL, cancelled_at = clock_timestamp(), cancelled_by = $2, cancel_reason = nullif($3, '')
		WHERE id = $1 AND state IN ('pending', 'active')`, id, by, reason).Exec(postgres.Exactly(1, "pending or active campaigns"))
}

// CancellationOf returns the cancellation of a campaign, or false when it is not
// cancelled.
func CancellationOf(ctx context.Context, db postgres.DB, id uuid.UUID) (Cancellation, bool, error) {
	c, err := postgres.CollectOne(ctx, db, pgx.RowToStructByPos[Cancellation],
		`SELECT cancelled_at, cancelled_by, cancel_reason FROM campaigns WHERE id = $1 AND state = 'cancelled'`, id)
	if errors.Is(err, pgx.ErrNoRows) {
		return Cancellation{}, false, nil
	}
	if err != nil {
		return Cancellation{}, false, fmt.Errorf("campaign.CancellationOf(%s): %w", id, err)
	}
	return c, true, nil
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
	if err != nil {
		return nil, fmt.Errorf("campaign.EndedUnsold: %w", err)
	}
	return ended, nil
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
