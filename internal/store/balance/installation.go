package balance

import (
	"context"
	"errors"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/platform/postgres"
)

// Installation returns the id of this installation. The first call makes it: a database that
// has made nothing at a provider needs none, and has no days to be reconciled.
func Installation(ctx context.Context, db postgres.DB) (id uuid.UUID, err error) {
	err = db.QueryRow(ctx, `SELECT id FROM installation`).Scan(&id)
	if errors.Is(err, pgx.ErrNoRows) {
		err = db.QueryRow(ctx, `INSERT INTO installation AS i DEFAULT VALUES ON CONFLICT (one) DO UPDATE SET id = i.id RETURNING id`).Scan(&id)
	}
	return id, fault.At(err, "balance.Installation")
}
