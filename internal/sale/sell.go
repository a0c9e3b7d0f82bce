package sale

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/campaign"
	"triprize/internal/domain/fault"
	"triprize/internal/domain/money"
	"triprize/internal/domain/uuidv7"
	"triprize/internal/inventory"
	"triprize/internal/job"
	"triprize/internal/lease"
	"triprize/internal/payment"
	"triprize/internal/platform/failpoint"
	"triprize/internal/platform/postgres"
)

// Seller finalizes purchase jobs and cancellation jobs, and concludes payments, many in
// one transaction.
type Seller struct {
	db           postgres.Beginner
	keepJobs     time.Duration
	reservations Reservations
	facts        *campaign.Facts
}

// MaxExtension is how much longer positions wait for a card at most while the provider is away.
const MaxExtension = 30 * time.Minute

// Reservations says how long positions are reserved for payments.
type Reservations struct {
	For          time.Duration             // from the reservation on
	MaxExtension time.Duration             // while the provider is away, beyond that
	AfterSaleEnd time.Duration             // while they await the buyer, after the end of the sale
	Takes        func(money.Currency) bool // whether a card can pay in a currency; nil: in none
	MostPerUser  int                       // positions of a campaign that wait for a user's cards at a time; 0: no limit
	Turns        inventory.Turns           // how long a user keeps a position, with holds; at least For
}

// NewSeller returns a Seller. The draw jobs that it makes are kept for keepJobs.
func NewSeller(db postgres.Beginner, keepJobs time.Duration, reservations Reservations) *Seller {
	reservations.Turns.Most = max(reservations.Turns.Most, reservations.For)
	reservations.Turns.CoolDown = 0 // a buyer whose card was declined tries another at once
	return &Seller{db: db, keepJobs: keepJobs, reservations: reservations, facts: campaign.NewFacts()}
}

// Wait bounds how long a transaction waits for rows that another one has locked. When one is not free
// by then, nothing is final, and all jobs are Busy. One that waits is for jobs of one campaign: those
// of several would all wait for the slowest.
type Wait struct {
	Campaign time.Duration // for the campaign
	Wallets  time.Duration // then for each wallet or payment, while nothing else can be sold in the campaign
}

var (
	// SkipLocked never waits: one slow campaign does not delay the others, and there can be no deadlock.
	SkipLocked = Wait{}
	// WaitForCampaign is for those who have nothing else to do.
	WaitForCampaign = Wait{Campaign: time.Minute}
)

// gaveUp reports whether err is the end of a wait.
func (w Wait) gaveUp(err error) bool { return w != SkipLocked && postgres.IsLockTimeout(err) }

// queueLock locks campaigns and notes which of them it has got.
func (w Wait) queueLock(b *pgx.Batch, campaigns []uuid.UUID, locked map[uuid.UUID]bool) {
	campaign.QueueLock(b, campaigns, queueLimit(b, w.Campaign), func(id uuid.UUID) { locked[id] = true })
}

// queueLockPayments locks payments: it waits for them as for wallets.
func (w Wait) queueLockPayments(b *pgx.Batch, ids []uuid.UUID, locked map[uuid.UUID]bool, into map[uuid.UUID]*payment.Payment) {
	payment.QueueLock(b, ids, queueLimit(b, w.Wallets), locked, into)
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
func (w Wait) forWallets(ctx context.Context, tx pgx.Tx) (postgres.LockMode, error) {
	if w.Wallets == 0 {
		return postgres.SkipLocked, nil
	}
	return postgres.WaitForLocks, postgres.LimitLockWaits(ctx, tx, w.Wallets)
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

// Report is the outcome of a batch.
type Report struct {
	Finalized []job.Outcome // jobs made final by this batch
	Busy      []job.Ref     // jobs whose campaign or wallet another transaction has locked: try again
	Locked    []job.Ref     // those of Busy whose campaign is locked
	GaveUp    bool          // a bounded wait was in vain: nothing is final, and all jobs are Busy
	Messages  []job.Message // of draw jobs, to be dispatched
	Sold      int           // positions
	Broken    []error       // of jobs that failed because a wallet is broken: an operator must look at it
	Payments  []payment.Ref // that are due now: the worker dispatches tasks for them
	Refunds   []lease.Item  // that are due now: likewise

	HoldsUsed      int // by purchases of this batch
	HoldsReclaimed int // holds that were over and that this batch has ended
}

// Sell finalizes purchase jobs in one transaction. An order that is paid by card is not
// finalized: its positions are reserved, and its payment begins. Sell ignores jobs that are
// final, have begun a purchase already, or do not exist. A job is Busy when its campaign or wallet is locked for longer than wait.
func (s *Seller) Sell(ctx context.Context, refs []job.Ref, wait Wait) (Report, error) {
	return s.run(ctx, "sale", refs, wait, s.sell)
}

// run runs a transaction. name is that of its failpoint and its errors.
func (s *Seller) run(ctx context.Context, name string, refs []job.Ref, wait Wait, do func(context.Context, pgx.Tx, []job.Ref, Wait) (Report, error)) (report Report, err error) {
	err = postgres.InTx(ctx, s.db, func(tx pgx.Tx) (err error) {
		report, err = do(ctx, tx, refs, wait)
		return err
	})
	switch {
	case wait.gaveUp(err):
		report = Report{Busy: refs, GaveUp: true}
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

// sell is the transaction.
func (s *Seller) sell(ctx context.Context, tx pgx.Tx, refs []job.Ref, wait Wait) (Report, error) {
	in, err := lockOrders(ctx, tx, refs, wait)
	if err != nil {
		return Report{}, err
	}
	if err := s.facts.Fill(ctx, tx, in.campaigns); err != nil {
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

// finish writes effects, and ends the sale of every campaign whose last position this transaction sells:
// the campaign is drawing from its commit on, and a job draws it. The sold list is frozen
// by the draw's first step: this transaction has others to serve, and the list cannot
// change any more. It happens once per campaign, so its round trips do not matter.
//
// Reserved positions are not sold: while a payment is pending, no draw begins. Where what is
// sold at the end is drawn, the last payment that was waited for begins the draw, however
// it has ended.
func (s *Seller) finish(ctx context.Context, tx pgx.Tx, campaigns map[uuid.UUID]*campaign.Status, e *effects) error {
	if err := e.write(ctx, tx); err != nil {
		return err
	}
	for _, id := range slices.SortedFunc(maps.Keys(e.changes), uuidv7.Compare) {
		counts, sold := campaigns[id].Counts, e.changes[id].Sold
		if sold <= 0 || counts.Sold+sold < counts.Total {
			if err := s.endIfDue(ctx, tx, campaigns[id], e); err != nil {
				return err
			}
			continue
		}
		if err := campaign.StartDraw(ctx, tx, id); err != nil {
			return fmt.Errorf("finish: %w", err)
		}
		if err := s.draw(ctx, tx, id, job.BySellOut, e); err != nil {
			return err
		}
	}
	return nil
}

// draw makes the job that draws a campaign whose sale this transaction has ended.
func (s *Seller) draw(ctx context.Context, tx pgx.Tx, id uuid.UUID, by job.By, e *effects) error {
	made, err := job.Insert(ctx, tx, job.DrawRequest(id, by, "", s.keepJobs, job.OriginIn(e.Finalized, id)))
	e.Messages = append(e.Messages, made...)
	return fault.At(err, "draw(%s)", id)
}
