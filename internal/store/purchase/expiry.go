package purchase

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/platform/postgres"
)

// Expired is a purchase whose reservation has run out.
type Expired struct {
	ID         uuid.UUID
	CampaignID uuid.UUID
}

// FindExpired returns pending purchases whose reserved positions have expired by
// the database's clock: those of the limit oldest such positions. It locks nothing:
// the caller locks the campaign and then calls [StillExpired].
func FindExpired(ctx context.Context, db postgres.DB, limit int) ([]Expired, error) {
	expired, err := postgres.Collect(ctx, db, pgx.RowToStructByPos[Expired], `
		SELECT DISTINCT purchase_id, campaign_id FROM (
			SELECT s.purchase_id, s.campaign_id FROM positions s JOIN purchases p ON p.id = s.purchase_id
			WHERE s.expires_at < clock_timestamp() AND s.state = 'reserved' AND p.state = 'pending'
			ORDER BY s.expires_at LIMIT $1) oldest`, limit)
	if err != nil {
		return nil, fmt.Errorf("purchase.FindExpired: %w", err)
	}
	return expired, nil
}

// StillExpired reports, under the campaign's lock, whether a reservation has
// expired and was not paid, extended or released in the meantime.
func StillExpired(ctx context.Context, tx pgx.Tx, e Expired) (bool, error) {
	var expired bool
	err := tx.QueryRow(ctx, `
		SELECT coalesce(bool_and(s.state = 'reserved' AND s.expires_at < clock_timestamp()), false)
		FROM positions s WHERE s.campaign_id = $1 AND s.purchase_id = $2`, e.CampaignID, e.ID).Scan(&expired)
	if err != nil {
		return false, fmt.Errorf("purchase.StillExpired(%s): %w", e.ID, err)
	}
	return expired, nil
}
