package sale

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fairdraw"
	"triprize/internal/domain/uuidv7"
	"triprize/internal/store/campaign"
	"triprize/internal/store/job"
	"triprize/internal/store/outbox"
	"triprize/internal/store/purchase"
)

// freeze ends the sale of every campaign whose last position this transaction sells:
// it moves the campaign to drawing, records the root of the sold list and inserts the
// draw job. It happens once per campaign, so its round trips do not matter.
//
// Reserved positions are not sold: while a payment is pending, nothing is frozen.
func (s *Seller) freeze(ctx context.Context, tx pgx.Tx, campaigns map[uuid.UUID]*campaign.Status, changes campaign.Changes) ([]outbox.Message, error) {
	var messages []outbox.Message
	for _, id := range slices.SortedFunc(maps.Keys(changes), uuidv7.Compare) {
		counts, sold := campaigns[id].Counts, changes[id].Sold
		if sold <= 0 || counts.Sold+sold < counts.Total {
			made, err := s.endIfDue(ctx, tx, campaigns[id], changes[id])
			if err != nil {
				return nil, err
			}
			messages = append(messages, made...)
			continue
		}
		made, err := freezeOne(ctx, tx, id, job.DrawRequest(id, "", s.keepJobs))
		if err != nil {
			return nil, fmt.Errorf("freeze(%s): %w", id, err)
		}
		messages = append(messages, made...)
	}
	return messages, nil
}

func freezeOne(ctx context.Context, tx pgx.Tx, id uuid.UUID, draw job.Request) ([]outbox.Message, error) {
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
	return outbox.Insert(ctx, tx, draw)
}
