package evidence

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/platform/postgres"
)

// InsertSecret stores the encrypted secret of a campaign at its publication.
func InsertSecret(ctx context.Context, tx pgx.Tx, id uuid.UUID, sealed []byte) error {
	if _, err := tx.Exec(ctx, `INSERT INTO draw_secrets (campaign_id, sealed) VALUES ($1, $2)`, id, sealed); err != nil {
		return fmt.Errorf("evidence.InsertSecret(%s): %w", id, err)
	}
	return nil
}

// SecretOf returns the encrypted secret of a published campaign.
func SecretOf(ctx context.Context, db postgres.DB, id uuid.UUID) (sealed []byte, err error) {
	if err := db.QueryRow(ctx, `SELECT sealed FROM draw_secrets WHERE campaign_id = $1`, id).Scan(&sealed); err != nil {
		return nil, fmt.Errorf("evidence.SecretOf(%s): %w", id, err)
	}
	return sealed, nil
}
