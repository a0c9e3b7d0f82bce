package drawrecord

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/platform/postgres"
)

// InsertSecret stores the encrypted secret of a campaign at its publication.
func InsertSecret(ctx context.Context, tx pgx.Tx, id uuid.UUID, sealed []byte) error {
	_, err := tx.Exec(ctx, `INSERT INTO draw_secrets (campaign_id, sealed) VALUES ($1, $2)`, id, sealed)
	return fault.At(err, "drawrecord.InsertSecret(%s)", id)
}

// SecretOf returns the encrypted secret of a published campaign.
func SecretOf(ctx context.Context, db postgres.DB, id uuid.UUID) (sealed []byte, err error) {
	if err := db.QueryRow(ctx, `SELECT sealed FROM draw_secrets WHERE campaign_id = $1`, id).Scan(&sealed); err != nil {
		return nil, fmt.Errorf("drawrecord.SecretOf(%s): %w", id, err)
	}
	return sealed, nil
}

// Sealed is the encrypted secret of a campaign.
type Sealed struct {
	CampaignID uuid.UUID
	Sealed     []byte
}

// SecretsAfter returns the next encrypted secrets by campaign, at most limit; zero: from
// the first on.
func SecretsAfter(ctx context.Context, db postgres.DB, after uuid.UUID, limit int) ([]Sealed, error) {
	list, err := postgres.Collect(ctx, db, pgx.RowToStructByPos[Sealed],
		`SELECT campaign_id, sealed FROM draw_secrets WHERE campaign_id > $1 ORDER BY campaign_id LIMIT $2`, after, limit)
	return list, fault.At(err, "drawrecord.SecretsAfter")
}

// ReplaceSecrets replaces encrypted secrets: those that are still as in old get what
// stands at their place in anew. It returns how many it has replaced.
func ReplaceSecrets(ctx context.Context, db postgres.DB, old []Sealed, anew [][]byte) (int, error) {
	ids, before := make([]uuid.UUID, len(old)), make([][]byte, len(old))
	for i, s := range old {
		ids[i], before[i] = s.CampaignID, s.Sealed
	}
	tag, err := db.Exec(ctx, `
		UPDATE draw_secrets s SET sealed = r.sealed, sealed_at = clock_timestamp()
		FROM unnest($1::uuid[], $2::bytea[], $3::bytea[]) AS r (id, old, sealed)
		WHERE s.campaign_id = r.id AND s.sealed = r.old`, ids, before, anew)
	if err != nil {
		return 0, fmt.Errorf("drawrecord.ReplaceSecrets: %w", err)
	}
	return int(tag.RowsAffected()), nil
}
