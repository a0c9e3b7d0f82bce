package holds

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"triprize/internal/domain/fault"
	"triprize/internal/domain/triangle"
	"triprize/internal/platform/batch"
	"triprize/internal/platform/config"
	"triprize/internal/platform/postgres"
	"triprize/internal/store/hold"
	"triprize/internal/store/job"
)

// Ask is a request for a hold: of chosen positions, or of a number of random free ones.
type Ask struct {
	Job       job.Request // with its campaign and user
	Positions []triangle.Position
	Layer     int // 0: anywhere in the triangle
	Quantity  int
	TTL       time.Duration
}

// size is how many positions are asked for.
func (a Ask) size() int { return max(a.Quantity, len(a.Positions)) }

// Locker is where those who want the same positions queue up. Acquire returns
// an error when a place cannot be had; nobody's work depends on it.
type Locker interface {
	Acquire(ctx context.Context, names ...string) (release func(), err error)
}

// Desk takes requests for holds.
type Desk struct {
	db       *pgxpool.Pool
	settings config.Holds
	locker   Locker
	metrics  *hold.Metrics
	answer   func(hold.Hold) any
	taken    *memory
	keys     *batch.Coalescer[Ask, glance] // of who is turned away
	looks    *batch.Coalescer[Ask, glance]
	lanes    []*batch.Coalescer[Ask, job.Done]
}

const (
	lanes = 4 // transactions at once; a campaign is always in the same lane
	looks = 2 // reads at once

	// drain is how long requests whose clients were cut off are still served at shutdown.
	drain = 2 * time.Second

	// turning is how long those of a crowd who are turned away wait for each other,
	// so that Postgres is asked for their keys together: they come back from the
	// lock one by one.
	turning = 20 * time.Millisecond
)

// NewDesk returns a Desk; Close closes it. answer makes the body that a hold is
// answered with. Without a locker (nil) nobody queues, and nothing is remembered.
func NewDesk(db *pgxpool.Pool, settings config.Holds, locker Locker, metrics *hold.Metrics, answer func(hold.Hold) any) *Desk {
	d := &Desk{db: db, settings: settings, locker: locker, metrics: metrics, answer: answer, taken: newMemory()}
	options := batch.Options{Size: settings.BatchSize, Linger: settings.BatchLinger, InFlight: looks,
		Pending: settings.MaxPending, Timeout: settings.Timeout, Drain: drain, Whole: postgres.IsSurroundings}
	d.looks = batch.New(options, d.look)
	options.InFlight = 1
	for range lanes {
		d.lanes = append(d.lanes, batch.New(options, d.flush))
	}
	options.Linger = max(options.Linger, turning)
	d.keys = batch.New(options, d.lookUp)
	return d
}

// Close finishes the holds at hand.
func (d *Desk) Close() {
	d.keys.Close()
	d.looks.Close()
	var closing sync.WaitGroup
	for _, l := range d.lanes {
		closing.Go(l.Close)
	}
	closing.Wait()
}

// Hold makes a hold, once per idempotency key. A refusal is in the job's problem,
// or in Err when it was not recorded.
func (d *Desk) Hold(ctx context.Context, ask Ask) (job.Done, error) {
	if d.locker != nil {
		if turned, err := d.turnAway(ctx, ask); err != nil || turned != nil {
			return value(turned), err
		}
	}
	seen, err := d.looks.Do(ctx, ask)
	switch {
	case err != nil:
		return job.Done{}, err
	case seen.known:
		return job.Done{Accepted: seen.earlier}, nil
	case seen.refusal != nil:
		return job.Done{Err: seen.refusal}, nil
	}
	if d.locker != nil && len(ask.Positions) > 0 {
		release, turned, err := d.queueUp(ctx, ask)
		if err != nil || turned != nil {
			return value(turned), err
		}
		defer release()
	}
	lane := d.lanes[int(ask.Job.CampaignID[15])%len(d.lanes)] // the last byte of a UUIDv7 is random
	return lane.Do(ctx, ask)
}

func value(done *job.Done) job.Done {
	if done == nil {
		return job.Done{}
	}
	return *done
}

// queueUp waits for the locks of an ask's positions, unless they are known to be
// taken: then turned is the answer.
func (d *Desk) queueUp(ctx context.Context, ask Ask) (release func(), turned *job.Done, err error) {
	if turned, err = d.turnAway(ctx, ask); err != nil || turned != nil {
		return nil, turned, err
	}
	names := make([]string, len(ask.Positions))
	for i, p := range ask.Positions {
		names[i] = fmt.Sprintf("position:%s:%d/%d", ask.Job.CampaignID, p.Layer, p.Column)
	}
	slices.Sort(names) // sets that overlap are asked for in one order, so that nobody waits in a circle
	release, err = d.locker.Acquire(ctx, names...)
	if err != nil {
		release = func() {} // Postgres decides without us
	}
	if ctx.Err() != nil {
		release()
		return nil, nil, ctx.Err()
	}
	if len(d.taken.among(ask)) > 0 {
		release() // who is next need not wait for a look at our key
		turned, err = d.turnAway(ctx, ask)
		return func() {}, turned, err
	}
	return release, nil, nil
}

// turnAway answers an ask whose positions were found taken a moment ago. It may
// have been by an earlier request with the same key: that is looked up again.
func (d *Desk) turnAway(ctx context.Context, ask Ask) (*job.Done, error) {
	gone := d.taken.among(ask)
	if len(gone) == 0 {
		return nil, nil //nolint:nilnil // not turned away
	}
	earlier, err := d.keys.Do(ctx, ask)
	switch {
	case err != nil:
		return nil, err
	case earlier.known:
		return &job.Done{Accepted: earlier.earlier}, nil
	}
	return &job.Done{Err: fault.Taken(gone...)}, nil
}

// Released counts a hold that was given back, and lets its positions be asked for
// again at once.
func (d *Desk) Released(h hold.Hold) {
	d.metrics.Count(hold.EventReleased, 1)
	for _, p := range h.Positions {
		d.taken.forget(place{h.CampaignID, p.Position})
	}
}

// ErrMoved means that a statement did not touch the rows it meant: somebody
// changes positions, counters or holds without the campaign's lock.
var ErrMoved = errors.New("holding: rows moved under the campaign's lock")
