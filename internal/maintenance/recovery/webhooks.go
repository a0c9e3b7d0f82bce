package recovery

import (
	"context"

	"github.com/jackc/pgx/v5"

	"triprize/internal/platform/postgres"
	"triprize/internal/store/webhook"
)

// webhookEndpoints deletes what is left of endpoints that were deleted.
func (s *Sweeper) webhookEndpoints() prune {
	return func(ctx context.Context, limit int) (deleted int, more bool, err error) {
		err = postgres.InTx(ctx, s.db, func(tx pgx.Tx) (err error) {
			deleted, err = webhook.DeleteEndpoints(ctx, tx, limit)
			return err
		})
		return deleted, deleted > 0, err
	}
}
