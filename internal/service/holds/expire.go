package holds

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/platform/postgres"
	"triprize/internal/store/campaign"
	"triprize/internal/store/inventory"
)

// Expire ends at most limit holds of a campaign that are over, and returns how many
// holds have ended and how many positions are free again.
func Expire(ctx context.Context, db postgres.Beginner, campaignID uuid.UUID, limit int) (holds, positions int, err error) {
	err = postgres.InTx(ctx, db, func(tx pgx.Tx) error {
		holds, positions = 0, 0
		if err := campaign.Lock(ctx, tx, campaignID); err != nil {
			return err
		}
		e := effects{changes: make(campaign.Changes)}
		var find pgx.Batch
		inventory.QueueFindOver(&find, []uuid.UUID{campaignID}, &e.over)
		if err := tx.SendBatch(ctx, &find).Close(); err != nil {
			return err
		}
		e.over = e.over[:min(len(e.over), limit)]
		if err := e.end(ctx, tx); err != nil {
			return err
		}
		holds, positions = len(e.over), -e.changes[campaignID].Reserved
		return e.write(ctx, tx, inventory.Turns{})
	})
	if err != nil {
		return 0, 0, fmt.Errorf("holds.Expire(%s): %w", campaignID, err)
	}
	return holds, positions, nil
}
