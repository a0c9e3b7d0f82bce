package sale

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/campaign"
	"triprize/internal/domain/fault"
	"triprize/internal/domain/money"
	"triprize/internal/inventory"
	"triprize/internal/job"
	"triprize/internal/payment"
	"triprize/internal/platform/failpoint"
	"triprize/internal/platform/postgres"
	"triprize/internal/purchase"
	"triprize/internal/wallet"
)

// Sell completes purchase jobs in one transaction. An order that is paid by card is not
// completed: its positions are reserved, and its payment begins. Sell ignores jobs that are
// final, have begun a purchase already, or do not exist. A job is Busy when its campaign or wallet is locked for longer than wait.
func (s *Seller) Sell(ctx context.Context, refs []job.Ref, wait job.LockWait) (Report, error) {
	return s.run(ctx, "sale", refs, wait, s.sell)
}

func (s *Seller) sell(ctx context.Context, tx pgx.Tx, refs []job.Ref, wait job.LockWait) (Report, error) {
	in, err := lockOrders(ctx, tx, refs, wait)
	if err != nil {
		return Report{}, err
	}
	if err := s.terms.Fill(ctx, tx, in.campaigns); err != nil {
		return Report{}, err
	}
	in.reservations = s.reservations
	if err := in.endHolds(ctx, tx); err != nil {
		return Report{}, err
	}
	admitted := in.admit()
	if err := in.lockWallets(ctx, tx, admitted, wait); err != nil {
		return Report{}, err
	}
	if err := in.allocate(ctx, tx, admitted); err != nil {
		return Report{}, err
	}
	if err := s.finish(ctx, tx, in.campaigns, in.effects); err != nil {
		return Report{}, err
	}
	failpoint.Hit("sale.commit", names(in.orders, func(o *Order) string { return o.UserID }))
	return in.Report, nil
}

// inputs is what a sale has locked and read, and its effects.
type inputs struct {
	*effects
	campaigns map[uuid.UUID]*campaign.Snapshot
	orders    []*Order                     // in the order of arrival
	has       map[inventory.User]int       // positions of users, in campaigns with a purchase limit
	over      []*inventory.Hold            // holds that are over; has does not count them after endHolds
	holds     map[uuid.UUID]inventory.Hold // that orders name, read by endHolds

	// Of users who order by card, read by endHolds.
	pending     map[inventory.User]int                 // positions that wait for their cards, if there is a limit
	heldTimes   map[inventory.User]inventory.HeldTimes // lately, without buying
	cards       map[payment.Buyer]payment.Cards        // that were declined or are being tried
	cardsLocked map[payment.Buyer]bool                 // another transaction has locked them

	// Of allocate. Each order sees what those before it have got.
	stock  *inventory.Stock
	bought map[inventory.User]int  // positions, by the orders so far
	used   map[uuid.UUID]uuid.UUID // holds, by the purchases of the orders so far
}

func (o *Order) buyer() inventory.User {
	return inventory.User{CampaignID: o.job.CampaignID, ID: o.UserID}
}

func (o *Order) cardholder() payment.Buyer { return payment.Buyer{Client: o.client, ID: o.UserID} }

// owner returns whose wallet pays for an order by wallet.
func (in *inputs) owner(o *Order) wallet.Owner {
	return wallet.Owner{Client: o.client, ID: o.UserID, Currency: in.campaigns[o.job.CampaignID].Currency}
}

