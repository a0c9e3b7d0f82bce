package payment

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/access"
	"triprize/internal/domain/fault"
	"triprize/internal/domain/money"
	"triprize/internal/domain/payprovider"
	"triprize/internal/lease"
	"triprize/internal/platform/postgres"
)

// RefundState is the state of a refund; the package comment has the diagram.
type RefundState string

// The states of refunds.
const (
	RefundOpen           RefundState = "open"
	RefundPending        RefundState = "pending"
	RefundRequiresAction RefundState = "requires_action"
	RefundSucceeded      RefundState = "succeeded"
	RefundFailed         RefundState = "failed"
	RefundCanceled       RefundState = "canceled" // in the provider's spelling
	RefundListed         RefundState = "listed"
	RefundResolved       RefundState = "resolved"
)

// Finished reports whether the money is refunded, as far as is known.
func (s RefundState) Finished() bool { return s == RefundSucceeded || s == RefundResolved }

// Refused reports whether the provider has refused the refund, so that it waits for an
// operator.
func (s RefundState) Refused() bool { return s == RefundFailed || s == RefundCanceled }

// RefundStateOf returns the state that a status of the provider means, empty for one that is not
// known.
func RefundStateOf(status payprovider.RefundStatus) RefundState {
	switch state := RefundState(status); state {
	case RefundPending, RefundRequiresAction, RefundSucceeded, RefundFailed, RefundCanceled:
		return state
	}
	return ""
}

// RefundMethod is how the purchase was paid, and how the money goes back.
type RefundMethod string

// The methods.
const (
	RefundToWallet RefundMethod = "wallet"   // credited in the transaction that makes the row
	RefundToCard   RefundMethod = "card"     // at the provider
	RefundExternal RefundMethod = "external" // by the app
)

// RefundReason is why a refund is made.
type RefundReason string

// The reasons.
const (
	RefundPurchaseCancelled RefundReason = "cancelled" // or a part of it
	RefundCampaignCancelled RefundReason = "campaign-cancelled"
	RefundLatePayment       RefundReason = "late-payment"
	RefundOutOfBand         RefundReason = "out-of-band" // by hand at the provider: it is not ours
)

// Refund is money of one purchase that goes back, by us or out of band.
type Refund struct {
	ID            uuid.UUID
	PurchaseID    uuid.UUID
	CampaignID    uuid.UUID
	UserID        string
	Method        RefundMethod
	Amount        money.Amount // 0 of one of ours that is finished: others had left nothing
	Due           money.Amount // what is to be given back: of one that waits for an operator, what others have left of Amount
	Currency      string       // ISO 4217, capitals
	Reason        RefundReason
	State         RefundState
	Version       int64
	LeaseUntil    *time.Time
	DueAt         *time.Time
	Wakes         int
	Attempt       int // of making it; 0: nothing was sent yet
	AttemptAt     *time.Time
	Asked         money.Amount  // amount with which the key of the attempt was stored; Amount may be less since
	KeyAge        time.Duration // of the key of the attempt when this was read; 0: there is none
	ProviderID    *string       // re_… of the last attempt
	Failure       *string       // why the provider has refused it, or what is wrong with it
	Faults        int           // failed attempts in a row
	Stuck         bool          // the provider refuses to report it, refuses the key, or has not answered for long
	ResolvedBy    *string       // role:client of who resolved it by hand, and /user when one was signed in
	ResolveReason *string
	CreatedAt     time.Time
	Age           time.Duration // when this was read, by the database's clock
	FinishedAt    *time.Time
}

// ForOperator reports whether an operator has to see to the refund, or to the key: the
// provider has refused it, or it is stuck. One that needs an action waits for its buyer.
func (r *Refund) ForOperator() bool {
	return r.Reason != RefundOutOfBand && (r.State.Refused() || r.Stuck && (r.State == RefundOpen || r.State == RefundPending || r.State == RefundRequiresAction))
}

// Item returns the refund as a leased item.
func (r *Refund) Item() lease.Item {
	return lease.Item{ID: r.ID, Version: r.Version, Kind: "refund"}
}

