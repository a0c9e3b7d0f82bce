package sale

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/campaign"
	"triprize/internal/domain/fault"
	"triprize/internal/domain/uuidv7"
	"triprize/internal/inventory"
	"triprize/internal/payment"
	"triprize/internal/platform/postgres"
	"triprize/internal/purchase"
	"triprize/internal/wallet"
)

// allocation is what orders share while they are decided, one after the other. Each
// order sees what those before it have got.
type allocation struct {
	*inputs
	stock  *inventory.Stock
	bought map[inventory.User]int  // positions, by the orders so far
	used   map[uuid.UUID]uuid.UUID // holds, by the purchases of the orders so far
}

// allocate decides orders in order of arrival. Each gets all the positions it wants
// or none.
func (in *inputs) allocate(ctx context.Context, tx pgx.Tx, orders []*Order) (err error) {
	a := &allocation{inputs: in, bought: make(map[inventory.User]int), used: make(map[uuid.UUID]uuid.UUID)}
	var requests []inventory.Request
	for _, o := range orders {
		if c := in.campaigns[o.job.CampaignID]; !a.busy(o) {
			requests = append(requests, inventory.Request{CampaignID: c.ID, Shape: c.Shape, Gone: c.Counts.Sold + c.Counts.Blocked, Selection: o.Selection,
				Hold: in.holds[o.Selection.HoldID].Positions, Avoid: in.allowance(o).Avoided()})
		}
	}
	if a.stock, err = inventory.FindStock(ctx, tx, requests); err != nil {
		return err
	}
	for _, o := range orders {
		if err := a.decide(o); err != nil {
			return err
		}
	}
	return nil
}

// busy reports whether another transaction has locked the wallet of an order, or the cards of its
// buyer.
func (a *allocation) busy(o *Order) bool {
	switch o.Payment.Method {
	case purchase.Wallet:
		return a.wallets.Busy(a.owner(o))
	case purchase.Card:
		return a.cardsLocked[o.cardholder()]
	}
	return false
}

// decide decides one order. Its error stops the batch; a refusal is a decision.
func (a *allocation) decide(o *Order) error {
	if a.busy(o) {
		a.Busy = append(a.Busy, o.job)
		return nil
	}
	var p purchase.Purchase
	picked, err := a.pick(o)
	if err == nil {
		err = a.checkCard(o, len(picked))
	}
	if err == nil {
		p = purchaseOf(o, picked, a.campaigns[o.job.CampaignID])
		err = a.charge(o, &p)
	}
	switch {
	case err == nil:
		return a.take(o, p, picked)
	case errors.Is(err, wallet.ErrBroken), fault.CodeOf(err) != fault.InternalError: // an order on a broken wallet could never succeed
		a.fail(o.job.ID, uuid.Nil, err)
		return nil
	}
	return err
}

// pick chooses the positions of an order, or returns why it cannot have them.
func (a *allocation) pick(o *Order) ([]*inventory.Free, error) {
	if o.Selection.HoldID != uuid.Nil {
		h, err := a.holdOf(o)
		if err != nil {
			return nil, err
		}
		return a.stock.OfHold(h)
	}
	c, has := a.campaigns[o.job.CampaignID], a.has[o.buyer()]+a.bought[o.buyer()] // has includes held positions
	if err := c.CheckLimit(has, o.Selection.Size()); err != nil {
		return nil, err
	}
	picked, err := a.stock.Select(c.ID, o.Selection, selectionAt, a.allowance(o).Avoid())
	if err != nil {
		return nil, a.stock.NameOwn(err, c.ID, o.client, o.UserID, o.Selection)
	}
	return picked, a.allowance(o).Refuse(selectionAt, o.Selection.Positions, c.Shape, "reserve it for a card")
}

// holdOf returns the hold that an order buys, or why it cannot. For another client, and a user who
// does not own it, a hold does not exist.
func (a *allocation) holdOf(o *Order) (inventory.Hold, error) {
	h, ok := a.holds[o.Selection.HoldID]
	switch {
	case !ok || h.Client != o.client || h.UserID != o.UserID || h.CampaignID != o.job.CampaignID:
		return inventory.Hold{}, fault.New(fault.NotFound, "this user has no hold %s in this campaign", o.Selection.HoldID)
	case a.used[h.ID] != uuid.Nil:
		return inventory.Hold{}, inventory.UsedBy(a.used[h.ID])
	}
	return h, h.CheckActive()
}

// checkCard refuses an order by card of n positions when too many of its user wait for
// cards already, or when too many cards
// of its buyer were declined or are being tried.
func (a *allocation) checkCard(o *Order, n int) error {
	if o.Payment.Method != purchase.Card {
		return nil
	}
	most := a.reservations.MaxPerUser
	if has := a.pending[o.buyer()]; most > 0 && has+n > most {
		return fault.New(fault.HoldLimitExceeded, "%d positions of this user wait for a card payment; %d more would exceed the limit of %d", has, n, most)
	}
	if cards := a.cards[o.cardholder()]; cards.Count >= payment.MostDeclines {
		if cards.Again.IsZero() {
			cards.Again = a.now.Add(a.reservations.For)
		}
		return payment.TooManyDeclines(cards.Again)
	}
	return nil
}

