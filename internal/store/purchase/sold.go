package purchase

import (
	"context"
	"fmt"
	"iter"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize.example/draw/fairdraw"
	"triprize/internal/domain/fault"
	"triprize/internal/domain/shape"
	"triprize/internal/platform/postgres"
)

// soldPage is how many sold positions one statement reads: half a million in one would
// take longer than statements may.
const soldPage = 8192

// SoldLines yields every sold position of a campaign as it is published, by layer and
// column. It reads them page by page, so the list is whole only when it cannot change
// meanwhile: the campaign is drawing or completed, or db is a snapshot. It ends at the
// first error. From the freeze on, drawrecord.ListOf has the list.
func SoldLines(ctx context.Context, db postgres.DB, campaignID uuid.UUID) iter.Seq2[fairdraw.SoldLine, error] {
	return soldLines(ctx, db, campaignID, soldPage)
}

func soldLines(ctx context.Context, db postgres.DB, campaignID uuid.UUID, size int) iter.Seq2[fairdraw.SoldLine, error] {
	return func(yield func(fairdraw.SoldLine, error) bool) {
		var next shape.Position
		for {
			page, err := soldFrom(ctx, db, campaignID, next, size)
			if err != nil {
				yield(fairdraw.SoldLine{}, fmt.Errorf("purchase.SoldLines(%s): %w", campaignID, err))
				return
			}
			for _, line := range page {
				if !yield(line, nil) {
					return
				}
				next = shape.Position{Layer: line.Layer, Column: line.Column + 1}
			}
			if len(page) < size {
				return
			}
		}
	}
}

// soldFrom returns up to n sold positions of a campaign as they are published, by layer
// and column, the first of them at first or behind it. The positions are chosen first, so
// that only their purchases are looked up.
func soldFrom(ctx context.Context, db postgres.DB, campaignID uuid.UUID, first shape.Position, n int) ([]fairdraw.SoldLine, error) {
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
	return page, fault.At(err, "purchase.soldFrom(%s, %v)", campaignID, first)
}
