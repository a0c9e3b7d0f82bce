package delivery

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"triprize/internal/platform/queue"
)

// The times of an outage of Postgres, from its last answer to a probe.
const (
	probeEvery   = time.Second            // while Postgres answers
	probeAgain   = 200 * time.Millisecond // while it does not
	probeTimeout = 2 * time.Second
	pauseAfter   = 2 * time.Second // this worker takes no further task. A restart of Postgres is shorter.
	releaseAfter = 5 * time.Second // it releases the tasks that it holds
)

// releasedFor is the delay of a released task: the next poll of any worker enqueues it, within a second.
const releasedFor = time.Millisecond

var errReleased = errors.New("this worker does not reach Postgres")

// Outages lets a worker that does not reach Postgres leave its tasks to others: it stops taking tasks, and later
// releases those in hand. A batch may go on then, for example in a half-open connection, and another worker may
// have its jobs: Postgres decides which of them writes. Redelivered tasks and calls to the provider go back when their
// batch or call ends; a redelivered task whose attempt was counted stays until Postgres answers and the count is
// reverted. What is leased in Postgres follows when the lease ends.
type Outages struct {
	Probe  func(ctx context.Context) error // set before Run
	logger *slog.Logger
	held   atomic.Int64
	now    atomic.Pointer[outage]
}

// outage is a past, present or future outage: released ends when tasks in hand are released.
type outage struct {
	released context.Context //nolint:containedctx // handlers derive nothing else from it
	release  context.CancelFunc
}

// NewOutages returns an Outages.
func NewOutages(logger *slog.Logger) *Outages {
	o := &Outages{logger: logger}
	o.reset()
	return o
}

func (o *Outages) reset() {
	released, release := context.WithCancel(context.Background())
	o.now.Store(&outage{released, release})
}

// Handler returns a handler whose context ends when tasks are released. Its task then goes back to the queue; the
// delivery does not count as failed.
func (o *Outages) Handler(handle queue.Handler) queue.Handler {
	return func(ctx context.Context, task queue.Task, redelivered bool) error {
		o.held.Add(1)
		defer o.held.Add(-1)
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		released := o.now.Load().released
		defer context.AfterFunc(released, cancel)() //nolint:contextcheck // it ends the handler
		err := handle(ctx, task, redelivered)
		if released.Err() != nil { // also without an error: the handlers of leased items return none
			return queue.SnoozeFor(errReleased, releasedFor)
		}
		return err
	}
}

// Run probes Postgres until ctx ends. pause stops the dequeue.
func (o *Outages) Run(ctx context.Context, pause func() (resume func())) {
	var resume func() // nil: not paused
	answered, wait := time.Now(), probeEvery
	for {
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return
		}
		began := time.Now()
		bounded, cancel := context.WithTimeout(ctx, probeTimeout)
		err := o.Probe(bounded)
		cancel()
		silent := time.Since(answered)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			answered, wait = time.Now(), probeEvery
			if resume != nil {
				if o.now.Load().released.Err() != nil { // otherwise handlers from before it go on, and end in the next outage
					o.reset()
				}
				resume()
				resume = nil
				o.logger.Info("postgres answers again: taking tasks", "after", silent.Round(time.Millisecond).String())
			}
			continue
		case resume == nil && silent >= pauseAfter:
			resume = pause()
			o.logger.Warn("postgres does not answer: taking no tasks", "error", err)
		}
		if outage := o.now.Load(); silent >= releaseAfter && outage.released.Err() == nil {
			o.logger.Warn("postgres does not answer: releasing tasks for other workers", "tasks", o.held.Load())
			outage.release()
		}
		wait = max(probeAgain-time.Since(began), 0)
	}
}
