package holds

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/store/campaign"
	"triprize/internal/store/inventory"
)

// effects is what a transaction writes, and what the process caches after its commit.
type effects struct {
	over     []inventory.Over  // holds that it ends
	extended []*inventory.Hold // each once
	released []*inventory.Hold
	made     []inventory.NewHold
	changes  campaign.Changes
	taken    map[inventory.PositionID]taking // positions that are taken
	extends  int                             // extensions: a hold may have several
}

func newEffects(f *facts) *effects {
	return &effects{over: f.over, changes: make(campaign.Changes), taken: make(map[inventory.PositionID]taking)}
}

// end ends the holds that are over and those that are released, and extends others.
func (e *effects) end(ctx context.Context, tx pgx.Tx) error {
	var b pgx.Batch
	if len(e.over) > 0 {
		inventory.QueueExpire(&b, e.over)
		for _, h := range e.over {
			e.changes.Add(h.CampaignID, campaign.Change{Reserved: -h.Size})
		}
	}
	if len(e.extended) > 0 {
		inventory.QueueExtend(&b, e.extended)
		for _, h := range e.extended {
			e.changes.Add(h.CampaignID, campaign.Change{})
		}
	}
	if len(e.released) > 0 {
		inventory.QueueRelease(&b, e.released)
		for _, h := range e.released {
			e.changes.Add(h.CampaignID, campaign.Change{Reserved: -len(h.Positions)})
		}
	}
	if b.Len() == 0 {
		return nil
	}
	return fault.At(tx.SendBatch(ctx, &b).Close(), "end")
}

func (e *effects) hold(made inventory.NewHold, ttl time.Duration) {
	e.made = append(e.made, made)
	e.changes.Add(made.CampaignID, campaign.Change{Reserved: len(made.Picked)})
	for _, p := range made.Picked {
		e.taken[p.PositionID] = taking{remaining: ttl, userID: made.UserID}
	}
}

// noteTaken notes which of the positions that requests named are taken.
func (e *effects) noteTaken(stock *inventory.Stock) {
	for at, p := range stock.Named() {
		if t, ok := takingOf(p); ok {
			e.taken[at] = t
		}
	}
}

// write writes the new holds and the counters, in one round trip.
func (e *effects) write(ctx context.Context, tx pgx.Tx, turns inventory.Turns) error {
	var b pgx.Batch
	e.changes.Queue(&b)
	if len(e.made) > 0 {
		if err := inventory.QueueHold(&b, e.made, turns); err != nil {
			return err
		}
	}
	if b.Len() == 0 {
		return nil
	}
	return fault.At(tx.SendBatch(ctx, &b).Close(), "write")
}

// remember caches, after the commit, which positions are taken and which are free
// again, and counts holds. began is before the transaction read anything.
func (s *Service) remember(e *effects, began time.Time) {
	for _, h := range e.released {
		for _, p := range h.Positions {
			s.taken.remove(inventory.PositionID{CampaignID: h.CampaignID, Position: p.Position})
		}
	}
	for at, t := range e.taken {
		s.taken.add(at, began, t)
	}
	s.metrics.Count(inventory.HoldsMade, len(e.made))
	s.metrics.Count(inventory.HoldsReclaimed, len(e.over))
	s.metrics.Count(inventory.HoldsExtended, e.extends)
	s.metrics.Count(inventory.HoldsReleased, len(e.released))
}
