package wallets

import (
	"context"
	"sync"
	"time"

	"github.com/google/uuid"

	"triprize/internal/platform/batch"
	"triprize/internal/platform/config"
	"triprize/internal/platform/postgres"
	"triprize/internal/store/job"
)

// Desk gathers commands that come one by one into crowds.
type Desk struct {
	lanes []*batch.Coalescer[Command, job.Done]
}

// lanes is how many crowds are under way at once. The commands that take from a
// wallet are always in the same one, so a process never fights itself for it.
const lanes = 4

// drain is how long commands whose clients were cut off are still carried out at
// shutdown.
const drain = 2 * time.Second

// NewDesk returns a Desk in front of a Teller; Close closes it.
func NewDesk(t *Teller, settings config.Wallets) *Desk {
	d := &Desk{}
	for range lanes {
		d.lanes = append(d.lanes, batch.New(batch.Options{Size: settings.BatchSize, Linger: settings.BatchLinger, InFlight: 1,
			Pending: settings.MaxPending, Timeout: settings.Timeout, Drain: drain, Whole: postgres.IsSurroundings}, t.Do))
	}
	return d
}

// Do carries out a command together with others. A refusal is in the job's
// problem, or in Err when it was not recorded.
func (d *Desk) Do(ctx context.Context, c Command) (job.Done, error) {
	by := c.Request.ID
	if wallets := c.Deed.wallets(); len(wallets) > 0 {
		by = wallets[0]
	}
	return d.lane(by).Do(ctx, c)
}

func (d *Desk) lane(id uuid.UUID) *batch.Coalescer[Command, job.Done] {
	return d.lanes[int(id[15])%len(d.lanes)] // the last byte of a UUIDv7 is random
}

// Close finishes the commands at hand.
func (d *Desk) Close() {
	var closing sync.WaitGroup
	for _, l := range d.lanes {
		closing.Go(l.Close)
	}
	closing.Wait()
}
