package holds

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/platform/postgres"
	"triprize/internal/store/campaign"
	"triprize/internal/store/inventory"
	"triprize/internal/store/job"
)

// Extend moves the deadline of an active hold to ttl from now, if that is later,
// once per idempotency key. The settings limit how often a hold can be extended. It
// is allowed while the sale is paused or over.
func (s *Service) Extend(ctx context.Context, r job.Request, id uuid.UUID, ttl time.Duration) (job.Accepted, error) {
	done, err := job.Once(ctx, s.db, r, func(tx pgx.Tx) (any, error) {
		h, err := s.extend(ctx, tx, id, ttl)
		return s.render(h), err
	})
	if err == nil && !done.Replayed && done.Job.Problem == nil {
		s.metrics.Count(inventory.HoldsExtended, 1)
	}
	return done, err
}

func (s *Service) extend(ctx context.Context, tx pgx.Tx, id uuid.UUID, ttl time.Duration) (inventory.Hold, error) {
	h, err := lockActive(ctx, tx, id)
	if err != nil {
		return h, err
	}
	if most := s.settings.MaxExtensions; h.Extensions >= most {
		return h, fault.New(fault.HoldLimitExceeded, "a hold can be extended %d times, and this one was", most)
	}
	var deadline time.Time
	err = tx.QueryRow(ctx, `SELECT greatest($1, clock_timestamp() + $2 * interval '1 second')`, h.ExpiresAt, ttl.Seconds()).Scan(&deadline)
	if err != nil {
		return h, fmt.Errorf("holds.extend(%s): %w", id, err)
	}
	var b pgx.Batch
	campaign.Changes{h.CampaignID: {}}.Queue(&b)
	inventory.QueueExtend(&b, h, deadline)
	if err := tx.SendBatch(ctx, &b).Close(); err != nil {
		return h, fmt.Errorf("holds.extend(%s): %w", id, err)
	}
	h.ExpiresAt, h.Extensions = deadline, h.Extensions+1
	return h, nil
}

// Release ends an active hold and frees its positions at once. When the hold was
// released before, nothing changes and released is false.
func (s *Service) Release(ctx context.Context, id uuid.UUID) (released bool, err error) {
	var h inventory.Hold
	err = postgres.InTx(ctx, s.db, func(tx pgx.Tx) (err error) {
		released = false
		if h, err = lockActive(ctx, tx, id); h.State == inventory.HoldReleased {
			return nil
		}
		if err != nil {
			return err
		}
		var b pgx.Batch
		campaign.Changes{h.CampaignID: {Reserved: -len(h.Positions)}}.Queue(&b)
		inventory.QueueRelease(&b, h)
		released = true
		return tx.SendBatch(ctx, &b).Close()
	})
	if err != nil {
		return false, fmt.Errorf("holds.Release(%s): %w", id, err)
	}
	if released {
		s.metrics.Count(inventory.HoldsReleased, 1)
		for _, p := range h.Positions {
			s.taken.remove(inventory.PositionID{CampaignID: h.CampaignID, Position: p.Position})
		}
	}
	return released, nil
}

// lockActive locks the campaign of a hold and then reads the hold. When the hold is
// not active it is returned with an Error that says how it ended.
func lockActive(ctx context.Context, tx pgx.Tx, id uuid.UUID) (inventory.Hold, error) {
	h, err := inventory.GetHold(ctx, tx, id) // a hold never changes its campaign
	if err != nil {
		return h, err
	}
	if err := campaign.Lock(ctx, tx, h.CampaignID); err != nil {
		return h, err
	}
	if h, err = inventory.GetHold(ctx, tx, id); err != nil {
		return h, err
	}
	return h, h.CheckActive()
}

// Expire ends at most limit holds of a campaign that are over, and returns how many
// holds have ended and how many positions are free again.
func Expire(ctx context.Context, db postgres.Beginner, campaignID uuid.UUID, limit int) (holds, positions int, err error) {
	err = postgres.InTx(ctx, db, func(tx pgx.Tx) error {
		holds, positions = 0, 0
		if err := campaign.Lock(ctx, tx, campaignID); err != nil {
			return err
		}
		e := effects{changes: make(campaign.Changes)}
		var find pgx.Batch
		inventory.QueueFindOver(&find, []uuid.UUID{campaignID}, &e.over)
		if err := tx.SendBatch(ctx, &find).Close(); err != nil {
			return err
		}
		e.over = e.over[:min(len(e.over), limit)]
		if err := e.expire(ctx, tx); err != nil {
			return err
		}
		holds, positions = len(e.over), -e.changes[campaignID].Reserved
		return e.write(ctx, tx)
	})
	if err != nil {
		return 0, 0, fmt.Errorf("holds.Expire(%s): %w", campaignID, err)
	}
	return holds, positions, nil
}
