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

// allocate gives positions to the wanted orders, in the order of arrival.
func (b *batch) allocate(ctx context.Context, tx pgx.Tx) error {
	needs := b.needs()
	free, err := board.FindFree(ctx, tx, needs)
	if err != nil {
		return err
	}
	pools := makePools(free)
	if err := b.countShort(ctx, tx, needs, pools); err != nil {
		return err
	}
	taken := make(map[*board.Free]bool)
	for _, o := range b.wanted {
		if err := b.withinLimit(o); err != nil {
			b.refuse(o, err)
			continue
		}
		picked := pick(pools, place{o.campaignID, o.Selection.Layer}, o.Selection.Quantity, taken)
		if picked == nil {
			b.refuse(o, b.whyEmpty(o))
			continue
		}
		if err := b.sell(o, picked); err != nil {
			return err
		}
	}
	return nil
}

// needs asks each place for as many positions as all wanted orders of its
// campaign could take: whatever the others pick, enough are left to choose from.
func (b *batch) needs() []board.Need {
	total, seen := make(map[uuid.UUID]int), make(map[place]bool)
	var places []place
	for _, o := range b.wanted {
		total[o.campaignID] += o.Selection.Quantity
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

// makePools sorts free positions into their layer's pool and their triangle's.
// A position that was found for both kinds of need is one position.
func makePools(free []board.Free) map[place]pool {
	type at struct {
		campaignID uuid.UUID
		triangle.Position
	}
	seen := make(map[at]bool, len(free))
	pools := make(map[place]pool)
	for i := range free {
		f := &free[i]
		key := at{f.CampaignID, f.Position}
		if seen[key] {
			continue
		}
		seen[key] = true
		for _, p := range []place{{f.CampaignID, 0}, {f.CampaignID, f.Layer}} {
			pools[p] = append(pools[p], f)
		}
	}
	for _, p := range pools {
		slices.SortFunc(p, func(a, b *board.Free) int { return a.Rank - b.Rank })
	}
	return pools
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
	for _, f := range picked {
		taken[f] = true
	}
	return picked
}

// sell records the sale of positions to an order; write will write it.
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
		b.sales = append(b.sales, board.Sale{Free: *f, UserID: o.UserID, PurchaseID: bought.ID})
		bought.Items = append(bought.Items, purchase.Item{Position: f.Position, Price: f.Price})
		bought.Amount += f.Price
		b.sold[place{o.campaignID, 0}]++
		b.sold[place{o.campaignID, f.Layer}]++
		result.Positions = append(result.Positions, ResultPosition{Layer: f.Layer, Column: f.Column, Price: f.Price})
	}
	result.Amount = bought.Amount
	answer, err := json.Marshal(result)
	if err != nil {
		return fmt.Errorf("sell: %w", err)
	}
	b.purchases = append(b.purchases, bought)
	b.outcomes = append(b.outcomes, job.Outcome{ID: o.jobID, Result: answer})
	b.owned[owner{o.campaignID, o.UserID}] += len(picked)
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
