package sale

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/domain/money"
	"triprize/internal/platform/postgres"
	"triprize/internal/store/campaign"
	"triprize/internal/store/inventory"
	"triprize/internal/store/payment"
	"triprize/internal/store/purchase"
	"triprize/internal/store/refund"
)

// reassignment is what late payments share while they are decided, one after the other.
type reassignment struct {
	stock *inventory.Stock
	has   map[inventory.User]int // positions, with those of the payments so far
}

// reassign gives late payments other positions of the same layers, when as many are free
// and the limit allows it. Otherwise their money goes back. Holds of others are respected.
func (o *conclusions) reassign(ctx context.Context, tx pgx.Tx, late []*conclusion) error {
	if len(late) == 0 {
		return nil
	}
	r, err := o.findStock(ctx, tx, late)
	if err != nil {
		return err
	}
	for _, c := range late {
		picked := r.pick(c)
		if picked == nil {
			err = o.giveBack(c, refund.LatePayment)
		} else {
			err = o.sellOthers(c, picked)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// findStock ends the holds that are over, so that their positions are free, and reads what
// late payments could get.
func (o *conclusions) findStock(ctx context.Context, tx pgx.Tx, late []*conclusion) (*reassignment, error) {
	counts, users := make(map[uuid.UUID]inventory.Counts), make(map[inventory.User]bool)
	var requests []inventory.Request
	for _, c := range late {
		counts[c.CampaignID] = inventory.Counts{Shape: c.campaign.Shape, Sold: c.campaign.Counts.Sold, Blocked: c.campaign.Counts.Blocked}
		users[c.user()] = true
		for layer, n := range c.layers() {
			requests = append(requests, inventory.Request{CampaignID: c.CampaignID, Selection: inventory.Selection{Layer: layer, Quantity: n}})
		}
	}
	var over []inventory.Over
	var find, read pgx.Batch
	inventory.QueueFindOver(&find, slices.Collect(maps.Keys(counts)), &over)
	if err := tx.SendBatch(ctx, &find).Close(); err != nil {
		return nil, fmt.Errorf("reassign: %w", err)
	}
	if len(over) > 0 {
		inventory.QueueExpire(&read, over)
	}
	for _, h := range over {
		o.changes.Add(h.CampaignID, campaign.Change{Reserved: -h.Size})
	}
	o.report.HoldsReclaimed += len(over)
	r := &reassignment{has: make(map[inventory.User]int)}
	inventory.QueueCountOfUsers(&read, slices.Collect(maps.Keys(users)), r.has)
	err := tx.SendBatch(ctx, &read).Close()
	if err == nil {
		r.stock, err = inventory.FindStock(ctx, tx, counts, requests)
	}
	return r, fault.At(err, "reassign")
}

// user returns the buyer.
func (c *conclusion) user() inventory.User {
	return inventory.User{CampaignID: c.CampaignID, ID: c.bought.UserID}
}

// layers returns how many positions of each layer were bought.
func (c *conclusion) layers() map[int]int {
	n := make(map[int]int)
	for _, item := range c.bought.Items {
		n[item.Layer]++
	}
	return n
}

// pick returns the positions for a late payment, or nil when it cannot have them all.
func (r *reassignment) pick(c *conclusion) []*inventory.Free {
	n := len(c.bought.Items)
	if inventory.CheckLimit(c.campaign.PurchaseLimit, r.has[c.user()], n) != nil {
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
func (o *conclusions) sellOthers(c *conclusion, picked []*inventory.Free) error {
	c.bought.Items = make([]purchase.Item, len(picked))
	var price money.Amount
	for i, f := range picked {
		c.bought.Items[i] = purchase.Item{Place: c.campaign.Shape.Place(f.Position), Price: f.Price}
		price += f.Price
	}
	if price != c.bought.Amount {
		return fmt.Errorf("%w: purchase %s cost %d, other positions of its layers cost %d", postgres.ErrRows, c.PurchaseID, c.bought.Amount, price)
	}
	o.step(c, payment.StepLate)
	o.step(c, payment.StepReassigned)
	o.resold = append(o.resold, inventory.Sale{PurchaseID: c.PurchaseID, UserID: c.bought.UserID, Picked: picked})
	o.reassigned = append(o.reassigned, *c.bought)
	o.changes.Add(c.CampaignID, campaign.Change{Sold: len(picked)})
	return o.complete(c)
}
