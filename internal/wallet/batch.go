package wallet

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/google/uuid"
	lru "github.com/hashicorp/golang-lru/v2"

	"triprize/internal/job"
	"triprize/internal/platform/batch"
	"triprize/internal/platform/config"
	"triprize/internal/platform/postgres"
)

// Batcher gathers single commands into batches. A batch waits for locked wallets, a short time. Commands
// that have found theirs locked, and those on it that come soon afterwards, get batches of their own, which
// wait for nothing and are repeated after a pause: they delay only each other, and lock no other wallet meanwhile.
type Batcher struct {
	shards   *batch.Shards[Command, job.Accepted]
	retrying *batch.Shards[Command, job.Accepted]
	locked   *lru.Cache[uuid.UUID, time.Time] // wallets of commands that have found one locked, and when
	timeout  time.Duration
	executor *Executor
}

const (
	// shards is the number of concurrent batches. A command runs in the shard of its first
	// wallet, so two shards of a process compete only for wallets that receive transfers.
	shards = 4
	// retryingShards is the number of batches of commands whose wallets were found locked.
	retryingShards = 2
	// retryEvery is the time between two such batches, unless the second is full.
	retryEvery = 50 * time.Millisecond
	// longestPause is the longest time that a command waits between two tries. The first pause is retryEvery.
	longestPause = 4 * retryEvery
	// lockedFor is how long a wallet counts as locked after it was found so: over a pause and the try after it.
	lockedFor = 2 * longestPause
	// maxLocked is how many of them a process knows; without its entry a wallet is waited for once more.
	maxLocked = 4096
	// drain is how long Close still executes commands that are waiting.
	drain = 2 * time.Second

	pending = 8192             // commands waiting for a batch; beyond it the answer is 503 overloaded
	timeout = 10 * time.Second // one batch, from first statement to commit; and how long a command waits for a wallet that is locked elsewhere
)

// NewBatcher returns a Batcher in front of an Executor; Close closes it.
func NewBatcher(e *Executor, settings config.Wallets) *Batcher {
	timeout := cmp.Or(settings.Timeout, timeout)
	locked, _ := lru.New[uuid.UUID, time.Time](maxLocked) // fails only for a size of 0
	options := batch.Options{Size: 256, Linger: time.Millisecond, InFlight: 1, Pending: pending, Timeout: timeout, Drain: drain, Whole: postgres.IsTransient}
	b := &Batcher{shards: batch.NewShards(shards, options, e.Do), locked: locked, timeout: timeout, executor: e}
	options.MinInterval = retryEvery
	b.retrying = batch.NewShards(retryingShards, options, func(ctx context.Context, commands []Command) ([]job.Accepted, error) {
		return e.try(ctx, e.retry, commands, postgres.SkipLocked)
	})
	return b
}

// Do executes a command together with others, or in the transaction that ctx is part of. A recorded refusal is the problem of the job;
// any other refusal is in Err. While another transaction has a wallet of the command locked,
// the command is retried, until ctx or the timeout ends.
func (b *Batcher) Do(ctx context.Context, c Command) (job.Accepted, error) {
	wallets, by := c.Action.wallets(), c.Request.ID
	if len(wallets) > 0 {
		by = wallets[0]
	}
	to := b.shards
	if slices.ContainsFunc(wallets, func(id uuid.UUID) bool {
		at, found := b.locked.Get(id)
		return found && time.Since(at) < lockedFor
	}) {
		to = b.retrying
	}
	for until, pause := time.Now().Add(b.timeout), retryEvery; ; to, pause = b.retrying, min(2*pause, longestPause) {
		done, err := b.do(ctx, to.Of(by), c)
		if err != nil || !errors.Is(done.Err, ErrBusy) || time.Now().After(until) {
			return done, err
		}
		for _, id := range wallets { // which of them is locked it does not know
			b.locked.Add(id, time.Now())
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return job.Accepted{}, ctx.Err()
		}
	}
}

// do executes a command in a batch, or alone as a part of the transaction of ctx.
func (b *Batcher) do(ctx context.Context, in *batch.Coalescer[Command, job.Accepted], c Command) (job.Accepted, error) {
	if postgres.Outer(ctx) == nil {
		return in.Do(ctx, c)
	}
	done, err := b.executor.Do(ctx, []Command{c})
	if err != nil {
		return job.Accepted{}, err
	}
	return done[0], nil
}

// Close executes the commands that are waiting.
func (b *Batcher) Close() {
	b.shards.Close()
	b.retrying.Close()
}