// refundColumns are the fields of a Refund, in order.
const refundColumns = `r.id, r.purchase_id, r.campaign_id, r.user_id, r.method, r.amount, ` + DueSQL + `, r.currency, r.reason, r.state, r.version, r.lease_until,
	r.due_at, r.wakes, r.attempt, r.attempt_at, coalesce(r.asked, r.amount), coalesce(extract(epoch FROM clock_timestamp() - r.attempt_at) * interval '1 second', interval '0'),
	r.provider_id, r.failure, r.faults, r.stuck, r.resolved_by, r.resolve_reason, r.created_at,
	extract(epoch FROM clock_timestamp() - r.created_at) * interval '1 second', r.finished_at`

var scanRefund = pgx.RowToStructByPos[Refund]

// DebtSQL is how much of what a card purchase r.purchase_id has paid is to be refunded: the price
// of what was cancelled in part, while it keeps the rest or since a dispute has taken the rest, otherwise all. What is lost in
// disputes is not subtracted: nothing is refunded by us then, and what is resolved by hand may stand for it.
const DebtSQL = `coalesce((SELECT CASE WHEN p.state = 'completed' OR ` + released + ` THEN p.amount - (SELECT sum(i.price) FROM purchase_items i WHERE i.purchase_id = p.id)::bigint ELSE y.paid END
	FROM payments y JOIN purchases p ON p.id = y.purchase_id WHERE y.purchase_id = r.purchase_id), 0)`

// LeftSQL is how much is left of the debt for a refund r: what others of the purchase, ours and
// others', do not give back.
const LeftSQL = `(` + DebtSQL + ` - coalesce((SELECT sum(o.amount) FROM refunds o WHERE o.purchase_id = r.purchase_id AND o.id <> r.id
	AND o.state IN ('pending', 'requires_action', 'succeeded', 'resolved')), 0)::bigint)`

// DueSQL is Refund.Due in SQL. Of those of a purchase that wait for an operator, the first has what is left first.
const DueSQL = `CASE WHEN ` + ForOperatorSQL + ` THEN greatest(least(r.amount, ` + LeftSQL + ` -
	coalesce((SELECT sum(o.amount) FROM refunds o WHERE o.purchase_id = r.purchase_id AND o.number < r.number
	AND ` + ForOperatorSQL + ` AND o.state IN ('open', 'failed', 'canceled')), 0)::bigint), 0) ELSE r.amount END`

// GetRefund returns a refund, or a not-found Error.
func GetRefund(ctx context.Context, db postgres.DB, who access.Grant, id uuid.UUID) (Refund, error) {
	r, err := postgres.CollectOne(ctx, db, scanRefund, `
		SELECT `+refundColumns+` FROM refunds r WHERE id = $1 AND ($2::text IS NULL OR client = $2) AND ($3::text IS NULL OR user_id = $3)`, id, who.Client(), who.User())
	if errors.Is(err, pgx.ErrNoRows) {
		return Refund{}, fault.New(fault.NotFound, "there is no refund %s", id)
	}
	return r, fault.At(err, "payment.GetRefund(%s)", id)
}

// GetRefunds returns refunds; those that are not there are left out.
func GetRefunds(ctx context.Context, db postgres.DB, ids []uuid.UUID) ([]Refund, error) {
	list, err := postgres.Collect(ctx, db, scanRefund, `
		SELECT `+refundColumns+` FROM unnest($1::uuid[]) AS i (id) CROSS JOIN LATERAL (SELECT * FROM refunds WHERE id = i.id) r`, ids)
	return list, fault.At(err, "payment.GetRefunds")
}

// RefundsOfCampaign returns refunds of a campaign in the order of their ids, after the given
// one (zero: from the start): those in a state, or with an empty one all.
func RefundsOfCampaign(ctx context.Context, db postgres.DB, who access.Grant, campaignID uuid.UUID, state RefundState, after uuid.UUID, limit int) ([]Refund, error) {
	args := []any{campaignID, string(state), postgres.Nullable(after), limit}
	only := ""
	if client := who.Client(); client != nil { // of its own, so that the index of the client is used
		only, args = ` AND client = $5`, append(args, *client)
	}
	list, err := postgres.Collect(ctx, db, scanRefund, `
		SELECT `+refundColumns+` FROM refunds r
		WHERE campaign_id = $1 AND ($2 = '' OR state = $2) AND ($3::uuid IS NULL OR id > $3)`+only+`
		ORDER BY id LIMIT $4`, args...)
	return list, fault.At(err, "payment.RefundsOfCampaign(%s)", campaignID)
}

