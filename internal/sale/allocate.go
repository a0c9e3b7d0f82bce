package sale

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/board"
	"triprize/internal/fault"
	"triprize/internal/job"
	"triprize/internal/purchase"
	"triprize/internal/triangle"
)

// place is where an order looks for positions: a layer, or 0 for the whole triangle.
type place struct {
	campaignID uuid.UUID
	layer      int
}

// pool is the free positions of a place, in rank order.
type pool []*board.Free

// shelf is what a batch can give away.
type shelf struct {
	pools map[place]pool
	free  map[board.Chosen]*board.Free  // those in the pools, and those that orders name
	held  map[board.Chosen]*board.Found // those that holds of orders keep
	taken map[*board.Free]bool
}

// allocate gives positions to the wanted orders, in the order of arrival. With
// wait it waits for wallets, a moment.
func (b *batch) allocate(ctx context.Context, tx pgx.Tx, wait bool) error {
	needs := b.needs()
	free, err := board.FindFree(ctx, tx, needs)
	if err != nil {
		return err
	}
	named, err := board.Find(ctx, tx, b.chosen())
	if err != nil {
		return err
	}
	shelf := newShelf(free, named)
	if err := b.countShort(ctx, tx, needs, shelf.pools); err != nil {
		return err
	}
	if err := b.openTill(ctx, tx, wait); err != nil {
		return err
	}
	for _, o := range b.wanted {
		picked, err := b.pickFor(o, shelf)
		if err == nil {
			err = b.sell(o, picked)
		}
		if err != nil {
			if err := b.refusal(o, err); err != nil {
				return err
			}
			continue
		}
		for _, f := range picked {
			shelf.taken[f] = true
		}
	}
	return nil
}

// pickFor chooses what an order asks for from the shelf, or returns why it cannot.
func (b *batch) pickFor(o *order, shelf *shelf) ([]*board.Free, error) {
	if err := b.withinLimit(o); err != nil {
		return nil, err
	}
	var picked []*board.Free
	var err error
	switch {
	case o.Selection.HoldID != uuid.Nil:
		picked, err = b.kept(o, shelf)
	case len(o.Selection.Positions) > 0:
		picked, err = b.named(o, shelf)
	default:
		if picked = pick(shelf.pools, place{o.campaignID, o.Selection.Layer}, o.Selection.Quantity, shelf.taken); picked == nil {
			err = b.whyEmpty(o)
		}
	}
	return picked, err
}

// needs asks each place for as many positions as all wanted orders of its
// campaign could take: whatever the others pick, enough are left to choose from.
func (b *batch) needs() []board.Need {
	total, seen := make(map[uuid.UUID]int), make(map[place]bool)
	var places []place
	for _, o := range b.wanted {
		total[o.campaignID] += o.Selection.size() // chosen ones may be among those found
	}
	for _, o := range b.wanted {
		if !o.Selection.random() {
			continue
		}
		if at := (place{o.campaignID, o.Selection.Layer}); !seen[at] {
			seen[at] = true
			places = append(places, at)
		}
	}
	needs := make([]board.Need, 0, len(places))
	for _, at := range places {
		needs = append(needs, board.Need{CampaignID: at.campaignID, Layer: at.layer, Count: total[at.campaignID]})
	}
	return needs
}

// countShort counts what is sold in the layers that may not have enough, so
// that a refusal can say whether it is final.
func (b *batch) countShort(ctx context.Context, tx pgx.Tx, needs []board.Need, pools map[place]pool) error {
	short := slices.DeleteFunc(needs, func(n board.Need) bool {
		return n.Layer == 0 || len(pools[place{n.CampaignID, n.Layer}]) >= n.Count
	})
	if len(short) == 0 {
		return nil
	}
	counts, err := board.CountSold(ctx, tx, short)
	if err != nil {
		return err
	}
	for i, n := range short {
		b.sold[place{n.CampaignID, n.Layer}] += counts[i]
	}
	return nil
}

