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
	"triprize/internal/domain/money"
	"triprize/internal/inventory"
	"triprize/internal/payment"
	"triprize/internal/platform/postgres"
	"triprize/internal/purchase"
	"triprize/internal/wallet"
)

// allocate decides orders in order of arrival. Each gets all the positions it wants
// or none.
func (in *inputs) allocate(ctx context.Context, tx pgx.Tx, orders []*Order) (err error) {
	var requests []inventory.Request
	for _, o := range orders {
		if c := in.campaigns[o.job.CampaignID]; !in.busy(o) {
			requests = append(requests, inventory.Request{CampaignID: c.ID, Shape: c.Shape, Gone: c.Counts.Sold + c.Counts.Blocked, Selection: o.Selection,
				Hold: in.holds[o.Selection.HoldID].Positions, Avoid: in.allowance(o).Avoided()})
		}
	}
	if in.stock, err = inventory.FindStock(ctx, tx, requests); err != nil {
		return err
	}
	for _, o := range orders {
		if err := in.decide(o); err != nil {
			return err
		}
	}
	return nil
}

// busy reports whether another transaction has locked the wallet of an order, or the cards of its
// buyer.
func (in *inputs) busy(o *Order) bool {
	switch o.Payment.Method {
	case purchase.Wallet:
		return in.wallets.Busy(in.owner(o))
	case purchase.Card:
		return in.cardsLocked[o.cardholder()]
	}
	return false
}

// decide decides one order. Its error stops the batch; a refusal is a decision.
func (in *inputs) decide(o *Order) error {
	if in.busy(o) {
		in.Busy = append(in.Busy, o.job)
		return nil
	}
	var p purchase.Purchase
	picked, err := in.pick(o)
	if err == nil {
		p = purchaseOf(o, picked, in.campaigns[o.job.CampaignID])
		err = in.checkCard(o, &p)
	}
	if err == nil {
		err = in.charge(o, &p)
	}
	switch {
	case err == nil:
		return in.take(o, p, picked)
	case errors.Is(err, wallet.ErrBroken), fault.CodeOf(err) != fault.InternalError: // an order on a broken wallet could never succeed
		in.fail(o.job.ID, uuid.Nil, err)
		return nil
	}
	return err
}

// pick chooses the positions of an order, or returns why it cannot have them.
func (in *inputs) pick(o *Order) ([]*inventory.FreePosition, error) {
	if o.Selection.HoldID != uuid.Nil {
		h, err := in.holdOf(o)
		if err != nil {
			return nil, err
		}
		return in.stock.OfHold(h)
	}
	c, has := in.campaigns[o.job.CampaignID], in.has[o.buyer()]+in.bought[o.buyer()] // has includes held positions
	if err := c.CheckLimit(has, o.Selection.Size()); err != nil {
		return nil, err
	}
	picked, err := in.stock.Select(c.ID, o.Selection, selectionAt, in.allowance(o).Avoid())
	if err != nil {
		return nil, in.stock.NameOwn(err, c.ID, o.client, o.UserID, o.Selection)
	}
	return picked, in.allowance(o).Refuse(selectionAt, o.Selection.Positions, c.Shape, "reserve it for a card")
}

// holdOf returns the hold that an order buys, or why it cannot. For another client, and a user who
// does not own it, a hold does not exist.
func (in *inputs) holdOf(o *Order) (inventory.Hold, error) {
	h, ok := in.holds[o.Selection.HoldID]
	switch {
	case !ok || h.Client != o.client || h.UserID != o.UserID || h.CampaignID != o.job.CampaignID:
		return inventory.Hold{}, fault.New(fault.NotFound, "this user has no hold %s in this campaign", o.Selection.HoldID)
	case in.used[h.ID] != uuid.Nil:
		return inventory.Hold{}, inventory.UsedBy(in.used[h.ID])
	}
	return h, h.CheckActive()
}

// checkCard refuses an order by card that costs less than the provider charges, when too many positions of its
// user wait for cards already, or when too many cards of its buyer were declined or are being tried.
func (in *inputs) checkCard(o *Order, p *purchase.Purchase) error {
	if o.Payment.Method != purchase.Card {
		return nil
	}
	n, currency := len(p.Items), money.Currency(p.Currency)
	if minimum, _ := in.reservations.Takes(currency); p.Amount < minimum {
		return fault.New(fault.PaymentRefused, "cards pay %s at least; choose more positions, or another payment method", currency.Format(minimum))
	}
	most := in.reservations.MaxPerUser
	if has := in.pending[o.buyer()]; most > 0 && has+n > most {
		return fault.New(fault.HoldLimitExceeded, "%d positions of this user wait for a card payment; %d more would exceed the limit of %d", has, n, most)
	}
	if cards := in.cards[o.cardholder()]; cards.Count >= payment.MaxDeclines {
		if cards.Again.IsZero() {
			cards.Again = in.now.Add(in.reservations.For)
		}
		return payment.TooManyDeclines(cards.Again)
	}
	return nil
}

