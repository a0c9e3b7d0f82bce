package inventory

import (
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/shape"
	"triprize/internal/platform/postgres"
)

// Return is a position of a purchase: one that it gives back, or has reserved.
type Return struct {
	CampaignID uuid.UUID
	PurchaseID uuid.UUID
	shape.Position
}

// QueueTakeBack frees positions. Each must still be sold, and to the purchase that
// gives it back: one that was freed before may have a new owner. It comes after
// campaign.Changes.
func QueueTakeBack(b *pgx.Batch, returns []Return) {
	queueChange(b, returns, Sold, `state = 'available', user_id = NULL, purchase_id = NULL, sold_at = NULL`)
}

// QueueFreeReserved frees positions whose purchases are not paid. Each must still be
// reserved for its purchase. It comes after campaign.Changes.
func QueueFreeReserved(b *pgx.Batch, returns []Return) {
	queueChange(b, returns, Reserved, `state = 'available', user_id = NULL, purchase_id = NULL, expires_at = NULL`)
}

// queueChange changes positions that are in a state, and of their purchases.
func queueChange(b *pgx.Batch, positions []Return, state State, set string) {
	n := len(positions)
	campaigns, purchases, layers, cols := make([]uuid.UUID, n), make([]uuid.UUID, n), make([]int, n), make([]int, n)
	for i, r := range positions {
		campaigns[i], purchases[i], layers[i], cols[i] = r.CampaignID, r.PurchaseID, r.Layer, r.Column
	}
	b.Queue(`
		UPDATE positions p SET version = p.version + 1, board_version = `+counted+`, `+set+`
		FROM unnest($1::uuid[], $2::int[], $3::int[], $4::uuid[]) AS r (campaign_id, layer, col, purchase_id)
		WHERE p.campaign_id = r.campaign_id AND p.layer = r.layer AND p.col = r.col
		  AND p.purchase_id = r.purchase_id AND p.state = $5`, campaigns, layers, cols, purchases, string(state)).
		Exec(postgres.Exactly(n, string(state)+" positions"))
}
