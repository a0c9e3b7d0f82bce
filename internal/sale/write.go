package sale

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"

	"triprize/internal/board"
	"triprize/internal/campaign"
	"triprize/internal/hold"
	"triprize/internal/job"
	"triprize/internal/purchase"
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
		hold.QueueUse(&p, slices.Collect(maps.Keys(b.used)), slices.Collect(maps.Values(b.used))).Exec(exactly(len(b.used), "holds"))
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
