package job

import (
	"context"
	"time"

	"triprize/internal/lease"
)

// Batch does jobs of one kind in one transaction. It ignores those that are not queued any more.
type Batch func(ctx context.Context, refs []Ref, wait LockWait) (BatchResult, error)

// BatchResult is what a Batch has done. Jobs in neither list need nothing more.
type BatchResult struct {
	Outcomes []Outcome    // of jobs made final by this batch
	Busy     []Ref        // jobs whose campaign or wallet another transaction has locked: try again
	Locked   []Ref        // those of Busy whose campaign is locked
	TimedOut bool         // a lock wait timed out: nothing is final, and all jobs are Busy
	Messages []Message    // of draw jobs, to be dispatched
	Due      []lease.Item // leased items that are due now, to be dispatched
	Broken   []error      // of jobs that failed because a wallet is broken, for an operator
}

// LockWait limits how long a Batch waits for rows that another transaction has locked. When a wait times
// out, nothing is final, and all jobs are Busy. A Batch that waits is for jobs of one campaign:
// those of several would all wait for the slowest.
type LockWait struct {
	Campaign time.Duration // for the campaign
	Wallets  time.Duration // then for each wallet or payment, while nothing else can be sold in the campaign
}

// SkipLocked never waits: one slow campaign does not delay the others, and there can be no deadlock.
var SkipLocked = LockWait{}