// charge takes the price of a purchase from its buyer's wallet and sets the ledger
// entry as the payment reference. It does nothing for other payment methods.
func (a *allocation) charge(o *Order, p *purchase.Purchase) error {
	if p.PaymentMethod != purchase.Wallet {
		return nil
	}
	// There is one reference per job. It is not checked before, as the job of a used one is final. The
	// ledger refuses a second entry.
	entry, err := a.wallets.Pay(a.owner(o), wallet.Movement{Amount: p.Amount, Reference: wallet.Reference{Text: "purchase:" + o.job.ID.String()},
		Description: "purchase " + p.ID.String(), PurchaseID: p.ID, Actor: o.By})
	p.PaymentReference = new(entry.ID.String())
	return err
}

// take notes the effects of an order that has got its positions: they are sold, or reserved when it
// is paid by card.
func (a *allocation) take(o *Order, p purchase.Purchase, picked []*inventory.Free) error {
	n, hold := len(picked), a.holds[o.Selection.HoldID] // the zero hold when it names none
	given, change := inventory.Owned{PurchaseID: p.ID, UserID: p.UserID, HoldID: hold.ID, Picked: picked}, campaign.Counts{Sold: n}
	if p.State == purchase.Pending {
		given.For, change = a.reservedFor(o, picked, hold.CreatedAt), campaign.Counts{Reserved: n}
		a.reserve(o, &p, given, hold.CreatedAt)
	} else {
		a.stock.Sell(picked)
		a.sold = append(a.sold, given)
		if err := a.succeed(p.JobID, resultOf(&p, a.campaigns[p.CampaignID].Board+1)); err != nil {
			return err
		}
	}
	if hold.ID == uuid.Nil {
		a.bought[o.buyer()] += n
	} else {
		a.used[hold.ID] = p.ID
		a.HoldsUsed++
		change.Reserved -= n // the positions of a hold are counted as reserved already
	}
	a.purchases = append(a.purchases, p)
	a.changes.Add(p.CampaignID, change)
	return nil
}

// reserve begins the payment by card of a purchase, whose positions are reserved. heldSince is when the
// hold was made that it uses; zero: it uses none.
func (a *allocation) reserve(o *Order, p *purchase.Purchase, given inventory.Owned, heldSince time.Time) {
	a.stock.Reserve(given.Picked, inventory.ReservedBy(o.client, o.UserID, p.ID, o.job.ID))
	a.pending[o.buyer()] += len(given.Picked)
	cards := a.cards[o.cardholder()]
	cards.Count++
	a.cards[o.cardholder()] = cards
	pay := payment.New{Reserved: given.For, HeldSince: heldSince, Payment: payment.Payment{PurchaseID: p.ID, JobID: p.JobID, CampaignID: p.CampaignID,
		Amount: p.Amount, Currency: p.Currency, PaymentMethod: o.Payment.PaymentMethod, ReturnURL: postgres.Nullable(o.Payment.ReturnURL)}}
	a.reserved, a.begun = append(a.reserved, given), append(a.begun, pay)
	a.steps = append(a.steps, payment.Step{PurchaseID: p.ID, Event: payment.StepReserved})
	a.waiting, a.waitingFor = append(a.waiting, p.JobID), append(a.waitingFor, p.ID)
	a.Payments = append(a.Payments, pay.Ref())
}

// minReserved is the least time for which positions are reserved for a card, unless
// every reservation is shorter: a buyer must be able to authenticate.
const minReserved = 3 * time.Minute

// allowance is how long the buyer of an order by card may reserve which positions. Other orders have
// no limit.
func (in *inputs) allowance(o *Order) inventory.Allowance {
	q := inventory.Allowance{HoldQuota: in.reservations.HoldQuota, Now: in.now, For: min(minReserved, in.reservations.For)}
	if o.Payment.Method == purchase.Card {
		q.HeldTimes = in.heldTimes[o.buyer()]
	}
	return q
}

// reservedFor returns how long the positions of an order by card are reserved: for as long
// as the quota of its buyer allows for all of them. heldSince is when their hold was made,
// zero if there was none. A hold can be bought at any age: its buyer pays now. That cannot
// be repeated, because all of it counts against the next hold.
func (in *inputs) reservedFor(o *Order, picked []*inventory.Free, heldSince time.Time) time.Duration {
	q, began := in.allowance(o), in.now
	if !heldSince.IsZero() {
		began = heldSince
	}
	return min(in.reservations.For, max(q.EndsBy(began, picked).Sub(in.now), q.For))
}

// purchaseOf makes the purchase of an order and its positions.
func purchaseOf(o *Order, picked []*inventory.Free, c *campaign.Status) purchase.Purchase {
	p := purchase.Purchase{ID: uuidv7.New(), CampaignID: c.ID, UserID: o.UserID, JobID: o.job.ID, Client: o.client, Currency: c.Currency,
		PaymentMethod: o.Payment.Method, PaymentReference: postgres.Nullable(o.Payment.Reference), State: purchase.Completed, Metadata: o.Metadata}
	if o.Payment.Method == purchase.Card {
		p.State = purchase.Pending
	}
	_, _ = rand.Read(p.Nonce[:]) // never fails
	for _, f := range picked {
		p.Items = append(p.Items, purchase.Item{Place: c.Shape.Place(f.Position), Price: f.Price})
		p.Amount += f.Price
	}
	return p
}
