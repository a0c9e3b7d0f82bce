package campaign

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/metadata"
)

// Describe replaces the metadata of a campaign, in any state. They stand beside the
// campaign's row, which every sale writes. The caller has locked the campaign, or has just
// made it.
func Describe(ctx context.Context, tx pgx.Tx, id uuid.UUID, m metadata.Map) (err error) {
	if text := m.Text(); text == nil {
		_, err = tx.Exec(ctx, `DELETE FROM campaign_metadata WHERE campaign_id = $1`, id)
	} else {
		_, err = tx.Exec(ctx, `
			INSERT INTO campaign_metadata (campaign_id, metadata) VALUES ($1, $2)
			ON CONFLICT (campaign_id) DO UPDATE SET metadata = excluded.metadata`, id, text)
	}
	if err != nil {
		return fmt.Errorf("campaign.Describe(%s): %w", id, err)
	}
	return nil
}
