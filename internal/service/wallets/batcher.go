package wallets

import (
	"context"
	"time"

	"triprize/internal/platform/batch"
	"triprize/internal/platform/config"
	"triprize/internal/platform/postgres"
	"triprize/internal/store/job"
)

// Batcher gathers single commands into batches.
type Batcher struct {
	lanes *batch.Lanes[Command, job.Done]
}

const (
	// lanes is the number of concurrent batches. A command runs in the lane of its first
	// wallet, so two lanes of a process compete only for wallets that receive transfers.
	lanes = 4
	// drain is how long Close still carries out commands that are waiting.
	drain = 2 * time.Second
)

// NewBatcher returns a Batcher in front of an Executor; Close closes it.
func NewBatcher(e *Executor, settings config.Wallets) *Batcher {
	return &Batcher{lanes: batch.NewLanes(lanes, batch.Options{Size: settings.BatchSize, Linger: settings.BatchLinger, InFlight: 1,
		Pending: settings.MaxPending, Timeout: settings.Timeout, Drain: drain, Whole: postgres.IsTransient}, e.Do)}
}

// Do carries out a command together with others. A recorded refusal is the problem of
// the job; any other refusal is in Err.
func (b *Batcher) Do(ctx context.Context, c Command) (job.Done, error) {
	by := c.Request.ID
	if wallets := c.Action.wallets(); len(wallets) > 0 {
		by = wallets[0]
	}
	return b.lanes.Of(by).Do(ctx, c)
}

// Close finishes the commands that are waiting.
func (b *Batcher) Close() { b.lanes.Close() }
