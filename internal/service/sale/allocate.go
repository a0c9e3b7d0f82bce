package sale

import (
	"context"
	"crypto/rand"
	"errors"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/domain/uuidv7"
	"triprize/internal/store/campaign"
	"triprize/internal/store/inventory"
	"triprize/internal/store/purchase"
	"triprize/internal/store/wallet"
)

// allocation is what orders share while they are decided, one after the other. Each
// order sees what those before it have got.
type allocation struct {
	*inputs
	payers *payers
	stock  *inventory.Stock
	bought map[inventory.User]int  // positions, by the orders so far
	used   map[uuid.UUID]uuid.UUID // holds, by the purchases of the orders so far
}

// allocate decides orders in order of arrival. Each gets all the positions it wants
// or none.
func (in *inputs) allocate(ctx context.Context, tx pgx.Tx, orders []*order, payers *payers) error {
	stock, err := in.findStock(ctx, tx, orders, payers)
	if err != nil {
		return err
	}
	a := &allocation{inputs: in, payers: payers, stock: stock, bought: make(map[inventory.User]int), used: make(map[uuid.UUID]uuid.UUID)}
	for _, o := range orders {
		if err := a.decide(o); err != nil {
			return err
		}
	}
	return nil
}

func (in *inputs) findStock(ctx context.Context, tx pgx.Tx, orders []*order, payers *payers) (*inventory.Stock, error) {
	counts := make(map[uuid.UUID]inventory.Counts)
	var requests []inventory.Request
	for _, o := range orders {
		if in.busyFor(o, payers) {
			continue
		}
		c := in.campaigns[o.campaignID]
		counts[c.ID] = inventory.Counts{Shape: c.Shape, Sold: c.Counts.Sold, Blocked: c.Counts.Blocked}
		requests = append(requests, inventory.Request{CampaignID: o.campaignID, Selection: o.Selection,
			Hold: in.holds[o.Selection.HoldID].Positions, Avoid: in.avoided(o)})
	}
	return inventory.FindStock(ctx, tx, counts, requests)
}

// busyFor tells whether another transaction has the wallet of an order, or the right to try cards of
// its buyer.
func (in *inputs) busyFor(o *order, payers *payers) bool {
	return payers.busy(o) || o.Payment.Method == purchase.Card && in.trying[o.cardholder()]
}

// decide decides one order. Its error stops the batch; a refusal is a decision.
func (a *allocation) decide(o *order) error {
	if a.busyFor(o, a.payers) {
		o.putOff = true
		return nil
	}
	o.picked, o.refusal = a.pick(o)
	if o.refusal == nil {
		o.refusal = a.checkUnpaid(o, len(o.picked))
	}
	if o.refusal == nil {
		o.refusal = a.checkCards(o)
	}
	if o.refusal == nil {
		o.bought, o.refusal = a.payers.charge(o, purchaseOf(o, o.picked, a.campaigns[o.campaignID]))
	}
	switch {
	case o.refusal == nil:
	case errors.Is(o.refusal, wallet.ErrBroken), fault.CodeOf(o.refusal) != fault.InternalError: // an order on a broken wallet could never succeed
		return nil
	default:
		return o.refusal
	}
	if o.bought.State == purchase.Pending {
		o.since = a.holds[o.Selection.HoldID].CreatedAt
		o.keeps = a.reservedFor(o, o.picked, o.since)
		a.stock.Keep(o.picked, inventory.ReservedBy(o.client, o.UserID, o.bought.ID, o.jobID))
		a.unpaid[o.buyer()] += len(o.picked)
		cards := a.cards[o.cardholder()]
		cards.Count++
		a.cards[o.cardholder()] = cards
	} else {
		a.stock.Sell(o.picked)
	}
	if o.Selection.HoldID == uuid.Nil {
		a.bought[o.buyer()] += len(o.picked)
	} else {
		a.used[o.Selection.HoldID] = o.bought.ID
	}
	return nil
}

// pick chooses the positions of an order, or returns why it cannot have them.
func (a *allocation) pick(o *order) ([]*inventory.Free, error) {
	if o.Selection.HoldID != uuid.Nil {
		h, err := a.usable(o)
		if err != nil {
			return nil, err
		}
		return a.stock.Kept(h)
	}
	limit, has := a.campaigns[o.campaignID].PurchaseLimit, a.has[o.buyer()]+a.bought[o.buyer()] // has includes held positions
	if err := inventory.CheckLimit(limit, has, o.Selection.Size()); err != nil {
		return nil, err
	}
	picked, err := a.stock.Select(o.campaignID, o.Selection, selectionAt, a.avoid(o))
	if err != nil {
		return nil, a.stock.NameOwn(err, o.campaignID, o.client, o.UserID, o.Selection)
	}
	return picked, a.checkTurns(o)
}

// usable returns the hold that an order buys, or why it cannot. For another client, and a user who
// does not own it, a hold does not exist.
func (a *allocation) usable(o *order) (inventory.Hold, error) {
	h, ok := a.holds[o.Selection.HoldID]
	switch {
	case !ok || h.Client != o.client || h.UserID != o.UserID || h.CampaignID != o.campaignID:
		return inventory.Hold{}, fault.New(fault.NotFound, "this user has no hold %s in this campaign", o.Selection.HoldID)
	case a.used[h.ID] != uuid.Nil:
		return inventory.Hold{}, inventory.UsedBy(a.used[h.ID])
	}
	return h, h.CheckActive()
}

// purchaseOf makes the purchase of an order and its positions.
func purchaseOf(o *order, picked []*inventory.Free, c *campaign.Status) purchase.Purchase {
	p := purchase.Purchase{ID: uuidv7.New(), CampaignID: o.campaignID, UserID: o.UserID, JobID: o.jobID, Client: o.client,
		Currency: c.Currency, PaymentMethod: o.Payment.Method, State: purchase.Completed, Metadata: o.Metadata}
	if o.Payment.Method == purchase.Card {
		p.State = purchase.Pending
	}
	if o.Payment.Reference != "" {
		p.PaymentReference = &o.Payment.Reference
	}
	_, _ = rand.Read(p.Nonce[:]) // never fails
	for _, f := range picked {
		p.Items = append(p.Items, purchase.Item{Place: c.Shape.Place(f.Position), Price: f.Price})
		p.Amount += f.Price
	}
	return p
}
