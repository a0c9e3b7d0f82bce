package sale

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/store/board"
	"triprize/internal/store/campaign"
	"triprize/internal/store/hold"
	"triprize/internal/store/wallet"
)

// meetHolds ends the holds that are over, so that what they kept is free, and
// reads those that orders want to buy. Without either there is nothing to do.
func (b *batch) meetHolds(ctx context.Context, tx pgx.Tx) error {
	var p pgx.Batch
	if len(b.due) > 0 {
		ids, campaigns := make([]uuid.UUID, len(b.due)), make([]uuid.UUID, len(b.due))
		freed := 0
		for i, d := range b.due {
			ids[i], campaigns[i] = d.ID, d.CampaignID
			freed += d.Size
			b.change(d.CampaignID).Reserved -= d.Size
			if o := (owner{d.CampaignID, d.UserID}); b.owned[o] > 0 { // no entry: nobody asks
				b.owned[o] -= d.Size
			}
		}
		hold.QueueExpire(&p, ids).Exec(exactly(len(ids), "holds"))
		board.QueueFreeHeld(&p, campaigns, ids).Exec(exactly(freed, "held positions"))
		b.reclaimed = len(ids)
	}
	var wanted []uuid.UUID
	for _, o := range b.orders {
		if o.Selection.HoldID != uuid.Nil {
			wanted = append(wanted, o.Selection.HoldID)
		}
	}
	if len(wanted) > 0 {
		hold.QueueGet(&p, wanted, func(h hold.Hold) { b.holds[h.ID] = h })
	}
	if p.Len() == 0 {
		return nil
	}
	if err := tx.SendBatch(ctx, &p).Close(); err != nil {
		return fmt.Errorf("meetHolds: %w", err)
	}
	return nil
}

// change returns what is to be added to a campaign's counters.
func (b *batch) change(campaignID uuid.UUID) *campaign.Change {
	if b.changes[campaignID] == nil {
		b.changes[campaignID] = &campaign.Change{ID: campaignID}
	}
	return b.changes[campaignID]
}

// usable returns the hold that an order wants to buy, or why it cannot. To
// anybody but its owner it does not exist.
func (b *batch) usable(o *order) (hold.Hold, error) {
	h, ok := b.holds[o.Selection.HoldID]
	if !ok || h.UserID != o.UserID || h.CampaignID != o.campaignID {
		return hold.Hold{}, fault.New(fault.NotFound, "this user has no hold %s in this campaign", o.Selection.HoldID)
	}
	switch {
	case h.State == hold.Expired:
		return hold.Hold{}, fault.New(fault.HoldExpired, "the hold ended at %s", h.ExpiresAt.UTC().Format(timeFormat))
	case h.State == hold.Released:
		return hold.Hold{}, fault.New(fault.HoldExpired, "the hold was released")
	case h.State == hold.Used, b.used[h.ID] != uuid.Nil:
		return hold.Hold{}, fault.New(fault.StateConflict, "the hold was used by another purchase")
	}
	return h, nil
}

const timeFormat = "2006-01-02T15:04:05.000Z07:00"

// chosen lists the positions that orders name, themselves or through their hold.
func (b *batch) chosen() []board.Chosen {
	var chosen []board.Chosen
	seen := make(map[board.Chosen]bool)
	add := func(c board.Chosen) {
		if !seen[c] {
			seen[c] = true
			chosen = append(chosen, c)
		}
	}
	for _, o := range b.wanted {
		for _, p := range o.Selection.Positions {
			add(board.Chosen{CampaignID: o.campaignID, Position: p})
		}
		if o.Selection.HoldID == uuid.Nil {
			continue
		}
		for _, p := range b.holds[o.Selection.HoldID].Positions {
			add(board.Chosen{CampaignID: o.campaignID, Position: p.Position})
		}
	}
	return chosen
}

// named gives an order the positions it names, or a position-taken Error that
// names those that are gone.
func (b *batch) named(o *order, shelf *board.Shelf) ([]*board.Free, error) {
	picked := make([]*board.Free, 0, len(o.Selection.Positions))
	var gone []fault.Field
	for i, p := range o.Selection.Positions {
		f := shelf.At(board.Chosen{CampaignID: o.campaignID, Position: p})
		if f == nil {
			gone = append(gone, fault.Field{Pointer: fmt.Sprintf("/selection/positions/%d", i), Detail: fmt.Sprintf("position %d/%d is taken", p.Layer, p.Column)})
			continue
		}
		picked = append(picked, f)
	}
	if len(gone) > 0 {
		return nil, fault.Taken(gone...)
	}
	return picked, nil
}

// kept gives an order what its hold keeps.
func (b *batch) kept(o *order, shelf *board.Shelf) ([]*board.Free, error) {
	h, err := b.usable(o)
	if err != nil {
		return nil, err
	}
	picked := make([]*board.Free, 0, len(h.Positions))
	for _, p := range h.Positions {
		f := shelf.Named(board.Chosen{CampaignID: o.campaignID, Position: p.Position})
		if f == nil || f.State != board.Held || f.HoldID == nil || *f.HoldID != h.ID {
			return nil, fmt.Errorf("%w: hold %s does not keep %d/%d", ErrMoved, h.ID, p.Layer, p.Column)
		}
		picked = append(picked, &f.Free)
	}
	return picked, nil
}

// refusal tells what refuses an order from what stops the batch.
func (b *batch) refusal(o *order, err error) error {
	switch {
	case errors.Is(err, wallet.ErrBroken): // it would never be done, and holds up nobody
		b.broken = append(b.broken, err)
	case fault.CodeOf(err) == fault.InternalError:
		return err
	}
	b.refuse(o, err)
	return nil
}
