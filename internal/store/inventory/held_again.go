package inventory

import (
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/platform/postgres"
)

// HeldAgain is a hold that keeps the positions of an unpaid purchase again, which has used it.
type HeldAgain struct {
	HoldID     uuid.UUID
	PurchaseID uuid.UUID
	Size       int
}

// QueueUsedHolds finds the holds that purchases have used and whose time is not over, by
// purchase.
func QueueUsedHolds(b *pgx.Batch, purchases []uuid.UUID, found map[uuid.UUID]uuid.UUID) {
	b.Queue(`
		SELECT h.purchase_id, h.id FROM unnest($1::uuid[]) AS i (id)
		CROSS JOIN LATERAL (SELECT campaign_id, user_id FROM purchases WHERE id = i.id) p
		CROSS JOIN LATERAL (
			SELECT id, purchase_id FROM holds
			WHERE campaign_id = p.campaign_id AND user_id = p.user_id AND expires_at > (SELECT clock_timestamp())
			  AND purchase_id = i.id) h`, purchases).Query(func(rows pgx.Rows) error {
		var purchaseID, holdID uuid.UUID
		_, err := pgx.ForEachRow(rows, []any{&purchaseID, &holdID}, func() error { found[purchaseID] = holdID; return nil })
		return err
	})
}

// QueueHoldAgain gives the positions of unpaid purchases back to the holds that these have
// used, which are active again, until they expire as if nothing had been. Each position must
// still be reserved for its purchase. It comes after campaign.Changes.
func QueueHoldAgain(b *pgx.Batch, again []HeldAgain) {
	holds, purchases, n := make([]uuid.UUID, len(again)), make([]uuid.UUID, len(again)), 0
	for i, h := range again {
		holds[i], purchases[i] = h.HoldID, h.PurchaseID
		n += h.Size
	}
	b.Queue(`
		UPDATE positions p
		SET state = 'held', version = p.version + 1, board_version = `+counted+`, purchase_id = NULL, hold_id = h.id, expires_at = h.expires_at
		FROM unnest($1::uuid[], $2::uuid[]) AS k (hold_id, purchase_id)
		CROSS JOIN LATERAL (SELECT id, campaign_id, user_id, expires_at FROM holds WHERE id = k.hold_id) h
		WHERE p.campaign_id = h.campaign_id AND p.user_id = h.user_id AND p.purchase_id = k.purchase_id AND p.state = 'reserved'`, holds, purchases).
		Exec(postgres.Exactly(n, "reserved positions"))
	b.Queue(`
		UPDATE holds h SET state = 'active', purchase_id = NULL, ended_at = NULL
		FROM unnest($1::uuid[], $2::uuid[]) AS k (id, purchase_id)
		WHERE h.id = k.id AND h.state = 'used' AND h.purchase_id = k.purchase_id`, holds, purchases).
		Exec(postgres.Exactly(len(again), "used holds"))
}