// lockOrders locks the campaigns of jobs and reads everything that does not depend
// on the content of the orders, in one round trip. The lock is a statement of its own;
// those after it see what was committed before it was granted.
func lockOrders(ctx context.Context, tx pgx.Tx, refs []job.Ref, wait job.LockWait) (*inputs, error) {
	in := &inputs{effects: newEffects(), campaigns: make(map[uuid.UUID]*campaign.Snapshot), has: make(map[inventory.User]int), holds: make(map[uuid.UUID]inventory.Hold),
		pending: make(map[inventory.User]int), heldTimes: make(map[inventory.User]inventory.HeldTimes), cards: make(map[payment.Buyer]payment.Cards), cardsLocked: make(map[payment.Buyer]bool),
		bought: make(map[inventory.User]int), used: make(map[uuid.UUID]uuid.UUID)}
	jobs, campaigns := idsOf(refs)
	locked := make(map[uuid.UUID]bool, len(campaigns))
	var who inventory.User
	var n int
	var b pgx.Batch
	queueLock(&b, wait, campaigns, locked)
	campaign.QueueSnapshots(&b, campaigns, in.campaigns)
	inventory.QueueFindOver(&b, campaigns, &in.over)
	b.Queue(queuedSQL, jobs, campaigns).Query(in.scanOrders)
	b.Queue(hasSQL, jobs, campaigns).Query(postgres.Each(func() { in.has[who] = n }, &who.CampaignID, &who.ID, &n))
	if err := tx.SendBatch(ctx, &b).Close(); err != nil {
		return nil, fmt.Errorf("lockOrders: %w", err)
	}
	in.dropUnlocked(locked)
	return in, nil
}

// queuedSQL reads the payloads of those of the jobs $1 uuid[] that are queued purchases of the
// campaigns $2 uuid[] and have not begun, in order of arrival. OFFSET 0 has each looked up by its
// id, where the planner prefers the index of campaigns.
const queuedSQL = `
	SELECT j.id, j.campaign_id, j.client, j.payload FROM unnest($1::uuid[]) AS i (id)
	CROSS JOIN LATERAL (SELECT * FROM jobs WHERE id = i.id OFFSET 0) j
	WHERE j.state = 'queued' AND j.purchase_id IS NULL AND j.kind = 'purchase' AND j.campaign_id = ANY($2) ORDER BY j.accepted_at, j.id`

// hasSQL counts the positions of the users of jobs $1 uuid[], in those of their campaigns
// $2 uuid[] that have a limit. It reads no job when none has.
const hasSQL = `
	SELECT u.campaign_id, u.user_id, p.n
	FROM (SELECT DISTINCT j.campaign_id, j.user_id FROM unnest($1::uuid[]) AS i (id)
	      CROSS JOIN LATERAL (SELECT campaign_id, user_id, state FROM jobs WHERE id = i.id) j
	      JOIN campaigns c ON c.id = j.campaign_id
	      WHERE j.state = 'queued' AND c.purchase_limit IS NOT NULL
	        AND EXISTS (SELECT FROM campaigns WHERE id = ANY($2) AND purchase_limit IS NOT NULL)) u
	CROSS JOIN LATERAL ` + inventory.CountsOfUser + ` p`

func (in *inputs) scanOrders(rows pgx.Rows) error {
	for rows.Next() {
		o := &Order{}
		var payload []byte
		if err := rows.Scan(&o.job.ID, &o.job.CampaignID, &o.client, &payload); err != nil {
			return err
		}
		if err := json.Unmarshal(payload, o); err != nil {
			return fmt.Errorf("the payload of job %s: %w", o.job.ID, err)
		}
		in.orders = append(in.orders, o)
	}
	return rows.Err()
}

// dropUnlocked moves orders whose campaign exists and is not locked to busy. It also drops the
// holds of campaigns that are not locked or not active: this transaction must not end them.
func (in *inputs) dropUnlocked(locked map[uuid.UUID]bool) {
	in.orders = slices.DeleteFunc(in.orders, func(o *Order) bool {
		busy := in.campaigns[o.job.CampaignID] != nil && !locked[o.job.CampaignID]
		if busy {
			in.Busy, in.Locked = append(in.Busy, o.job), append(in.Locked, o.job)
		}
		return busy
	})
	in.over = slices.DeleteFunc(in.over, func(h *inventory.Hold) bool {
		c := in.campaigns[h.CampaignID]
		return !locked[h.CampaignID] || c == nil || c.State != campaign.Active
	})
}

