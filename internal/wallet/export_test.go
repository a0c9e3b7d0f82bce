package wallet

import (
	"context"
	"time"

	"github.com/google/uuid"

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

// At is what a wallet was at a version.
var At = sumAt

// ExpireDue ends the authorizations of a wallet that are over, and returns how many.
func (u *UnitOfWork) ExpireDue(id uuid.UUID) (int, error) {
	a, err := u.account(id)
	if err != nil {
		return 0, err
	}
	return u.expireDue(a), nil
}

// Summed is how many events Open has added up.
func (u *UnitOfWork) Summed() int64 { return u.summed }

// SetRowWait sets how long a batch of commands that wait for locked wallets waits. It
// must be called before the first command.
func (b *Batcher) SetRowWait(limit time.Duration) { b.rowWait = limit }

// Retry executes commands that have found a wallet locked.
func (e *Executor) Retry(ctx context.Context, commands []Command, rowWait time.Duration) ([]job.Done, error) {
	return e.retry(ctx, commands, rowWait)
}
