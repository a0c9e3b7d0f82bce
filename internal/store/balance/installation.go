package balance

import (
	"context"

	"github.com/google/uuid"

	"triprize/internal/domain/fault"
	"triprize/internal/platform/postgres"
)

// Installation returns the id of this installation.
func Installation(ctx context.Context, db postgres.DB) (id uuid.UUID, err error) {
	err = db.QueryRow(ctx, `SELECT id FROM installation`).Scan(&id)
	return id, fault.At(err, "balance.Installation")
}