// RefundsWaitingForOperator returns the card refunds that wait for an operator, those of all
// campaigns, in the order of their ids, after the given one (zero: from the start).
func RefundsWaitingForOperator(ctx context.Context, db postgres.DB, after uuid.UUID, limit int) ([]Refund, error) {
	list, err := postgres.Collect(ctx, db, scanRefund, `
		SELECT `+refundColumns+` FROM refunds r WHERE `+ForOperatorSQL+` AND ($1::uuid IS NULL OR id > $1) ORDER BY id LIMIT $2`, postgres.Nullable(after), limit)
	return list, fault.At(err, "payment.RefundsWaitingForOperator")
}

// RefundsOfPurchases returns the refunds of purchases, by purchase, in the order of their ids. It
// leaves out those that have none.
func RefundsOfPurchases(ctx context.Context, db postgres.DB, purchases []uuid.UUID) (map[uuid.UUID][]Refund, error) {
	list, err := postgres.Collect(ctx, db, scanRefund, `
		SELECT `+refundColumns+` FROM unnest($1::uuid[]) AS p (id)
		CROSS JOIN LATERAL (SELECT * FROM refunds WHERE purchase_id = p.id) r ORDER BY r.id`, purchases)
	if err != nil {
		return nil, fmt.Errorf("payment.RefundsOfPurchases: %w", err)
	}
	of := make(map[uuid.UUID][]Refund)
	for _, r := range list {
		of[r.PurchaseID] = append(of[r.PurchaseID], r)
	}
	return of, nil
}

// RefundCounts is how many refunds a cancelled campaign has made, by method and by what is to
// be done about them. Those of purchases that were cancelled before it do not count.
type RefundCounts struct {
	Wallet    int
	Card      int
	External  int
	UnderWay  int // at the provider: open and pending ones that are not stuck
	ForPeople int // waiting for an operator, or for an action of the buyer: no job waits for them
}

// Total returns how many there are.
func (c RefundCounts) Total() int { return c.Wallet + c.Card + c.External }

// ForOperatorSQL is Refund.ForOperator in SQL, and the condition of the index
// refunds_for_operator.
const ForOperatorSQL = `method = 'card' AND number IS NOT NULL AND (state IN ('failed', 'canceled') OR stuck AND state IN ('open', 'pending', 'requires_action'))`

// CountRefundsForOperator counts the card refunds that wait for an operator, those of all
// campaigns.
func CountRefundsForOperator(ctx context.Context, db postgres.DB) (n int, err error) {
	err = db.QueryRow(ctx, `SELECT count(*) FROM refunds WHERE `+ForOperatorSQL).Scan(&n)
	return n, fault.At(err, "payment.CountRefundsForOperator")
}

// CountCancelledRefunds counts the refunds of a cancelled campaign.
func CountCancelledRefunds(ctx context.Context, db postgres.DB, campaignID uuid.UUID) (RefundCounts, error) {
	c, err := postgres.CollectOne(ctx, db, pgx.RowToStructByPos[RefundCounts], `
		SELECT count(*) FILTER (WHERE method = 'wallet'), count(*) FILTER (WHERE method = 'card'), count(*) FILTER (WHERE method = 'external'),
		       count(*) FILTER (WHERE state IN ('open', 'pending') AND NOT stuck), count(*) FILTER (WHERE `+ForOperatorSQL+` OR method = 'card' AND state = 'requires_action')
		FROM refunds WHERE campaign_id = $1 AND reason = 'campaign-cancelled'`, campaignID)
	return c, fault.At(err, "payment.CountCancelledRefunds(%s)", campaignID)
}

