package purchase

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fairdraw"
	"triprize/internal/domain/shape"
	"triprize/internal/platform/postgres"
)

// SoldFrom returns up to n sold positions of a campaign as they are published, by layer
// and column, the first of them at first or behind it.
func SoldFrom(ctx context.Context, db postgres.DB, campaignID uuid.UUID, first shape.Position, n int) ([]fairdraw.SoldLine, error) {
	page, err := postgres.Collect(ctx, db, func(row pgx.CollectableRow) (fairdraw.SoldLine, error) {
		var s fairdraw.Sold
		var nonce []byte
		err := row.Scan(&s.Layer, &s.Column, &s.PurchaseID, &nonce, &s.UserID)
		copy(s.Nonce[:], nonce)
		return s.Line(), err
	}, `
		SELECT s.layer, s.col, s.purchase_id, p.nonce, p.user_id
		FROM (SELECT layer, col, purchase_id FROM positions
		      WHERE campaign_id = $1 AND state = 'sold' AND (layer, col) >= ($2, $3)
		      ORDER BY layer, col LIMIT $4) s
		JOIN purchases p ON p.id = s.purchase_id
		ORDER BY s.layer, s.col`, campaignID, first.Layer, first.Column, n)
	if err != nil {
		return nil, fmt.Errorf("purchase.SoldFrom(%s, %v): %w", campaignID, first, err)
	}
	return page, nil
}