// charge takes the price of a purchase from its buyer's wallet and sets the ledger
// entry as the payment reference. It does nothing for other payment methods.
func (in *inputs) charge(o *Order, p *purchase.Purchase) error {
	if p.PaymentMethod != purchase.Wallet {
		return nil
	}
	// There is one reference per job. It is not checked before, as the job of a used one is final. The
	// ledger refuses a second entry.
	entry, err := in.wallets.Pay(in.owner(o), wallet.Movement{Amount: p.Amount, Reference: wallet.Reference{Text: "purchase:" + o.job.ID.String()},
		Description: "purchase " + p.ID.String(), PurchaseID: p.ID, Actor: o.By})
	p.PaymentReference = new(entry.ID.String())
	return err
}

// take notes the effects of an order that has got its positions: they are sold, or reserved when it
// is paid by card.
func (in *inputs) take(o *Order, p purchase.Purchase, picked []*inventory.FreePosition) error {
	n, hold, board := len(picked), in.holds[o.Selection.HoldID], in.campaigns[p.CampaignID].Board+1 // the zero hold when it names none
	given, change := inventory.Allocation{PurchaseID: p.ID, UserID: p.UserID, HoldID: hold.ID, Picked: picked, Board: board}, campaign.Counts{Sold: n, Board: board}
	if p.State == purchase.Pending {
		given.For, change = in.reservedFor(o, picked, hold.CreatedAt), campaign.Counts{Reserved: n, Board: board}
		in.reserve(o, &p, given, hold.CreatedAt)
	} else {
		in.stock.Sell(picked)
		in.sold = append(in.sold, given)
		if err := in.succeed(p.ID, resultOf(&p, board)); err != nil {
			return err
		}
	}
	if hold.ID == uuid.Nil {
		in.bought[o.buyer()] += n
	} else {
		in.used[hold.ID] = p.ID
		in.HoldsUsed++
		change.Reserved -= n // the positions of a hold are counted as reserved already
	}
	in.purchases = append(in.purchases, p)
	in.changes.Add(p.CampaignID, change)
	return nil
}

// reserve begins the payment by card of a purchase, whose positions are reserved. heldSince is when the
// hold was made that it uses; zero: it uses none.
func (in *inputs) reserve(o *Order, p *purchase.Purchase, given inventory.Allocation, heldSince time.Time) {
	in.stock.Reserve(given.Picked, inventory.ReservedBy(o.client, o.UserID, p.ID))
	in.pending[o.buyer()] += len(given.Picked)
	cards := in.cards[o.cardholder()]
	cards.Count++
	in.cards[o.cardholder()] = cards
	pay := payment.New{Reserved: given.For, HeldSince: heldSince, Payment: payment.Payment{PurchaseID: p.ID, CampaignID: p.CampaignID,
		Amount: p.Amount, Currency: p.Currency, PaymentMethod: o.Payment.PaymentMethod, ReturnURL: postgres.Nullable(o.Payment.ReturnURL)}}
	in.reserved, in.begun = append(in.reserved, given), append(in.begun, pay)
	in.steps = append(in.steps, payment.Step{PurchaseID: p.ID, Event: payment.StepReserved})
	in.waiting, in.waitingFor = append(in.waiting, p.ID), append(in.waitingFor, p.ID)
	in.Due = append(in.Due, pay.Ref().Item())
}

// minReserved is the least time for which positions are reserved for a card, unless
// every reservation is shorter: a buyer must be able to authenticate.
const minReserved = 3 * time.Minute

// allowance is how long the buyer of an order by card may reserve which positions. Other orders have
// no limit.
func (in *inputs) allowance(o *Order) inventory.Allowance {
	q := inventory.Allowance{HoldQuota: in.reservations.HoldQuota, Now: in.now, For: min(minReserved, in.reservations.For), ByCard: true}
	if o.Payment.Method == purchase.Card {
		q.HeldTimes = in.heldTimes[o.buyer()]
	}
	return q
}

// reservedFor returns how long the positions of an order by card are reserved: for as long
// as the quota of its buyer allows for all of them. heldSince is when their hold was made,
// zero if there was none. A hold can be bought at any age: its buyer pays now. That cannot
// be repeated, because all of it counts against the next hold.
func (in *inputs) reservedFor(o *Order, picked []*inventory.FreePosition, heldSince time.Time) time.Duration {
	q, began := in.allowance(o), in.now
	if !heldSince.IsZero() {
		began = heldSince
	}
	return min(in.reservations.For, max(q.EndsBy(began, picked).Sub(in.now), q.For))
}

func purchaseOf(o *Order, picked []*inventory.FreePosition, c *campaign.Snapshot) purchase.Purchase {
	p := purchase.Purchase{ID: o.job.ID, CampaignID: c.ID, UserID: o.UserID, Client: o.client, Currency: c.Currency,
		PaymentMethod: o.Payment.Method, PaymentReference: postgres.Nullable(o.Payment.Reference), State: purchase.Completed, Metadata: o.Metadata}
	if o.Payment.Method == purchase.Card {
		p.State = purchase.Pending
	}
	_, _ = rand.Read(p.Nonce[:]) // never fails
	for _, f := range picked {
		p.Items = append(p.Items, purchase.Item{Seat: c.Shape.Seat(f.Position), Price: f.Price})
		p.Amount += f.Price
	}
	return p
}
