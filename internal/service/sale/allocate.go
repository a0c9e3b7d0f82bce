package sale

import (
	"context"
	"crypto/rand"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/domain/shape"
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

// leastReserved is the least time for which positions are reserved for a card, unless
// every reservation is shorter: a buyer must be able to authenticate.
const leastReserved = 3 * time.Minute

func (r Reservations) least() time.Duration { return min(leastReserved, r.For) }

// queueTurns reads how long the users in kept have kept positions lately.
func (in *inputs) queueTurns(b *pgx.Batch) {
	n := len(in.kept)
	campaigns, users := make([]uuid.UUID, 0, n), make([]string, 0, n)
	for u := range in.kept {
		campaigns, users = append(campaigns, u.CampaignID), append(users, u.ID)
	}
	b.Queue(`SELECT clock_timestamp()`).QueryRow(func(row pgx.Row) error { return row.Scan(&in.now) })
	inventory.QueueHeldTimes(b, in.reservations.Turns, campaigns, users, func(t inventory.HeldTime) {
		in.kept[inventory.User{CampaignID: t.CampaignID, ID: t.UserID}].Add(t)
	})
}

// again returns when the buyer may reserve a free position for a card again, and false if
// it may now.
func (in *inputs) again(o *order, p shape.Position) (again time.Time, wait bool) {
	kept, ok := in.kept[o.buyer()][p]
	if !ok || o.Payment.Method != purchase.Card {
		return again, false
	}
	again = in.reservations.Turns.Again(kept, in.reservations.least())
	return again, again.After(in.now)
}

// checkTurns refuses an order by card for chosen positions that its buyer must leave to
// others for a while, before the provider is asked.
func (in *inputs) checkTurns(o *order) error {
	return inventory.RefuseTurns(selectionAt, o.Selection.Positions, in.campaigns[o.campaignID].Shape, "reserve it for a card", func(p shape.Position) (time.Time, bool) { return in.again(o, p) })
}

// avoid tells which random positions an order must not get; nil: none.
func (in *inputs) avoid(o *order) func(shape.Position) bool {
	if len(in.kept[o.buyer()]) == 0 {
		return nil
	}
	return func(p shape.Position) bool { _, wait := in.again(o, p); return wait }
}

// avoided counts them.
func (in *inputs) avoided(o *order) (n int) {
	for p := range in.kept[o.buyer()] {
		if _, wait := in.again(o, p); wait {
			n++
		}
	}
	return n
}

// reservedFor returns how long the positions of an order by card are reserved: for as long
// as its buyer may still keep them all. heldSince is when the hold was made that has kept
// them, zero if there was none. A hold is bought however old it is: its buyer pays just
// now. That cannot be repeated, because all of it counts against the next hold.
func (in *inputs) reservedFor(o *order, picked []*inventory.Free, heldSince time.Time) time.Duration {
	began := in.now
	if !heldSince.IsZero() {
		began = heldSince
	}
	var times []inventory.HeldTime
	for _, f := range picked {
		if kept, ok := in.kept[o.buyer()][f.Position]; ok {
			times = append(times, kept)
		}
	}
	left := in.reservations.Turns.EndsBy(began, times...).Sub(in.now)
	return min(in.reservations.For, max(left, in.reservations.least()))
}

// payers are the wallets that pay for the orders of a transaction.
type payers struct {
	unit    *wallet.UnitOfWork   // nil: no order is paid by wallet
	wallets map[*order]uuid.UUID // of orders that are paid by wallet; missing when the buyer has no wallet
}

// lockWallets locks the wallets of orders that are paid by wallet. wait says whether to
// wait for those that another transaction has locked, or to treat them as busy.
func (in *inputs) lockWallets(ctx context.Context, tx pgx.Tx, orders []*order, wait Wait) (*payers, error) {
	p := &payers{wallets: make(map[*order]uuid.UUID)}
	owners := make(map[wallet.Owner][]*order)
	var want wallet.Wanted
	for _, o := range orders {
		if o.Payment.Method == purchase.Wallet {
			owner := wallet.Owner{Client: o.client, ID: o.UserID, Currency: in.campaigns[o.campaignID].Currency}
			owners[owner] = append(owners[owner], o)
		}
	}
	if len(owners) == 0 {
		return p, nil
	}
	found, err := wallet.Find(ctx, tx, slices.Collect(maps.Keys(owners)))
	if err != nil {
		return nil, err
	}
	for owner, id := range found {
		want.Wallets = append(want.Wallets, id)
		for _, o := range owners[owner] {
			p.wallets[o] = id
		}
	}
	p.unit, err = wait.openWallets(ctx, tx, want)
	return p, err
}

// busy reports whether another transaction has locked the wallet of an order.
func (p *payers) busy(o *order) bool {
	id, ok := p.wallets[o]
	return ok && slices.Contains(p.unit.Busy(), id)
}

// charge takes the price of a purchase from its buyer's wallet and sets the ledger
// entry as the payment reference. It does nothing for other payment methods.
func (p *payers) charge(o *order, bought purchase.Purchase) (purchase.Purchase, error) {
	if bought.PaymentMethod != purchase.Wallet {
		return bought, nil
	}
	id, ok := p.wallets[o]
	if !ok {
		return bought, fault.New(fault.InsufficientFunds, "this user has no wallet in %s", bought.Currency)
	}
	entry, err := p.unit.Pay(id, wallet.Movement{Amount: bought.Amount, Reference: paymentReference(o.jobID),
		Description: "purchase " + bought.ID.String(), PurchaseID: bought.ID, Actor: o.By})
	if err != nil {
		return bought, err
	}
	reference := entry.ID.String()
	bought.PaymentReference = &reference
	return bought, nil
}

// paymentReference identifies the payment of a purchase: there is one per job. Nobody looks
// whether it was used, as the job of a used one is final. The ledger refuses a second entry.
func paymentReference(jobID uuid.UUID) wallet.Reference {
	return wallet.Reference{Text: "purchase:" + jobID.String()}
}
