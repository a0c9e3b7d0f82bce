package board

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/triangle"
)

// Need is how many free positions a transaction may want from one place.
type Need struct {
	CampaignID uuid.UUID
	Layer      int // 0: the whole triangle
	Count      int
}

// Free is one free position that a transaction has locked.
type Free struct {
	CampaignID uuid.UUID
	triangle.Position
	Rank    int
	Price   int64 // minor units
	Version int
}

// FindFree locks and returns, for each need, its first free positions by rank:
// fewer when there are fewer. A position can come for several needs. Rows that
// somebody else has locked are passed over, which under the campaign's lock
// happens only to those who break the rule, so "fewer" is no proof of sold out.
func FindFree(ctx context.Context, tx pgx.Tx, needs []Need) ([]Free, error) {
	var anywhere, inLayer []Need
	for _, n := range needs {
		if n.Layer == 0 {
			anywhere = append(anywhere, n)
		} else {
			inLayer = append(inLayer, n)
		}
	}
	var b pgx.Batch
	var found []Free
	collect := func(rows pgx.Rows) error {
		free, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (f Free, err error) {
			err = row.Scan(&f.CampaignID, &f.Layer, &f.Column, &f.Rank, &f.Price, &f.Version)
			return f, err
		})
		found = append(found, free...)
		return err
	}
	// One index scan per need, in rank order and no further than needed; the
	// locks taken are on the rows returned.
	if len(anywhere) > 0 {
		ids, _, counts := columns(anywhere)
		b.Queue(`
			SELECT n.campaign_id, p.layer, p.col, p.rank, p.price, p.version
			FROM unnest($1::uuid[], $2::int[]) AS n (campaign_id, count)
			CROSS JOIN LATERAL (
				SELECT layer, col, rank, price, version FROM positions
				WHERE campaign_id = n.campaign_id AND state = 'available'
				ORDER BY rank LIMIT n.count FOR UPDATE SKIP LOCKED) p`, ids, counts).Query(collect)
	}
	if len(inLayer) > 0 {
		ids, layers, counts := columns(inLayer)
		b.Queue(`
			SELECT n.campaign_id, p.layer, p.col, p.rank, p.price, p.version
			FROM unnest($1::uuid[], $2::int[], $3::int[]) AS n (campaign_id, layer, count)
			CROSS JOIN LATERAL (
				SELECT layer, col, rank, price, version FROM positions
				WHERE campaign_id = n.campaign_id AND layer = n.layer AND state = 'available'
				ORDER BY rank LIMIT n.count FOR UPDATE SKIP LOCKED) p`, ids, layers, counts).Query(collect)
	}
	if b.Len() == 0 {
		return nil, nil
	}
	if err := tx.SendBatch(ctx, &b).Close(); err != nil {
		return nil, fmt.Errorf("board.FindFree: %w", err)
	}
	return found, nil
}

func columns(needs []Need) (ids []uuid.UUID, layers, counts []int) {
	for _, n := range needs {
		ids, layers, counts = append(ids, n.CampaignID), append(layers, n.Layer), append(counts, n.Count)
	}
	return ids, layers, counts
}

// Sale gives one position to a purchase: a free one, or one that its buyer holds.
type Sale struct {
	Free
	HoldID     uuid.UUID // zero: it is free
	UserID     string
	PurchaseID uuid.UUID
}

// QueueSell marks positions as sold, in one statement; the caller checks that it
// touches as many rows as there are sales.
func QueueSell(b *pgx.Batch, sales []Sale) *pgx.QueuedQuery {
	n := len(sales)
	campaigns, layers, cols, versions := make([]uuid.UUID, n), make([]int, n), make([]int, n), make([]int, n)
	users, purchases, holds := make([]string, n), make([]uuid.UUID, n), make([]uuid.NullUUID, n)
	for i, s := range sales {
		campaigns[i], layers[i], cols[i], versions[i] = s.CampaignID, s.Layer, s.Column, s.Version
		users[i], purchases[i], holds[i] = s.UserID, s.PurchaseID, uuid.NullUUID{UUID: s.HoldID, Valid: s.HoldID != uuid.Nil}
	}
	return b.Queue(`
		UPDATE positions p
		SET state = 'sold', version = p.version + 1, user_id = s.user_id, purchase_id = s.purchase_id, sold_at = clock_timestamp(),
		    hold_id = NULL, expires_at = NULL
		FROM unnest($1::uuid[], $2::int[], $3::int[], $4::int[], $5::text[], $6::uuid[], $7::uuid[])
		     AS s (campaign_id, layer, col, version, user_id, purchase_id, hold_id)
		WHERE p.campaign_id = s.campaign_id AND p.layer = s.layer AND p.col = s.col AND p.version = s.version
		  AND p.state = CASE WHEN s.hold_id IS NULL THEN 'available' ELSE 'held' END AND p.hold_id IS NOT DISTINCT FROM s.hold_id`,
		campaigns, layers, cols, versions, users, purchases, holds)
}

// Release frees the positions that a purchase has reserved and returns how many.
// It names the purchase: an expired reservation's position may have a new owner.
func Release(ctx context.Context, tx pgx.Tx, campaignID, purchaseID uuid.UUID) (int, error) {
	tag, err := tx.Exec(ctx, `
		UPDATE positions
		SET state = 'available', version = version + 1, user_id = NULL, purchase_id = NULL, expires_at = NULL
		WHERE campaign_id = $1 AND purchase_id = $2 AND state = 'reserved'`, campaignID, purchaseID)
	if err != nil {
		return 0, fmt.Errorf("board.Release(%s): %w", purchaseID, err)
	}
	return int(tag.RowsAffected()), nil
}
