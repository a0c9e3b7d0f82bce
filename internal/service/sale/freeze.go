package sale

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fairdraw"
	"triprize/internal/store/campaign"
	"triprize/internal/store/job"
	"triprize/internal/store/purchase"
)

// freeze ends the sale of every campaign whose last position this batch sells:
// state drawing, the sold list bound by its root, and a draw job. It runs once
// in the life of a campaign, so its round trips are nobody's concern.
func (b *batch) freeze(ctx context.Context, tx pgx.Tx, keep Keep) ([]job.Ring, error) {
	var rings []job.Ring
	for at, sold := range b.sold {
		if at.layer != 0 || b.campaigns[at.campaignID].Counts.Sold+sold < b.campaigns[at.campaignID].Counts.Total {
			continue
		}
		ring, err := freezeOne(ctx, tx, at.campaignID, keep)
		if err != nil {
			return nil, fmt.Errorf("freeze(%s): %w", at.campaignID, err)
		}
		rings = append(rings, ring...)
	}
	return rings, nil
}

func freezeOne(ctx context.Context, tx pgx.Tx, id uuid.UUID, keep Keep) ([]job.Ring, error) {
	sold, err := purchase.SoldList(ctx, tx, id)
	if err != nil {
		return nil, err
	}
	root, err := fairdraw.Root(sold)
	if err != nil {
		return nil, err
	}
	if err := campaign.Freeze(ctx, tx, id, root, len(sold)); err != nil {
		return nil, err
	}
	return job.Insert(ctx, tx, job.DrawRequest(id, "", keep.Draws))
}
