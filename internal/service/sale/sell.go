package sale

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"triprize/internal/platform/failpoint"
	"triprize/internal/platform/postgres"
	"triprize/internal/store/job"
	"triprize/internal/store/outbox"
)

// Seller settles purchase jobs and cancellation jobs.
type Seller struct {
	db       postgres.Beginner
	keepJobs time.Duration
}

// NewSeller returns a Seller. The draw jobs that it makes are kept for keepJobs.
func NewSeller(db postgres.Beginner, keepJobs time.Duration) *Seller {
	return &Seller{db: db, keepJobs: keepJobs}
}

// Wait says what Sell waits for when another transaction has it locked.
type Wait struct {
	campaigns postgres.LockMode
	wallets   time.Duration // at most, for each wallet; 0: no wait
}

var (
	// SkipLocked never waits. It is for jobs of several campaigns: one slow campaign
	// does not delay the others, and there can be no deadlock.
	SkipLocked = Wait{campaigns: postgres.SkipLocked}
	// WaitForCampaign waits for the campaign, but not for wallets. It is for jobs of one
	// campaign: jobs of several would all wait for the slowest.
	WaitForCampaign = Wait{campaigns: postgres.WaitForLocks}
)

// WaitForWallets waits for the campaign, and then at most limit for each wallet, while
// nothing else can be sold in the campaign. When a wallet is not free by then, nothing
// is sold. It is for jobs of one campaign.
func WaitForWallets(limit time.Duration) Wait {
	return Wait{campaigns: postgres.WaitForLocks, wallets: limit}
}

// Report is the outcome of a batch.
type Report struct {
	Settled  []job.Outcome    // jobs made final by this batch
	Busy     []job.Ref        // jobs whose campaign or wallet another transaction has locked: try again
	Messages []outbox.Message // of draw jobs, to be dispatched
	Sold     int              // positions
	Broken   []error          // of jobs that failed because their wallet is broken: an operator must look at it

	HoldsUsed      int // by purchases of this batch
	HoldsReclaimed int // holds that were over and that this batch has ended
}

// Sell settles purchase jobs in one transaction. It ignores jobs that are final already
// or do not exist. A job is Busy when its campaign or wallet is locked and wait says not
// to wait, or not longer.
func (s *Seller) Sell(ctx context.Context, refs []job.Ref, wait Wait) (Report, error) {
	var report Report
	err := postgres.InTx(ctx, s.db, func(tx pgx.Tx) (err error) {
		report, err = s.sell(ctx, tx, refs, wait)
		return err
	})
	switch {
	case wait.wallets > 0 && postgres.IsLockTimeout(err):
		return Report{Busy: refs}, nil
	case err != nil:
		return Report{}, fmt.Errorf("sale.Sell: %w", err)
	}
	failpoint.Hit("sale.committed", nil)
	return report, nil
}

// sell is the transaction.
func (s *Seller) sell(ctx context.Context, tx pgx.Tx, refs []job.Ref, wait Wait) (Report, error) {
	in, err := lockCampaigns(ctx, tx, refs, wait)
	if err != nil {
		return Report{}, err
	}
	if err := in.endHolds(ctx, tx); err != nil {
		return Report{}, err
	}
	admitted, refused := in.admit()
	payers, err := in.lockWallets(ctx, tx, admitted, wait)
	if err != nil {
		return Report{}, err
	}
	decided, err := in.allocate(ctx, tx, admitted, payers)
	if err != nil {
		return Report{}, err
	}
	out, err := effectsOf(in, payers, append(refused, decided...))
	if err != nil {
		return Report{}, err
	}
	if err := out.write(ctx, tx); err != nil {
		return Report{}, err
	}
	if out.report.Messages, err = s.freeze(ctx, tx, in, out); err != nil {
		return Report{}, err
	}
	failpoint.Hit("sale.commit", in.users)
	return out.report, nil
}