// QueueInsertRefunds stores new refunds of ours. The state follows from the method: a wallet was credited
// in this transaction, an external one is listed for the app, and a card refund is open and due at
// once. The batch fails when those of a purchase would ask for more than was paid: by card what was
// captured, otherwise its amount. Of two batches at once that make one for the same
// purchase the second fails: both have the same number.
func QueueInsertRefunds(b *pgx.Batch, refunds []Refund) {
	n := len(refunds)
	ids, purchases, campaigns, users := make([]uuid.UUID, n), make([]uuid.UUID, n), make([]uuid.UUID, n), make([]string, n)
	methods, amounts, currencies, reasons := make([]string, n), make([]int64, n), make([]string, n), make([]string, n)
	for i, r := range refunds {
		ids[i], purchases[i], campaigns[i], users[i] = r.ID, r.PurchaseID, r.CampaignID, r.UserID
		methods[i], amounts[i], currencies[i], reasons[i] = string(r.Method), int64(r.Amount), r.Currency, string(r.Reason)
	}
	b.Queue(`
		INSERT INTO refunds (id, purchase_id, campaign_id, user_id, method, amount, currency, reason, number, state, due_at, finished_at)
		SELECT r.id, r.purchase_id, r.campaign_id, r.user_id, r.method, r.amount, r.currency, r.reason, before.n + r.nth,
		       CASE r.method WHEN 'wallet' THEN 'succeeded' WHEN 'external' THEN 'listed' ELSE 'open' END,
		       CASE WHEN r.method = 'card' THEN t.now END, CASE WHEN r.method = 'wallet' THEN t.now END
		FROM (SELECT u.*, row_number() OVER (PARTITION BY purchase_id ORDER BY id) AS nth, sum(amount) OVER (PARTITION BY purchase_id) AS together
		      FROM unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::text[], $5::text[], $6::bigint[], $7::text[], $8::text[])
		           AS u (id, purchase_id, campaign_id, user_id, method, amount, currency, reason)) r
		CROSS JOIN LATERAL (
			SELECT coalesce(max(number), 0) AS n, coalesce(sum(amount), 0) AS asked
			FROM refunds WHERE purchase_id = r.purchase_id AND number IS NOT NULL) before,
		     (SELECT clock_timestamp() AS now) t
		WHERE before.asked + r.together <= CASE WHEN r.method = 'card' THEN (SELECT paid FROM payments WHERE purchase_id = r.purchase_id)
		                                   ELSE (SELECT amount FROM purchases WHERE id = r.purchase_id) END`,
		ids, purchases, campaigns, users, methods, amounts, currencies, reasons).Exec(postgres.Exactly(n, "new refunds"))
}

// RefundLeases is the table of card refunds of ours that are due. One that was resolved by hand is
// due until the provider has answered, and when an event reports it: it may have been made there, too.
var RefundLeases = lease.Table{Name: "refunds", As: "r", Key: "id", Kind: `'refund'`, Open: `r.method = 'card' AND r.number IS NOT NULL`, Due: `true`}

// ClaimRefund leases a card refund to a worker, see [lease.Claim].
func ClaimRefund(ctx context.Context, db postgres.DB, item lease.Item, until time.Duration) (r Refund, ok bool, err error) {
	return lease.Claim(ctx, db, RefundLeases, item, until, ``, ``, refundColumns, scanRefund)
}

// WakeRefunds makes card refunds due at once, those of purchases and those with the provider's
// ids: something has happened to them there. One that succeeded can have failed since.
// It returns the purchases of those it has found. See [lease.Wake].
func WakeRefunds(ctx context.Context, db postgres.DB, purchases []uuid.UUID, providerIDs []string) ([]uuid.UUID, error) {
	return lease.Wake(ctx, db, RefundLeases, `SELECT id FROM refunds WHERE purchase_id = ANY($1) UNION SELECT id FROM refunds WHERE provider_id = ANY($2)`,
		`r.purchase_id`, pgx.RowTo[uuid.UUID], purchases, providerIDs)
}

// unfinished are the card refunds that a worker still processes.
const unfinished = `method = 'card' AND number IS NOT NULL AND state IN ('open', 'pending', 'requires_action')`

// RefundsWaitForKey records that card refunds wait: cards are switched off.
func RefundsWaitForKey(ctx context.Context, db postgres.DB, items []lease.Item) (int, error) {
	ids, _ := lease.Split(items)
	tag, err := db.Exec(ctx, `
		UPDATE refunds SET waiting_since = coalesce(refunds.waiting_since, clock_timestamp()), failure = 'cards are disabled: no key of a payment provider is set'
		FROM (SELECT id FROM refunds r WHERE id = ANY($1) AND `+unfinished+` AND `+RefundLeases.Free()+` ORDER BY id FOR NO KEY UPDATE) w
		WHERE refunds.id = w.id`, ids)
	return int(tag.RowsAffected()), fault.At(err, "payment.RefundsWaitForKey")
}
