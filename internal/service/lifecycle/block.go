package lifecycle

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/domain/shape"
	"triprize/internal/platform/postgres"
	"triprize/internal/store/campaign"
	"triprize/internal/store/inventory"
	"triprize/internal/store/job"
)

// Block keeps free positions of a campaign from sale, all of them or none. An empty reason is
// none. Only a campaign that is drawn at the end of its sale can have blocked positions.
func (s *Service) Block(ctx context.Context, r job.Request, chosen []shape.Position, reason string) (job.Accepted, error) {
	return s.once(ctx, r, func(tx pgx.Tx, id uuid.UUID) error {
		return block(ctx, tx, id, chosen, blocking{inventory.Available, fault.PositionTaken, len(chosen),
			func(b *pgx.Batch) { inventory.QueueBlock(b, id, chosen, reason) }})
	})
}

// Unblock puts blocked positions of a campaign on sale again, all of them or none.
func (s *Service) Unblock(ctx context.Context, r job.Request, chosen []shape.Position) (job.Accepted, error) {
	return s.once(ctx, r, func(tx pgx.Tx, id uuid.UUID) error {
		return block(ctx, tx, id, chosen, blocking{inventory.Blocked, fault.StateConflict, -len(chosen),
			func(b *pgx.Batch) { inventory.QueueUnblock(b, id, chosen) }})
	})
}

// blocking is a change of positions by an operator.
type blocking struct {
	from    inventory.State
	refusal fault.Code // when a position is in another state
	more    int        // blocked positions
	queue   func(b *pgx.Batch)
}

// block locks the campaign, ends the holds that are over, and changes the chosen positions.
func block(ctx context.Context, tx pgx.Tx, id uuid.UUID, chosen []shape.Position, do blocking) error {
	changes, err := lockSale(ctx, tx, id)
	if err != nil {
		return err
	}
	form, err := campaign.ShapeOf(ctx, tx, id)
	if err != nil {
		return err
	}
	others, err := inventory.NotIn(ctx, tx, id, form, chosen, do.from)
	if err != nil {
		return err
	}
	if len(others) > 0 {
		refusal := fault.Taken(others...)
		refusal.Code = do.refusal
		return refusal
	}
	changes.Add(id, campaign.Change{Blocked: do.more})
	var b pgx.Batch
	changes.Queue(&b)
	do.queue(&b)
	return fault.At(tx.SendBatch(ctx, &b).Close(), "lifecycle.block(%s)", id)
}

// lockSale locks a campaign whose positions can be blocked, and frees what holds keep that are
// over. It returns what that changes.
func lockSale(ctx context.Context, tx pgx.Tx, id uuid.UUID) (campaign.Changes, error) {
	found, changes := make(map[uuid.UUID]*campaign.Status), make(campaign.Changes)
	var over []inventory.Over
	var read, end pgx.Batch
	campaign.QueueLock(&read, []uuid.UUID{id}, postgres.WaitForLocks, func(uuid.UUID) {})
	campaign.QueueStatuses(&read, []uuid.UUID{id}, found)
	inventory.QueueFindOver(&read, []uuid.UUID{id}, &over)
	if err := tx.SendBatch(ctx, &read).Close(); err != nil {
		return nil, fault.At(err, "lifecycle.lockSale(%s)", id)
	}
	if found[id] == nil {
		return nil, campaign.NotFound(id)
	}
	if err := found[id].CheckBlocking(); err != nil || len(over) == 0 {
		return changes, err
	}
	inventory.QueueExpire(&end, over)
	for _, h := range over {
		changes.Add(id, campaign.Change{Reserved: -h.Size})
	}
	return changes, fault.At(tx.SendBatch(ctx, &end).Close(), "lifecycle.lockSale(%s)", id)
}
