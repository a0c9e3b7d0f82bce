package sale

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/campaign"
	"triprize/internal/domain/money"
	"triprize/internal/inventory"
	"triprize/internal/payment"
	"triprize/internal/platform/postgres"
	"triprize/internal/purchase"
)

// reassign assigns late payments other positions of the same layers, when as many are free
// and the limit allows it. Otherwise their money goes back. Holds of others are respected; those
// that are over it ends first, so that their positions are free.
func (e *effects) reassign(ctx context.Context, tx pgx.Tx, late []*finalization) error {
	campaigns, has := make(map[uuid.UUID]bool), make(map[inventory.User]int) // positions, with those of the payments so far
	var requests []inventory.Request
	for _, c := range late {
		campaigns[c.CampaignID], has[c.user()] = true, 0
		for layer, n := range c.layers() {
			requests = append(requests, inventory.Request{CampaignID: c.CampaignID, Shape: c.campaign.Shape, Gone: c.campaign.Counts.Sold + c.campaign.Counts.Blocked,
				Selection: inventory.Selection{Layer: layer, Quantity: n}})
		}
	}
	var over []*inventory.Hold
	var find, read pgx.Batch
	inventory.QueueFindOver(&find, slices.Collect(maps.Keys(campaigns)), &over)
	if err := tx.SendBatch(ctx, &find).Close(); err != nil {
		return fmt.Errorf("reassign: %w", err)
	}
	inventory.QueueExpire(&read, over, e.changes)
	e.HoldsReclaimed = len(over)
	inventory.QueueCountOfUsers(&read, slices.Collect(maps.Keys(has)), func(u inventory.User, n, _ int) { has[u] = n })
	err := tx.SendBatch(ctx, &read).Close()
	if err != nil {
		return fmt.Errorf("reassign: %w", err)
	}
	stock, err := inventory.FindStock(ctx, tx, requests)
	for _, c := range late {
		if err != nil {
			return err
		}
		picked := c.pick(stock, has[c.user()])
		if has[c.user()] += len(picked); picked == nil {
			err = e.endWithRefund(c, payment.RefundLatePayment)
		} else {
			err = e.sellOthers(c, picked)
		}
	}
	return err
}

func (c *finalization) user() inventory.User {
	return inventory.User{CampaignID: c.CampaignID, ID: c.bought.UserID}
}

func (c *finalization) layers() map[int]int {
	n := make(map[int]int)
	for _, item := range c.bought.Items {
		n[item.Layer]++
	}
	return n
}

// pick takes positions for a late payment out of the stock, whose buyer has so many; nil: it
// cannot have them all.
func (c *finalization) pick(stock *inventory.Stock, has int) (picked []*inventory.Free) {
	if c.campaign.CheckLimit(has, len(c.bought.Items)) != nil {
		return nil
	}
	layers := c.layers()
	for _, layer := range slices.Sorted(maps.Keys(layers)) {
		some, refusal := stock.Select(c.CampaignID, inventory.Selection{Layer: layer, Quantity: layers[layer]}, selectionAt, nil)
		if refusal != nil {
			return nil
		}
		picked = append(picked, some...)
	}
	stock.Sell(picked)
	return picked
}

// sellOthers sells free positions to a purchase whose own went to others.
func (e *effects) sellOthers(c *finalization, picked []*inventory.Free) error {
	c.bought.Items = make([]purchase.Item, len(picked))
	var price money.Amount
	for i, f := range picked {
		c.bought.Items[i] = purchase.Item{Place: c.campaign.Shape.Place(f.Position), Price: f.Price}
		price += f.Price
	}
	if price != c.bought.Amount {
		return fmt.Errorf("%w: purchase %s cost %d, other positions of its layers cost %d", postgres.ErrRows, c.PurchaseID, c.bought.Amount, price)
	}
	e.step(c, payment.StepLate)
	e.step(c, payment.StepReassigned)
	e.sold = append(e.sold, inventory.Owned{PurchaseID: c.PurchaseID, UserID: c.bought.UserID, Picked: picked})
	e.reassigned = append(e.reassigned, *c.bought)
	e.changes.Add(c.CampaignID, campaign.Counts{Sold: len(picked)})
	return e.complete(c)
}
