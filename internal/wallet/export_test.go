package wallet

import (
	"context"
	"time"

	"triprize/internal/job"
)

// Folded is how many events Open has added up.
func (u *UnitOfWork) Folded() int64 { return u.folded }

// SetRowWait sets how long a batch of commands that wait for locked wallets waits. It
// must be called before the first command.
func (b *Batcher) SetRowWait(limit time.Duration) { b.rowWait = limit }

// DoAgain does commands that have found a wallet locked.
func (e *Executor) DoAgain(ctx context.Context, commands []Command, rowWait time.Duration) ([]job.Done, error) {
	return e.doAgain(ctx, commands, rowWait)
}