// newShelf sorts free positions into their layer's pool and their triangle's. A
// position that was found more than once is one position.
func newShelf(free []board.Free, named []board.Found) *shelf {
	s := &shelf{pools: make(map[place]pool), free: make(map[board.Chosen]*board.Free, len(free)),
		held: make(map[board.Chosen]*board.Found), taken: make(map[*board.Free]bool)}
	for i := range free {
		f := &free[i]
		key := board.Chosen{CampaignID: f.CampaignID, Position: f.Position}
		if s.free[key] != nil {
			continue
		}
		s.free[key] = f
		for _, p := range []place{{f.CampaignID, 0}, {f.CampaignID, f.Layer}} {
			s.pools[p] = append(s.pools[p], f)
		}
	}
	for _, p := range s.pools {
		slices.SortFunc(p, func(a, b *board.Free) int { return a.Rank - b.Rank })
	}
	for i := range named {
		f := &named[i]
		key := board.Chosen{CampaignID: f.CampaignID, Position: f.Position}
		switch {
		case f.State == board.Held:
			s.held[key] = f
		case f.State == board.Available && s.free[key] == nil:
			s.free[key] = &f.Free
		}
	}
	return s
}

// pick takes the first n untaken positions of a place, or nothing.
func pick(pools map[place]pool, at place, n int, taken map[*board.Free]bool) []*board.Free {
	left := pools[at]
	for len(left) > 0 && taken[left[0]] {
		left = left[1:] // taken ones at the front are never looked at again
	}
	pools[at] = left
	picked := make([]*board.Free, 0, n)
	for _, f := range left {
		if !taken[f] {
			if picked = append(picked, f); len(picked) == n {
				break
			}
		}
	}
	if len(picked) < n {
		return nil
	}
	return picked
}

// sell charges an order for positions and records the sale; write will write it.
// When it is refused nothing is recorded.
func (b *batch) sell(o *order, picked []*board.Free) error {
	c := b.campaigns[o.campaignID]
	bought := purchase.Purchase{ID: job.NewID(), CampaignID: o.campaignID, UserID: o.UserID, JobID: o.jobID,
		Currency: c.Currency, PaymentMethod: o.Payment.Method}
	if o.Payment.Reference != "" {
		bought.PaymentReference = &o.Payment.Reference
	}
	_, _ = rand.Read(bought.Nonce[:]) // never fails
	slices.SortFunc(picked, func(a, b *board.Free) int {
		if a.Before(b.Position) {
			return -1
		}
		return 1
	})
	result := Result{PurchaseID: bought.ID, Currency: c.Currency, Positions: make([]ResultPosition, 0, len(picked))}
	for _, f := range picked {
		bought.Items = append(bought.Items, purchase.Item{Position: f.Position, Price: f.Price})
		bought.Amount += f.Price
		result.Positions = append(result.Positions, ResultPosition{Layer: f.Layer, Column: f.Column, Price: f.Price})
	}
	if err := b.charge(o, &bought); err != nil {
		return err
	}
	holdID := o.Selection.HoldID
	for _, f := range picked {
		b.sales = append(b.sales, board.Sale{Free: *f, HoldID: holdID, UserID: o.UserID, PurchaseID: bought.ID})
		b.sold[place{o.campaignID, 0}]++
		b.sold[place{o.campaignID, f.Layer}]++
	}
	b.change(o.campaignID).Sold += len(picked)
	if holdID != uuid.Nil {
		b.change(o.campaignID).Reserved -= len(picked)
		b.used[holdID] = bought.ID
	} else {
		b.owned[owner{o.campaignID, o.UserID}] += len(picked)
	}
	result.Amount = bought.Amount
	answer, err := json.Marshal(result)
	if err != nil {
		return fmt.Errorf("sell: %w", err)
	}
	b.purchases = append(b.purchases, bought)
	b.outcomes = append(b.outcomes, job.Outcome{ID: o.jobID, Result: answer})
	return nil
}

// whyEmpty tells "everything is sold", which is final, from "nothing is free at
// the moment". The counts decide, never the empty search: it passes over rows
// that others have locked.
func (b *batch) whyEmpty(o *order) error {
	c, layer := b.campaigns[o.campaignID], o.Selection.Layer
	switch {
	case c.Counts.Sold+b.sold[place{o.campaignID, 0}] == c.Counts.Total:
		return fault.New(fault.SoldOut, "all %d positions are sold", c.Counts.Total)
	case layer > 0 && b.sold[place{o.campaignID, layer}] == triangle.InLayer(layer):
		return fault.New(fault.SoldOut, "all %d positions of layer %d are sold", triangle.InLayer(layer), layer)
	default:
		return fault.New(fault.NoneAvailable, "asked for %d, and fewer are free at the moment; held and reserved positions may become free again",
			o.Selection.Quantity)
	}
}
