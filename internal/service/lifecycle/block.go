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
		return change(ctx, tx, id, chosen, inventory.Available, fault.PositionTaken, reason)
	})
}

// Unblock puts blocked positions of a campaign on sale again, all of them or none.
func (s *Service) Unblock(ctx context.Context, r job.Request, chosen []shape.Position) (job.Accepted, error) {
	return s.once(ctx, r, func(tx pgx.Tx, id uuid.UUID) error {
		return change(ctx, tx, id, chosen, inventory.Blocked, fault.StateConflict, "")
	})
}

// change locks the campaign, ends the holds that are over, and blocks chosen positions that are Available, or
// unblocks those that are Blocked. When others are among them, it refuses all with a code.
func change(ctx context.Context, tx pgx.Tx, id uuid.UUID, chosen []shape.Position, from inventory.State, code fault.Code, reason string) error {
	changes, err := lockSale(ctx, tx, id)
	if err != nil {
		return err
	}
	form, err := campaign.ShapeOf(ctx, tx, id)
	if err != nil {
		return err
	}
	others, err := inventory.NotIn(ctx, tx, id, form, chosen, from)
	if err != nil {
		return err
	}
	if len(others) > 0 {
		refusal := fault.Taken(others...)
		refusal.Code = code
		return refusal
	}
	more := len(chosen)
	if from == inventory.Blocked {
		more = -more
	}
	changes.Add(id, campaign.Counts{Blocked: more})
	var b pgx.Batch
	changes.Queue(&b)
	inventory.QueueBlocking(&b, id, chosen, from, reason)
	return fault.At(tx.SendBatch(ctx, &b).Close(), "lifecycle.change(%s)", id)
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
		changes.Add(id, campaign.Counts{Reserved: -h.Size})
	}
	return changes, fault.At(tx.SendBatch(ctx, &end).Close(), "lifecycle.lockSale(%s)", id)
}
