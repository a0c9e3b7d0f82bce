package purchase

import (
	"context"
	"fmt"
	"iter"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fairdraw"
	"triprize/internal/platform/postgres"
)

// soldPage is how many sold positions one statement reads: half a million in one would
// take longer than statements may.
const soldPage = 8192

// SoldLines yields every sold position of a campaign as it is published, by layer and
// column. It reads them page by page, so the list is whole only when it cannot change
// meanwhile: the campaign is drawing or completed, or db is a snapshot. It ends at the
// first error.
func SoldLines(ctx context.Context, db postgres.DB, campaignID uuid.UUID) iter.Seq2[fairdraw.SoldLine, error] {
	return func(yield func(fairdraw.SoldLine, error) bool) {
		var last fairdraw.SoldLine
		for {
			page, err := soldAfter(ctx, db, campaignID, last)
			if err != nil {
				yield(fairdraw.SoldLine{}, fmt.Errorf("purchase.SoldLines(%s): %w", campaignID, err))
				return
			}
			for _, line := range page {
				if !yield(line, nil) {
					return
				}
				last = line
			}
			if len(page) < soldPage {
				return
			}
		}
	}
}

// soldAfter returns the next page. Its positions are chosen first, so that only their
// purchases are looked up.
func soldAfter(ctx context.Context, db postgres.DB, campaignID uuid.UUID, last fairdraw.SoldLine) ([]fairdraw.SoldLine, error) {
	return postgres.Collect(ctx, db, func(row pgx.CollectableRow) (fairdraw.SoldLine, error) {
		var s fairdraw.Sold
		var nonce []byte
		err := row.Scan(&s.Layer, &s.Column, &s.PurchaseID, &nonce, &s.UserID)
		copy(s.Nonce[:], nonce)
		return s.Line(), err
	}, `
		SELECT s.layer, s.col, s.purchase_id, p.nonce, p.user_id
		FROM (SELECT layer, col, purchase_id FROM positions
		      WHERE campaign_id = $1 AND state = 'sold' AND (layer, col) > ($2, $3)
		      ORDER BY layer, col LIMIT $4) s
		JOIN purchases p ON p.id = s.purchase_id
		ORDER BY s.layer, s.col`, campaignID, last.Layer, last.Column, soldPage)
}
