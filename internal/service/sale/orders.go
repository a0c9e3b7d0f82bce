package sale

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/domain/metadata"
	"triprize/internal/domain/money"
	"triprize/internal/domain/shape"
	"triprize/internal/platform/postgres"
	"triprize/internal/store/campaign"
	"triprize/internal/store/inventory"
	"triprize/internal/store/job"
	"triprize/internal/store/payment"
	"triprize/internal/store/purchase"
)

// Order is the payload of a purchase job: buyer, selection and payment.
type Order struct {
	UserID    string              `json:"user_id"`
	Selection inventory.Selection `json:"selection"`
	Payment   Payment             `json:"payment"`

	Metadata metadata.Map `json:"metadata,omitempty"` // of the purchase
	By       string       `json:"by,omitempty"`       // role:client, and /user when one was signed in; of a payment by wallet
}

// Random selects a number of free positions of a layer; layer 0 means any layer.
func Random(layer, quantity int) inventory.Selection {
	return inventory.Selection{Layer: layer, Quantity: quantity}
}

// Chosen selects the given positions.
func Chosen(positions ...shape.Position) inventory.Selection {
	return inventory.Selection{Positions: positions}
}

// FromHold selects the positions of a hold.
func FromHold(id uuid.UUID) inventory.Selection { return inventory.Selection{HoldID: id} }

// selectionAt is the JSON pointer of an order's selection.
const selectionAt = "/selection"

// Payment says how the purchase is paid. With purchase.External the app collects the
// money, with purchase.Card the provider does.
type Payment struct {
	Method        purchase.PaymentMethod `json:"method"`
	Reference     string                 `json:"reference,omitempty"`      // of the app; for purchase.External
	PaymentMethod string                 `json:"payment_method,omitempty"` // pm_… of the provider; for purchase.Card
	ReturnURL     string                 `json:"return_url,omitempty"`     // where an authentication ends; for purchase.Card
}

// Result is the result of a succeeded purchase job.
type Result struct {
	PurchaseID uuid.UUID       `json:"purchase_id"`
	Positions  []purchase.Item `json:"positions"`
	Amount     money.Amount    `json:"amount"`
	Currency   string          `json:"currency"`
	Board      int64           `json:"board_version"` // a board that has reached it shows the positions
}

// order is a queued purchase job as a transaction reads it, and what becomes of it: it is sold,
// reserved, refused, or put off.
type order struct {
	jobID      uuid.UUID
	campaignID uuid.UUID
	client     string // of the job
	Order

	bought  purchase.Purchase // when it is sold, or with the state pending when it is reserved
	picked  []*inventory.Free // the positions that are sold or reserved
	keeps   time.Duration     // of what is reserved: until its deadline
	since   time.Time         // of what is reserved: when the hold was made that it uses; zero: it uses none
	refusal error
	putOff  bool // another transaction has locked its wallet, or tries cards of its buyer
}

func (o *order) ref() job.Ref { return job.Ref{ID: o.jobID, CampaignID: o.campaignID} }

func parseOrder(jobID, campaignID uuid.UUID, client string, payload json.RawMessage) (*order, error) {
	o := &order{jobID: jobID, campaignID: campaignID, client: client}
	if err := json.Unmarshal(payload, &o.Order); err != nil {
		return nil, fmt.Errorf("the payload of job %s: %w", jobID, err)
	}
	return o, nil
}

// inputs is what a transaction has locked and read. Allocation does not change it.
type inputs struct {
	campaigns map[uuid.UUID]*campaign.Status
	orders    []*order                     // in the order of arrival
	busy      []job.Ref                    // jobs whose campaign another transaction has locked
	has       map[inventory.User]int       // positions of users, in campaigns with a purchase limit
	over      []inventory.Over             // holds that are over; has does not count them after endHolds
	holds     map[uuid.UUID]inventory.Hold // holds that orders name, read by endHolds

	// Of users who order by card, read by endHolds.
	unpaid map[inventory.User]int                 // positions that wait for their cards, if there is a limit
	kept   map[inventory.User]inventory.HeldTimes // lately, without buying
	cards  map[payment.Buyer]payment.Cards        // that were declined or are being tried
	trying map[payment.Buyer]bool                 // another transaction lets them try cards just now
	now    time.Time                              // by the database's clock; zero without such users

	reservations Reservations
}

func (o *order) buyer() inventory.User { return inventory.User{CampaignID: o.campaignID, ID: o.UserID} }

