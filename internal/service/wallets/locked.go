package wallets

import (
	"context"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/platform/postgres"
	"triprize/internal/store/wallet"
)

// lockedWallets knows the wallets that commands wait for because another transaction
// has them locked.
type lockedWallets struct {
	mu      sync.Mutex
	waiting map[uuid.UUID]int // commands
}

// any tells whether a command needs one of these wallets.
func (l *lockedWallets) any(c Command) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range c.Action.wallets() {
		if l.waiting[id] > 0 {
			return true
		}
	}
	return false
}

// note notes that a command waits, until over is called. It does not know which of
// the command's wallets is locked.
func (l *lockedWallets) note(c Command) (over func()) {
	l.add(c, 1)
	return func() { l.add(c, -1) }
}

func (l *lockedWallets) add(c Command, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range c.Action.wallets() {
		if l.waiting[id] += n; l.waiting[id] == 0 {
			delete(l.waiting, id)
		}
	}
}

// await waits until the wallets of commands are free, for limit at most in all. It locks one
// after the other, and no two at a time. Afterwards each may be locked again.
func (e *Executor) await(ctx context.Context, commands []Command, limit time.Duration) error {
	var ids []uuid.UUID
	for _, c := range commands {
		ids = append(ids, c.Action.wallets()...)
	}
	until := time.Now().Add(limit)
	busy, err := e.lockEach(ctx, ids, postgres.SkipLocked, limit)
	for _, id := range busy {
		if err == nil && time.Now().Before(until) {
			_, err = e.lockEach(ctx, []uuid.UUID{id}, postgres.WaitForLocks, time.Until(until))
		}
	}
	if postgres.IsLockTimeout(err) {
		return nil
	}
	return err
}

// lockEach locks wallets in a transaction of its own, which ends at once, and returns those
// that it has skipped.
func (e *Executor) lockEach(ctx context.Context, ids []uuid.UUID, mode postgres.LockMode, limit time.Duration) (busy []uuid.UUID, err error) {
	err = postgres.InTx(ctx, e.options.Retry, func(tx pgx.Tx) error {
		if err := postgres.LimitLockWaits(ctx, tx, limit); err != nil {
			return err
		}
		busy, err = wallet.Lock(ctx, tx, ids, mode)
		return err
	})
	return busy, err
}
