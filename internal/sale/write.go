package sale

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"triprize/internal/board"
	"triprize/internal/campaign"
	"triprize/internal/job"
	"triprize/internal/purchase"
)

// write writes everything the batch has decided, in one round trip.
func (b *batch) write(ctx context.Context, tx pgx.Tx) error {
	if len(b.outcomes) == 0 {
		return nil
	}
	var p pgx.Batch
	if len(b.sales) > 0 {
		var changes []campaign.Change
		for at, sold := range b.sold {
			if at.layer == 0 {
				changes = append(changes, campaign.Change{ID: at.campaignID, Sold: sold})
			}
		}
		campaign.QueueCount(&p, changes).Exec(exactly(len(changes), "campaigns"))
		board.QueueSell(&p, b.sales).Exec(exactly(len(b.sales), "positions"))
		purchase.QueueInsert(&p, b.purchases)
	}
	job.QueueSettle(&p, b.outcomes).Exec(exactly(len(b.outcomes), "jobs"))
	if err := tx.SendBatch(ctx, &p).Close(); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return nil
}
