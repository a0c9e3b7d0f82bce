package campaign

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/platform/postgres"
)

// EndSale ends the sale of a campaign that is drawn at the end of its sale: it is drawing,
// with any number of sales, paused or not. ended is false when its end has not come by the
// database's clock, when positions are held or reserved, or when its sale was ended
// before. Call it under the campaign's lock.
func EndSale(ctx context.Context, tx pgx.Tx, id uuid.UUID) (ended bool, err error) {
	tag, err := tx.Exec(ctx, `
		UPDATE campaigns SET state = 'drawing', paused_at = NULL, draw_started_at = clock_timestamp()
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
	if err != nil {
		return nil, fmt.Errorf("campaign.ToDraw: %w", err)
	}
	return ids, nil
}
