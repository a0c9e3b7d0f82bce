// Package sale sells positions, cancels purchases and settles payments, in batches.
//
//	lock campaigns ─▶ read ─▶ end holds ─▶ admit ─▶ lock wallets ─▶ allocate ─▶ write ─▶ start draws
//
// These are the steps of [Seller.Sell], one transaction for jobs of any campaigns:
//
//   - lock campaigns: by id. [job.LockWait] limits the wait; the jobs of those that stay locked are
//     Busy.
//   - read, in later statements: campaigns, the queued jobs, and the positions of their
//     users where there is a limit.
//   - end holds that are over, so that their positions are free.
//   - admit: refuse jobs by the state of their campaign. A refusal is final, as a sale is.
//   - lock wallets of the jobs that are paid by wallet.
//   - allocate, in order of arrival: check limit and money; each job gets all or
//     nothing: the positions of its hold, chosen ones, or the first free ones by rank. A
//     job that is paid by card gets them reserved, and stays open: for as long as its user
//     may hold them without paying.
//   - write: counters, positions, purchases, money and outcomes. When a statement changes
//     other rows than expected, everything is rolled back.
//   - start draws: when the last position of a campaign is sold, set drawing and insert
//     the draw job.
//
// [Seller.SettlePayments], [Seller.Cancel] and [Seller.EndSale] have the same steps. No
// transaction here waits for a provider (see package payment). [ExpireReservations] expires
// payments past their deadline.
//
// A job is final exactly when its effect is committed. The transactions are READ
// COMMITTED: the row lock of a campaign serializes its sales.
package sale

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/campaign"
	"triprize/internal/domain/fault"
	"triprize/internal/domain/metadata"
	"triprize/internal/domain/money"
	"triprize/internal/domain/uuidv7"
	"triprize/internal/inventory"
	"triprize/internal/job"
	"triprize/internal/platform/failpoint"
	"triprize/internal/platform/postgres"
	"triprize/internal/purchase"
)

// Seller completes purchase jobs and cancellation jobs, and settles payments, many in
// one transaction.
type Seller struct {
	db           postgres.Beginner
	jobRetention time.Duration
	reservations Reservations
	terms        *campaign.TermsCache
}

// MaxExtension is how much longer positions wait for a card at most while the provider is away.
const MaxExtension = 30 * time.Minute

// Reservations are the limits of reservations for payments by card.
type Reservations struct {
	For          time.Duration       // from the reservation on
	MaxExtension time.Duration       // while the provider is away, beyond that
	AfterSaleEnd time.Duration       // while they await the buyer, after the end of the sale
	MaxPerUser   int                 // positions of a campaign that wait for a user's cards at a time; 0: no limit
	HoldQuota    inventory.HoldQuota // of positions in holds and reservations; Max is at least For

	// Takes reports whether a card can pay in a currency, and at least how much; nil: in none.
	Takes func(money.Currency) (minimum money.Amount, ok bool)
}

// NewSeller returns a Seller. jobRetention is that of the draw jobs that it makes.
func NewSeller(db postgres.Beginner, jobRetention time.Duration, reservations Reservations) *Seller {
	reservations.HoldQuota.Max = max(reservations.HoldQuota.Max, reservations.For)
	return &Seller{db: db, jobRetention: jobRetention, reservations: reservations, terms: campaign.NewTermsCache()}
}

// Order is the payload of a purchase job: buyer, selection and payment.
type Order struct {
	UserID    string              `json:"user_id"`
	Selection inventory.Selection `json:"selection"`
	Payment   Payment             `json:"payment"`

	Metadata metadata.Map `json:"metadata,omitempty"` // of the purchase
	By       string       `json:"by,omitempty"`       // role:client, and /user when one was signed in; of a payment by wallet

	job    job.Ref // as a transaction has read it
	client string  // of the job
}

const selectionAt = "/selection" // the JSON pointer of an order's selection

// Payment is how a purchase is paid. With purchase.External the app collects the
// money, with purchase.Card the provider does.
type Payment struct {
	Method        purchase.PaymentMethod `json:"method"`
	Reference     string                 `json:"reference,omitempty"`      // of the app; for purchase.External
	PaymentMethod string                 `json:"payment_method,omitempty"` // pm_… of the provider; for purchase.Card
	ReturnURL     string                 `json:"return_url,omitempty"`     // where an authentication ends; for purchase.Card
}

// Result is the result of a succeeded job: of a purchase, or of a cancellation.
type Result struct {
	PurchaseID uuid.UUID       `json:"purchase_id"`
	State      purchase.State  `json:"state,omitempty"` // of a cancellation: cancelled, or refunding when a card was charged; completed when others are left
	Positions  []purchase.Item `json:"positions"`       // bought, or free again
	Amount     money.Amount    `json:"amount"`          // of a cancellation: refunded to the wallet or the card, or for the app to refund; or it was never paid
	Currency   string          `json:"currency"`
	Board      int64           `json:"board_version"` // a board that has reached it shows the positions so
}

