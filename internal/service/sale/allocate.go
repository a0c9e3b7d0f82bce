package sale

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/domain/triangle"
	"triprize/internal/store/board"
	"triprize/internal/store/job"
	"triprize/internal/store/purchase"
)

// place is where an order looks for positions: a layer, or 0 for the whole triangle.
type place struct {
	campaignID uuid.UUID
	layer      int
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
	shelf := board.NewShelf(free, named)
	if err := b.countShort(ctx, tx, shelf.Short(needs)); err != nil {
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
		shelf.Take(picked)
	}
	return nil
}

// pickFor chooses what an order asks for from the shelf, or returns why it cannot.
func (b *batch) pickFor(o *order, shelf *board.Shelf) ([]*board.Free, error) {
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
		if picked = shelf.First(o.campaignID, o.Selection.Layer, o.Selection.Quantity, nil); picked == nil {
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
func (b *batch) countShort(ctx context.Context, tx pgx.Tx, short []board.Need) error {
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
	board.InOrder(picked)
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
