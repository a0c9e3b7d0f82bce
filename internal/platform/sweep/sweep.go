// Package sweep runs periodic work: what a crash, a lost task or a deadline has left behind.
//
// Each topic has the sweeps of its tables. A run is bounded, and may be in several processes at
// once: what a sweep changes is guarded in SQL. No promise depends on the time of a run, only on
// its being at some time.
package sweep

import (
	"context"
	"errors"
	"time"
)

// Sweep is one kind of periodic work. An interruptible one does nothing that has to be
// finished: it can be stopped at any moment.
type Sweep struct {
	Name          string
	Every         time.Duration
	Interruptible bool
	Counts        []string // the names of what it counts, which are in each report
	Run           func(ctx context.Context, run Run) error
}

// Counts is how much a run of a sweep has found and done, by name.
type Counts map[string]int

// Run is one run of a sweep: what it counts, and how much it may do.
type Run struct {
	Counts     Counts
	BatchSize  int // most rows that one statement changes
	MaxBatches int // most statements of a kind; the next run goes on. old-records goes on until it is done
}

// Batches calls one until it has done less than a full batch, at most MaxBatches times.
func (r Run) Batches(one func(limit int) (done int, err error)) error {
	for range r.MaxBatches {
		done, err := one(r.BatchSize)
		if err != nil {
			return err
		}
		if done < r.BatchSize {
			return nil
		}
	}
	return nil
}

// ErrMore ends a run that had more to do than time.
var ErrMore = errors.New("sweep: the time of the run is over, and there is more")

// Join makes one sweep of the parts that topics have in it. A part that fails does not keep the
// others from running, and one without Run only has its counts.
func Join(name string, every time.Duration, parts ...Sweep) Sweep {
	joined := Sweep{Name: name, Every: every}
	for _, part := range parts {
		joined.Counts = append(joined.Counts, part.Counts...)
	}
	joined.Run = func(ctx context.Context, run Run) error {
		var failed []error
		for _, part := range parts {
			if part.Run != nil {
				failed = append(failed, part.Run(ctx, run))
			}
		}
		return errors.Join(failed...)
	}
	return joined
}
