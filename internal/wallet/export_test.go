package wallet

import (
	"context"
	"time"

	"triprize/internal/job"
)

// The limits, and functions that tests call alone.
const (
	Funding    = funding
	MaxActive  = maxActive
	MaxAmount  = maxAmount
	MaxBalance = maxBalance
	MinTTL     = minTTL
	MaxTTL     = maxTTL
)

// The queries that commands and the sweep are made of.
var (
	At      = sumAt
	Find    = find
	FindDue = findDue
)

// Summed is how many events Open has added up.
func (u *UnitOfWork) Summed() int64 { return u.summed }

// SetRowWait sets how long a batch of commands that wait for locked wallets waits. It
// must be called before the first command.
func (b *Batcher) SetRowWait(limit time.Duration) { b.rowWait = limit }

// Retry executes commands that have found a wallet locked.
func (e *Executor) Retry(ctx context.Context, commands []Command, rowWait time.Duration) ([]job.Done, error) {
	return e.retry(ctx, commands, rowWait)
}