// users returns the user of each order.
func (in *inputs) users() []string {
	users := make([]string, len(in.orders))
	for i, o := range in.orders {
		users[i] = o.UserID
	}
	return users
}

// lockCampaigns locks the campaigns of jobs and reads everything that does not depend
// on the content of the orders, in one round trip. The lock is a statement of its own;
// those after it see what was committed before it was granted.
func lockCampaigns(ctx context.Context, tx pgx.Tx, refs []job.Ref, wait Wait) (*inputs, error) {
	in := &inputs{campaigns: make(map[uuid.UUID]*campaign.Status), has: make(map[inventory.User]int), holds: make(map[uuid.UUID]inventory.Hold)}
	jobs, campaigns := idsOf(refs)
	locked := make(map[uuid.UUID]bool, len(campaigns))
	var b pgx.Batch
	wait.queueLock(&b, campaigns, locked)
	campaign.QueueStatuses(&b, campaigns, in.campaigns)
	inventory.QueueFindOver(&b, campaigns, &in.over)
	b.Queue(queuedSQL, jobs, campaigns).Query(in.scanOrders)
	b.Queue(hasSQL, jobs, campaigns).Query(func(rows pgx.Rows) error { return inventory.ScanCounts(rows, in.has) })
	if err := tx.SendBatch(ctx, &b).Close(); err != nil {
		return nil, fmt.Errorf("lockCampaigns: %w", err)
	}
	in.keepLocked(locked)
	return in, nil
}

// idsOf returns the ids of jobs, and of their campaigns.
func idsOf(refs []job.Ref) (jobs, campaigns []uuid.UUID) {
	seen := make(map[uuid.UUID]bool, 1)
	for _, r := range refs {
		jobs = append(jobs, r.ID)
		if !seen[r.CampaignID] {
			seen[r.CampaignID] = true
			campaigns = append(campaigns, r.CampaignID)
		}
	}
	return jobs, campaigns
}

// queueLock locks campaigns and notes which of them it has got.
func (w Wait) queueLock(b *pgx.Batch, campaigns []uuid.UUID, locked map[uuid.UUID]bool) {
	campaign.QueueLock(b, campaigns, queueLimit(b, w.Campaign), func(id uuid.UUID) { locked[id] = true })
}

// queueLimit bounds the waits for locks of the rest of a transaction, and returns its lock mode.
func queueLimit(b *pgx.Batch, limit time.Duration) postgres.LockMode {
	if limit == 0 {
		return postgres.SkipLocked
	}
	postgres.QueueLimitLockWaits(b, limit)
	return postgres.WaitForLocks
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
	var jobID, campaignID uuid.UUID
	var client string
	var payload []byte
	_, err := pgx.ForEachRow(rows, []any{&jobID, &campaignID, &client, &payload}, func() error {
		o, err := parseOrder(jobID, campaignID, client, payload)
		in.orders = append(in.orders, o)
		return err
	})
	return err
}

// keepLocked moves orders whose campaign is not locked to busy. Orders whose campaign
// does not exist stay, to be refused. It also drops the holds of campaigns that are not
// locked or not active: this transaction must not end them.
func (in *inputs) keepLocked(locked map[uuid.UUID]bool) {
	in.orders = slices.DeleteFunc(in.orders, func(o *order) bool {
		busy := in.campaigns[o.campaignID] != nil && !locked[o.campaignID]
		if busy {
			in.busy = append(in.busy, o.ref())
		}
		return busy
	})
	in.over = slices.DeleteFunc(in.over, func(h inventory.Over) bool {
		c := in.campaigns[h.CampaignID]
		return !locked[h.CampaignID] || c == nil || c.State != campaign.Active
	})
}

// endHolds ends the holds that are over, so that their positions are free, and then
// reads the holds that orders name.
func (in *inputs) endHolds(ctx context.Context, tx pgx.Tx) error {
	var b pgx.Batch
	if len(in.over) > 0 {
		inventory.QueueExpire(&b, in.over)
		for _, h := range in.over {
			if who := (inventory.User{CampaignID: h.CampaignID, ID: h.UserID}); in.has[who] > 0 { // 0: not counted for these orders
				in.has[who] -= h.Size
			}
		}
	}
	var named []uuid.UUID
	for _, o := range in.orders {
		if o.Selection.HoldID != uuid.Nil {
			named = append(named, o.Selection.HoldID)
		}
	}
	if len(named) > 0 {
		inventory.QueueGetHolds(&b, named, func(h inventory.Hold) { in.holds[h.ID] = h })
	}
	in.queueCards(&b)
	if b.Len() == 0 {
		return nil
	}
	return fault.At(tx.SendBatch(ctx, &b).Close(), "endHolds")
}

