package wallet

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/job"
	"triprize/internal/platform/batch"
	"triprize/internal/platform/config"
	"triprize/internal/platform/postgres"
)

// Batcher gathers single commands into batches. Commands on a locked wallet get batches of
// their own, which wait longer, and so do the commands on it that come meanwhile: they delay
// only each other.
type Batcher struct {
	shards  *batch.Shards[Command, job.Done]
	waiting *batch.Shards[Command, job.Done] // of commands that found their wallet locked
	locked  lockedWallets
	timeout time.Duration
	rowWait time.Duration // of the waiting shards; tests set it
}

const (
	// shards is the number of concurrent batches. A command runs in the shard of its first
	// wallet, so two shards of a process compete only for wallets that receive transfers.
	shards = 4
	// waitingShards is the number of batches that wait for locked wallets.
	waitingShards = 2
	// waitingRowWait is how long such a batch waits before it skips the wallets that are
	// still locked. Their commands are retried in the next one.
	waitingRowWait = 250 * time.Millisecond
	// drain is how long Close still executes commands that are waiting.
	drain = 2 * time.Second

	pending = 8192             // commands waiting for a batch; beyond it the answer is 503 overloaded
	timeout = 10 * time.Second // one batch, from first statement to commit; and how long a command waits for a wallet that is locked elsewhere
)

// NewBatcher returns a Batcher in front of an Executor; Close closes it.
func NewBatcher(e *Executor, settings config.Wallets) *Batcher {
	timeout := cmp.Or(settings.Timeout, timeout)
	options := batch.Options{Size: 256, Linger: time.Millisecond, InFlight: 1, Pending: pending, Timeout: timeout, Drain: drain, Whole: postgres.IsTransient}
	b := &Batcher{shards: batch.NewShards(shards, options, e.Do), locked: lockedWallets{waiting: make(map[uuid.UUID]int)},
		timeout: timeout, rowWait: waitingRowWait}
	b.waiting = batch.NewShards(waitingShards, options, func(ctx context.Context, commands []Command) ([]job.Done, error) {
		return e.retry(ctx, commands, b.rowWait)
	})
	return b
}

// Do executes a command together with others. A recorded refusal is the problem of the job;
// any other refusal is in Err. While another transaction has a wallet of the command locked,
// the command is retried, until ctx or the timeout ends.
func (b *Batcher) Do(ctx context.Context, c Command) (job.Done, error) {
	by := c.Request.ID
	if wallets := c.Action.wallets(); len(wallets) > 0 {
		by = wallets[0]
	}
	until := time.Now().Add(b.timeout)
	if !b.locked.has(c) {
		if done, err := b.shards.Of(by).Do(ctx, c); err != nil || !errors.Is(done.Err, errBusy) {
			return done, err
		}
	}
	defer b.locked.track(c)()
	for {
		done, err := b.waiting.Of(by).Do(ctx, c)
		if err != nil || !errors.Is(done.Err, errBusy) || time.Now().After(until) {
			return done, err
		}
	}
}

// Close executes the commands that are waiting.
func (b *Batcher) Close() {
	b.shards.Close()
	b.waiting.Close()
}

// lockedWallets counts the commands that wait for wallets which another transaction has
// locked.
type lockedWallets struct {
	mu      sync.Mutex
	waiting map[uuid.UUID]int // commands
}

// has reports whether a command needs one of these wallets.
func (l *lockedWallets) has(c Command) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range c.Action.wallets() {
		if l.waiting[id] > 0 {
			return true
		}
	}
	return false
}

// track counts a command until done is called, for each of its wallets: it does not know
// which of them is locked.
func (l *lockedWallets) track(c Command) (done func()) {
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
		busy, err = lock(ctx, tx, ids, mode)
		return err
	})
	return busy, err
}