// endHolds ends the holds that are over, so that their positions are free, and then
// reads the holds that orders name.
func (in *inputs) endHolds(ctx context.Context, tx pgx.Tx) error {
	var b pgx.Batch
	inventory.QueueExpire(&b, in.over, in.changes)
	in.HoldsReclaimed = len(in.over)
	for _, h := range in.over {
		if who := (inventory.User{CampaignID: h.CampaignID, ID: h.UserID}); in.has[who] > 0 { // 0: not counted for these orders
			in.has[who] -= len(h.Positions)
		}
	}
	var named []uuid.UUID
	for _, o := range in.orders {
		if o.Selection.HoldID != uuid.Nil {
			named = append(named, o.Selection.HoldID)
		}
	}
	if len(named) > 0 {
		inventory.QueueGetHolds(&b, named, func(h *inventory.Hold) { in.holds[h.ID] = *h })
	}
	in.queueCards(&b)
	return fault.At(postgres.Send(ctx, tx, &b), "endHolds")
}

// queueCards reads about users who order by card: how long they have held positions lately, and how
// many of their cards were declined or are being tried, in other campaigns, too. Without them it costs nothing.
func (in *inputs) queueCards(b *pgx.Batch) {
	var users []inventory.User
	var buyers []payment.Buyer
	for _, o := range in.orders {
		if o.Payment.Method != purchase.Card {
			continue
		}
		if in.heldTimes[o.buyer()] == nil {
			in.heldTimes[o.buyer()] = make(inventory.HeldTimes)
			users = append(users, o.buyer())
		}
		if !slices.Contains(buyers, o.cardholder()) {
			buyers = append(buyers, o.cardholder())
		}
	}
	if len(users) == 0 {
		return
	}
	b.Queue(`SELECT clock_timestamp()`).QueryRow(func(row pgx.Row) error { return row.Scan(&in.now) })
	inventory.QueueHeldTimes(b, in.reservations.HoldQuota, users, in.heldTimes)
	payment.QueueCards(b, buyers, uuid.Nil, false, func(who payment.Buyer) { in.cardsLocked[who] = true }, func(who payment.Buyer, cards payment.Cards) { in.cards[who] = cards })
	if in.reservations.MaxPerUser > 0 {
		inventory.QueueCountOfUsers(b, users, func(u inventory.User, _, reserved int) { in.pending[u] = reserved })
	}
}

// admit refuses orders that cannot be served, no matter which positions are free, and returns the others.
func (in *inputs) admit() (admitted []*Order) {
	for _, o := range in.orders {
		if refusal := in.check(o); refusal != nil {
			in.fail(o.job.ID, uuid.Nil, refusal)
		} else {
			admitted = append(admitted, o)
		}
	}
	return admitted
}

// check returns why an order cannot be served. The state of the sale is also the answer to
// purchases that come too late to make a job.
func (in *inputs) check(o *Order) error {
	c := in.campaigns[o.job.CampaignID]
	if err := o.Selection.CheckSale(c, o.job.CampaignID, selectionAt); err != nil {
		return err
	}
	if o.Payment.Method == purchase.Card && o.Payment.PaymentMethod == "" {
		return fault.Invalid(fault.Field{Pointer: "/payment/payment_method", Detail: "is required for the method card"})
	}
	if o.Payment.Method == purchase.Card {
		if in.reservations.Takes != nil {
			if _, ok := in.reservations.Takes(money.Currency(c.Currency)); ok {
				return nil
			}
		}
		return fault.New(fault.CardsNotAccepted, "cards cannot pay in %s: the provider uses another unit for its amounts", c.Currency)
	}
	return nil
}

// lockWallets locks the wallets of orders that are paid by wallet.
func (in *inputs) lockWallets(ctx context.Context, tx pgx.Tx, orders []*Order, wait job.LockWait) error {
	owners := make(map[wallet.Owner]bool)
	for _, o := range orders {
		if o.Payment.Method == purchase.Wallet {
			owners[in.owner(o)] = true
		}
	}
	if len(owners) == 0 {
		return nil
	}
	mode, err := forWallets(ctx, tx, wait)
	if err == nil {
		in.wallets, err = wallet.OpenBuyers(ctx, tx, owners, nil, mode)
	}
	return err
}
