package board

import (
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// QueueFree frees what a purchase has bought, in one statement; the caller checks
// that it touches as many rows as the purchase has items. It names the purchase:
// what was freed before may belong to somebody else by now.
func QueueFree(b *pgx.Batch, campaignID, purchaseID uuid.UUID) *pgx.QueuedQuery {
	return b.Queue(`
		UPDATE positions
		SET state = 'available', version = version + 1, user_id = NULL, purchase_id = NULL, sold_at = NULL
		WHERE campaign_id = $1 AND purchase_id = $2 AND state = 'sold'`, campaignID, purchaseID)
}