func resultOf(p *purchase.Purchase, board int64) Result {
	return Result{PurchaseID: p.ID, Positions: p.Items, Amount: p.Amount, Currency: p.Currency, Board: board}
}

// Report is the outcome of a batch.
type Report struct {
	job.BatchResult

	Sold           int // positions
	HoldsUsed      int // by purchases of this batch
	HoldsReclaimed int // holds that were over and that this batch has ended
}

// WaitForCampaign is for callers that have nothing else to do.
var WaitForCampaign = job.LockWait{Campaign: time.Minute}

// queueLock locks campaigns and notes which of them it has got.
func queueLock(b *pgx.Batch, wait job.LockWait, campaigns []uuid.UUID, locked map[uuid.UUID]bool) {
	campaign.QueueLock(b, campaigns, queueLimit(b, wait.Campaign), func(id uuid.UUID) { locked[id] = true })
}

// queueLimit bounds the waits for locks of the rest of a transaction, and returns its lock mode.
func queueLimit(b *pgx.Batch, limit time.Duration) postgres.LockMode {
	if limit == 0 {
		return postgres.SkipLocked
	}
	postgres.QueueLimitLockWaits(b, limit)
	return postgres.WaitForLocks
}

// forWallets returns how to lock wallets, and bounds the waits of the rest of the
// transaction if it is to wait for them.
func forWallets(ctx context.Context, tx pgx.Tx, wait job.LockWait) (postgres.LockMode, error) {
	if wait.Wallets == 0 {
		return postgres.SkipLocked, nil
	}
	return postgres.WaitForLocks, postgres.LimitLockWaits(ctx, tx, wait.Wallets)
}

// run runs a transaction. name is that of its failpoint and its errors.
func (s *Seller) run(ctx context.Context, name string, refs []job.Ref, wait job.LockWait, do func(context.Context, pgx.Tx, []job.Ref, job.LockWait) (Report, error)) (report Report, err error) {
	err = postgres.InTx(ctx, s.db, func(tx pgx.Tx) (err error) {
		report, err = do(ctx, tx, refs, wait)
		return err
	})
	switch {
	case wait != job.SkipLocked && postgres.IsLockTimeout(err):
		report = Report{BatchResult: job.BatchResult{Busy: refs, TimedOut: true}}
		if wait.Wallets == 0 { // it has waited for nothing else
			report.Locked = refs
		}
		return report, nil
	case err != nil:
		return Report{}, fmt.Errorf("%s: %w", name, err)
	}
	failpoint.Hit(name+".committed", nil)
	return report, nil
}

// names returns the users of items, for failpoints.
func names[T any](items []T, user func(T) string) func() []string {
	return func() []string {
		users := make([]string, len(items))
		for i, item := range items {
			users[i] = user(item)
		}
		return users
	}
}

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

// Rates are how fast purchases have become final in the last ten seconds.
type Rates struct {
	Completed, Refused float64  // each second
	P50, P99           *float64 // from acceptance to the end, in milliseconds, of those that are not paid by card, which wait for their buyers; nil: none has become final
}

// ReadRates reads the newest purchases, payments and refused jobs, 20,000 of each at most. A purchase that was accepted more
// than a minute ago does not count, unless it is paid by card: the age of the oldest job shows those that wait.
func ReadRates(ctx context.Context, db postgres.DB) (r Rates, err error) {
	now := time.Now()
	err = db.QueryRow(ctx, `
		WITH ended AS MATERIALIZED (
			SELECT id, true AS sold FROM (SELECT id, completed_at FROM purchases WHERE id >= $2 AND id < $3 ORDER BY id DESC LIMIT $1) p
			WHERE completed_at > statement_timestamp() - interval '10 seconds'
			UNION
			SELECT id, true FROM (SELECT purchase_id AS id FROM payments WHERE received > 0 AND finished_at > statement_timestamp() - interval '10 seconds' ORDER BY finished_at DESC LIMIT $1) y
			JOIN purchases USING (id) WHERE completed_at IS NOT NULL
			UNION ALL
			SELECT id, false FROM (SELECT unnest(jobs) AS id FROM refused_jobs WHERE refused_at > statement_timestamp() - interval '10 seconds' ORDER BY refused_at DESC LIMIT $1) r),
		j AS (SELECT sold, CASE WHEN purchase_id IS NULL THEN 1000 * extract(epoch FROM finished_at - accepted_at)::float8 END AS took
			FROM ended JOIN jobs USING (id) WHERE kind = 'purchase')
		SELECT count(*) FILTER (WHERE sold) / 10::float8, count(*) FILTER (WHERE NOT sold) / 10::float8,
		       round(percentile_cont(0.5) WITHIN GROUP (ORDER BY took)), round(percentile_cont(0.99) WITHIN GROUP (ORDER BY took))
		FROM j`, 20_000, uuidv7.FirstAt(now.Add(-time.Minute)), uuidv7.FirstAt(now.Add(time.Minute))).Scan(&r.Completed, &r.Refused, &r.P50, &r.P99)
	return r, fault.At(err, "sale.ReadRates")
}
