package sale

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/campaign"
	"triprize/internal/domain/fault"
	"triprize/internal/domain/money"
	"triprize/internal/inventory"
	"triprize/internal/payment"
	"triprize/internal/platform/postgres"
	"triprize/internal/purchase"
)

// reassignment is what late payments share while they are decided, one after the other.
type reassignment struct {
	stock *inventory.Stock
	has   map[inventory.User]int // positions, with those of the payments so far
}

// reassign assigns late payments other positions of the same layers, when as many are free
// and the limit allows it. Otherwise their money goes back. Holds of others are respected.
func (e *effects) reassign(ctx context.Context, tx pgx.Tx, late []*finalization) error {
	r, err := e.findStock(ctx, tx, late)
	if err != nil {
		return err
	}
	for _, c := range late {
		picked := r.pick(c)
		if picked == nil {
			err = e.endWithRefund(c, payment.RefundLatePayment)
		} else {
			err = e.sellOthers(c, picked)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// findStock ends the holds that are over, so that their positions are free, and reads what
// late payments could get.
func (e *effects) findStock(ctx context.Context, tx pgx.Tx, late []*finalization) (*reassignment, error) {
	campaigns, users := make(map[uuid.UUID]bool), make(map[inventory.User]bool)
	var requests []inventory.Request
	for _, c := range late {
		campaigns[c.CampaignID], users[c.user()] = true, true
		for layer, n := range c.layers() {
			requests = append(requests, inventory.Request{CampaignID: c.CampaignID, Shape: c.campaign.Shape, Gone: c.campaign.Counts.Sold + c.campaign.Counts.Blocked,
				Selection: inventory.Selection{Layer: layer, Quantity: n}})
		}
	}
	var over []inventory.Over
	var find, read pgx.Batch
	inventory.QueueFindOver(&find, slices.Collect(maps.Keys(campaigns)), &over)
	if err := tx.SendBatch(ctx, &find).Close(); err != nil {
		return nil, fmt.Errorf("reassign: %w", err)
	}
	e.expire(&read, over)
	r := &reassignment{has: make(map[inventory.User]int)}
	inventory.QueueCountOfUsers(&read, slices.Collect(maps.Keys(users)), func(u inventory.User, n, _ int) { r.has[u] = n })
	err := tx.SendBatch(ctx, &read).Close()
	if err == nil {
		r.stock, err = inventory.FindStock(ctx, tx, requests)
	}
	return r, fault.At(err, "reassign")
}

// user returns the buyer.
func (c *finalization) user() inventory.User {
	return inventory.User{CampaignID: c.CampaignID, ID: c.bought.UserID}
}

// layers returns how many positions of each layer were bought.
func (c *finalization) layers() map[int]int {
	n := make(map[int]int)
	for _, item := range c.bought.Items {
		n[item.Layer]++
	}
	return n
}

// pick returns the positions for a late payment, or nil when it cannot have them all.
func (r *reassignment) pick(c *finalization) []*inventory.Free {
	n := len(c.bought.Items)
	if c.campaign.CheckLimit(r.has[c.user()], n) != nil {
		return nil
	}
	picked := make([]*inventory.Free, 0, n)
	layers := c.layers()
	for _, layer := range slices.Sorted(maps.Keys(layers)) {
		some, refusal := r.stock.Select(c.CampaignID, inventory.Selection{Layer: layer, Quantity: layers[layer]}, selectionAt, nil)
		if refusal != nil {
			return nil
		}
		picked = append(picked, some...)
	}
	r.stock.Sell(picked)
	r.has[c.user()] += n
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
