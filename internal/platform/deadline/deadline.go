// Package deadline makes contexts whose timer starts when somebody waits for them. Most
// steps of a request end before anybody does, and a timer for each is a cost.
package deadline

import (
	"context"
	"sync"
	"time"
)

// WithTimeout is like [context.WithTimeout]. Its timer starts with the first call of Done,
// for what is left of the timeout.
func WithTimeout(parent context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	at := time.Now().Add(timeout)
	if earlier, ok := parent.Deadline(); ok && earlier.Before(at) {
		at = earlier
	}
	d := &deadline{parent: parent, at: at}
	return d, d.cancel
}

type deadline struct {
	parent context.Context //nolint:containedctx // a context has its parent
	at     time.Time

	mu    sync.Mutex
	timed context.Context //nolint:containedctx // nil until somebody waits
	end   context.CancelFunc
	err   error // of one that ended before; it stays
}

func (d *deadline) Deadline() (time.Time, bool) { return d.at, true }

func (d *deadline) Done() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timed == nil {
		d.timed, d.end = context.WithDeadline(d.parent, d.at)
		if d.err != nil {
			d.end()
		}
	}
	return d.timed.Done()
}

func (d *deadline) Err() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.ended()
}

// ended returns the error of the context, which stays the same from then on.
func (d *deadline) ended() error {
	switch {
	case d.err != nil:
	case d.timed != nil:
		return d.timed.Err()
	case d.parent.Err() != nil:
		d.err = d.parent.Err()
	case !time.Now().Before(d.at):
		d.err = context.DeadlineExceeded
	}
	return d.err
}

// Value asks the timed context, if there is one: children find what they end with in it.
func (d *deadline) Value(key any) any {
	d.mu.Lock()
	timed := d.timed
	d.mu.Unlock()
	if timed != nil {
		return timed.Value(key)
	}
	return d.parent.Value(key)
}

func (d *deadline) cancel() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.end != nil {
		d.end()
	} else if d.ended() == nil {
		d.err = context.Canceled
	}
}
