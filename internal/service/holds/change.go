package holds

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/platform/postgres"
	"triprize/internal/store/board"
	"triprize/internal/store/campaign"
	"triprize/internal/store/hold"
)

// Extend moves the deadline of an active hold to ttl from now, if that is later,
// and returns the hold as it is then. A hold can be extended so often; a pause of
// the sale, or its end, is no bar: what is held stays held.
func Extend(ctx context.Context, tx pgx.Tx, id uuid.UUID, ttl time.Duration, most int) (hold.Hold, error) {
	h, err := lockActive(ctx, tx, id)
	if err != nil {
		return hold.Hold{}, err
	}
	if h.Extensions >= most {
		return hold.Hold{}, fault.New(fault.HoldLimitExceeded, "a hold can be extended %d times, and this one was", most)
	}
	var deadline time.Time
	err = tx.QueryRow(ctx, `SELECT greatest($1, clock_timestamp() + $2 * interval '1 second')`, h.ExpiresAt, ttl.Seconds()).Scan(&deadline)
	if err != nil {
		return hold.Hold{}, fmt.Errorf("holding.Extend(%s): %w", id, err)
	}
	var b pgx.Batch
	campaign.QueueCount(&b, []campaign.Change{{ID: h.CampaignID}}).Exec(exactly(1, "campaigns"))
	hold.QueueExtend(&b, id, deadline).Exec(exactly(1, "holds"))
	board.QueueExtend(&b, h.CampaignID, id, deadline).Exec(exactly(len(h.Positions), "held positions"))
	if err := tx.SendBatch(ctx, &b).Close(); err != nil {
		return hold.Hold{}, fmt.Errorf("holding.Extend(%s): %w", id, err)
	}
	h.ExpiresAt, h.Extensions = deadline, h.Extensions+1
	return h, nil
}

// Release ends an active hold and frees what it keeps. One that was released
// before is left as it is.
func Release(ctx context.Context, db postgres.Beginner, id uuid.UUID) (h hold.Hold, released bool, err error) {
	err = postgres.InTx(ctx, db, func(tx pgx.Tx) error {
		h, err = lockActive(ctx, tx, id)
		if h.State == hold.Released {
			return nil
		}
		if err != nil {
			return err
		}
		var b pgx.Batch
		campaign.QueueCount(&b, []campaign.Change{{ID: h.CampaignID, Reserved: -len(h.Positions)}}).Exec(exactly(1, "campaigns"))
		hold.QueueRelease(&b, id).Exec(exactly(1, "holds"))
		board.QueueFreeHeld(&b, []uuid.UUID{h.CampaignID}, []uuid.UUID{id}).Exec(exactly(len(h.Positions), "held positions"))
		released = true
		return tx.SendBatch(ctx, &b).Close()
	})
	if err != nil {
		return h, false, fmt.Errorf("holding.Release(%s): %w", id, err)
	}
	return h, released, nil
}

// lockActive locks the campaign of a hold and reads the hold after it. Unless it
// is active it comes with an Error that says what became of it.
func lockActive(ctx context.Context, tx pgx.Tx, id uuid.UUID) (hold.Hold, error) {
	h, err := hold.Get(ctx, tx, id) // a hold never changes its campaign
	if err != nil {
		return h, err
	}
	if err := campaign.Lock(ctx, tx, h.CampaignID); err != nil {
		return h, err
	}
	if h, err = hold.Get(ctx, tx, id); err != nil {
		return h, err
	}
	switch h.State {
	case hold.Active:
		return h, nil
	case hold.Used:
		return h, fault.New(fault.StateConflict, "the hold was used by purchase %s", h.PurchaseID)
	case hold.Released:
		return h, fault.New(fault.HoldExpired, "the hold was released")
	default:
		return h, fault.New(fault.HoldExpired, "the hold ended at %s", h.ExpiresAt.UTC().Format(time.RFC3339Nano))
	}
}

// Expire ends the holds of a campaign whose time is over, at most limit, and
// returns how many holds and positions that were.
func Expire(ctx context.Context, db postgres.Beginner, campaignID uuid.UUID, limit int) (holds, positions int, err error) {
	err = postgres.InTx(ctx, db, func(tx pgx.Tx) error {
		holds, positions = 0, 0
		if err := campaign.Lock(ctx, tx, campaignID); err != nil {
			return err
		}
		rows, err := tx.Query(ctx, hold.DueSQL, []uuid.UUID{campaignID})
		if err != nil {
			return err
		}
		due, err := pgx.CollectRows(rows, hold.ScanDue)
		if err != nil || len(due) == 0 {
			return err
		}
		due = due[:min(len(due), limit)]
		changes := make(map[uuid.UUID]*campaign.Change)
		if err := endDue(ctx, tx, due, changes); err != nil {
			return err
		}
		var b pgx.Batch
		if err := queueChanges(&b, changes); err != nil {
			return err
		}
		holds, positions = len(due), -changes[campaignID].Reserved
		return tx.SendBatch(ctx, &b).Close()
	})
	if err != nil {
		return 0, 0, fmt.Errorf("holding.Expire(%s): %w", campaignID, err)
	}
	return holds, positions, nil
}