// queueCards reads about users who order by card. Without them it costs nothing.
func (in *inputs) queueCards(b *pgx.Batch) {
	in.unpaid, in.kept = make(map[inventory.User]int), make(map[inventory.User]inventory.HeldTimes)
	for _, o := range in.orders {
		if o.Payment.Method == purchase.Card {
			in.kept[o.buyer()] = make(inventory.HeldTimes)
		}
	}
	if len(in.kept) == 0 {
		return
	}
	in.queueTurns(b)
	in.queueTries(b)
	if in.reservations.MostPerUser > 0 {
		inventory.QueueCountReservedOfUsers(b, slices.Collect(maps.Keys(in.kept)), in.unpaid)
	}
}

func (o *order) cardholder() payment.Buyer { return payment.Buyer{Client: o.client, ID: o.UserID} }

// queueTries counts the cards of buyers that were declined or are being tried, in other campaigns, too.
func (in *inputs) queueTries(b *pgx.Batch) {
	in.cards, in.trying = make(map[payment.Buyer]payment.Cards), make(map[payment.Buyer]bool)
	var buyers []payment.Buyer
	for _, o := range in.orders {
		if o.Payment.Method == purchase.Card && !slices.Contains(buyers, o.cardholder()) {
			buyers = append(buyers, o.cardholder())
		}
	}
	payment.QueueCards(b, buyers, uuid.Nil, false, func(who payment.Buyer) { in.trying[who] = true }, func(who payment.Buyer, cards payment.Cards) { in.cards[who] = cards })
}

// checkCards refuses an order by card of a buyer with too many cards that were declined or are
// being tried.
func (in *inputs) checkCards(o *order) error {
	if cards := in.cards[o.cardholder()]; o.Payment.Method == purchase.Card && cards.Count >= payment.MostDeclines {
		if cards.Again.IsZero() {
			cards.Again = in.now.Add(in.reservations.For)
		}
		return payment.TooManyDeclines(cards.Again)
	}
	return nil
}

// checkUnpaid refuses an order by card of n positions when too many of its user wait for
// cards already: nobody may keep a campaign from others without paying.
func (in *inputs) checkUnpaid(o *order, n int) error {
	most := in.reservations.MostPerUser
	if has := in.unpaid[o.buyer()]; o.Payment.Method == purchase.Card && most > 0 && has+n > most {
		return fault.New(fault.HoldLimitExceeded, "%d positions of this user wait for their payment by card; with these %d it would be more than %d", has, n, most)
	}
	return nil
}

// admit refuses orders that cannot be served, no matter which positions are free.
func (in *inputs) admit() (admitted []*order, refused []*order) {
	for _, o := range in.orders {
		if o.refusal = in.check(o); o.refusal != nil {
			refused = append(refused, o)
		} else {
			admitted = append(admitted, o)
		}
	}
	return admitted, refused
}

// check returns why an order cannot be served: first a draft, whose shape can still change,
// then a wrong selection, then the state of the sale, which is also the answer to purchases
// that come too late to make a job.
func (in *inputs) check(o *order) error {
	c := in.campaigns[o.campaignID]
	if c == nil {
		return fault.New(fault.NotFound, "there is no campaign %s", o.campaignID)
	}
	if c.State == campaign.Pending {
		return c.CheckOnSale()
	}
	if o.Selection.HoldID == uuid.Nil {
		if err := o.Selection.Check(c.Shape, selectionAt); err != nil {
			return err
		}
	}
	if err := c.CheckOnSale(); err != nil {
		return err
	}
	if o.Payment.Method == purchase.Card && o.Payment.PaymentMethod == "" {
		return fault.Invalid(fault.Field{Pointer: "/payment/payment_method", Detail: "is required for the method card"})
	}
	if o.Payment.Method == purchase.Card && (in.reservations.Takes == nil || !in.reservations.Takes(money.Currency(c.Currency))) {
		return fault.New(fault.CardsNotAccepted, "cards do not pay in %s: the provider counts its amounts in another unit", c.Currency)
	}
	return nil
}
