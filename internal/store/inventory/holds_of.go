package inventory

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"triprize/internal/platform/postgres"
)

// GetHolds returns those of the holds that exist, in any order, as GetHold does.
func GetHolds(ctx context.Context, db postgres.DB, ids []uuid.UUID) ([]Hold, error) {
	holds, err := postgres.Collect(ctx, db, scanHold, `SELECT `+now+` FROM holds WHERE id = ANY($1)`, ids)
	if err != nil {
		return nil, fmt.Errorf("inventory.GetHolds: %w", err)
	}
	return holds, nil
}
