package wallets

import (
	"context"
	"time"

	"triprize/internal/platform/batch"
	"triprize/internal/platform/config"
	"triprize/internal/platform/postgres"
	"triprize/internal/store/job"
)

// Batcher gathers commands that come one by one into batches.
type Batcher struct {
	lanes *batch.Lanes[Command, job.Done]
}

const (
	// lanes is how many batches are under way at once. The commands that take from
	// a wallet are always in the same lane, so a process never competes with itself
	// for it.
	lanes = 4
	// drain is how long commands whose clients were cut off are still carried out at
	// shutdown.
	drain = 2 * time.Second
)

// NewBatcher returns a Batcher in front of an Executor; Close closes it.
func NewBatcher(e *Executor, settings config.Wallets) *Batcher {
	return &Batcher{lanes: batch.NewLanes(lanes, batch.Options{Size: settings.BatchSize, Linger: settings.BatchLinger, InFlight: 1,
		Pending: settings.MaxPending, Timeout: settings.Timeout, Drain: drain, Whole: postgres.IsTransient}, e.Do)}
}

// Do carries out a command together with others. A refusal is in the job's
// problem, or in Err when it was not recorded.
func (b *Batcher) Do(ctx context.Context, c Command) (job.Done, error) {
	by := c.Request.ID
	if wallets := c.Action.wallets(); len(wallets) > 0 {
		by = wallets[0]
	}
	return b.lanes.Of(by).Do(ctx, c)
}

// Close finishes the commands at hand.
func (b *Batcher) Close() { b.lanes.Close() }
