package sale

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/store/board"
	"triprize/internal/store/campaign"
	"triprize/internal/store/hold"
	"triprize/internal/store/job"
	"triprize/internal/store/purchase"
)

// write writes everything the batch has decided, in one round trip.
func (b *batch) write(ctx context.Context, tx pgx.Tx) error {
	if len(b.outcomes) == 0 && len(b.changes) == 0 {
		return nil
	}
	var p pgx.Batch
	if len(b.changes) > 0 {
		changes := make([]campaign.Change, 0, len(b.changes))
		for _, change := range b.changes {
			changes = append(changes, *change)
		}
		campaign.QueueCount(&p, changes).Exec(exactly(len(changes), "campaigns"))
	}
	if len(b.sales) > 0 {
		board.QueueSell(&p, b.sales).Exec(exactly(len(b.sales), "positions"))
		purchase.QueueInsert(&p, b.purchases)
	}
	if len(b.used) > 0 {
		holds, purchases := make([]uuid.UUID, 0, len(b.used)), make([]uuid.UUID, 0, len(b.used))
		for holdID, purchaseID := range b.used { // both lists in one pass: the order of a map is another each time
			holds, purchases = append(holds, holdID), append(purchases, purchaseID)
		}
		hold.QueueUse(&p, holds, purchases).Exec(exactly(len(holds), "holds"))
	}
	if b.till.book != nil {
		b.till.book.Queue(&p)
	}
	job.QueueSettle(&p, b.outcomes).Exec(exactly(len(b.outcomes), "jobs"))
	if err := tx.SendBatch(ctx, &p).Close(); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return nil
}
