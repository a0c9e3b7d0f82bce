package lock

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/go-redsync/redsync/v4"
)

// Held is a set of locks that are held. They are kept alive until Release; most
// holders are done long before the first extension, which is only a timer until then.
type Held struct {
	locker  *Locker
	ttl     time.Duration
	mutexes []*redsync.Mutex // of one value; none: nothing is locked
	lost    chan struct{}
	release sync.Once

	mu       sync.Mutex
	timer    *time.Timer        // the next extension
	cancel   context.CancelFunc // of the extension under way
	running  sync.WaitGroup     // the extension under way
	released bool
}

// Locks tells whether anything is locked: not so where locks are disabled.
func (h *Held) Locks() bool { return h != nil && len(h.mutexes) > 0 }

// Lost is closed when one of the locks ran out or was taken away; then none is
// kept alive any more. It stays open when they are released.
func (h *Held) Lost() <-chan struct{} {
	if h == nil {
		return nil
	}
	return h.lost
}

// Release gives the locks back, as far as they are still its own, and waits for
// whatever keeps them alive. It needs no ctx that is alive, and takes no longer
// than one server may for an answer; what cannot be given back expires. A second
// one does nothing.
func (h *Held) Release(ctx context.Context) {
	if !h.Locks() {
		return
	}
	h.release.Do(func() {
		h.mu.Lock()
		h.released = true
		h.timer.Stop()
		if h.cancel != nil {
			h.cancel()
		}
		h.mu.Unlock()
		h.running.Wait()
		h.giveBack(ctx)
	})
}

// giveBack deletes the locks where they have our value.
func (h *Held) giveBack(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), h.locker.patience())
	defer cancel()
	var all sync.WaitGroup
	for _, mutex := range h.mutexes {
		all.Go(func() { _, _ = mutex.UnlockContext(ctx) }) // what is not deleted expires
	}
	all.Wait()
}

// until is when the first of the locks runs out.
func (h *Held) until() time.Time {
	first := h.mutexes[0].Until()
	for _, mutex := range h.mutexes[1:] {
		if until := mutex.Until(); until.Before(first) {
			first = until
		}
	}
	return first
}

// pause is how long to wait for the next extension: a third of what is left, so
// that there are some more tries when one fails, but no shorter and shorter ones.
func (h *Held) pause() time.Duration {
	left := time.Until(h.until())
	return min(left, max(left/3, h.ttl/20))
}

// keep begins to keep the locks alive.
func (h *Held) keep() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.timer = time.AfterFunc(h.pause(), h.extend)
}

// extend extends the locks, and sees to the next time.
func (h *Held) extend() {
	h.mu.Lock()
	if h.released {
		h.mu.Unlock()
		return
	}
	h.running.Add(1)
	defer h.running.Done()
	ctx, cancel := context.WithDeadline(context.Background(), earlier(h.until(), time.Now().Add(h.locker.patience())))
	defer cancel()
	h.cancel = cancel
	h.mu.Unlock()
	kept := h.extendAll(ctx)
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.released: // perhaps in the middle, with whatever result
	case kept:
		h.timer.Reset(h.pause())
	default:
		h.locker.metrics.lost.Inc()
		close(h.lost)
	}
}

// extendAll extends each of the locks and tells whether they can be kept: none
// has run out, and none is gone from so many servers that no majority is left. A
// lock that ran out is not extended: its time may be somebody else's by now.
func (h *Held) extendAll(ctx context.Context) bool {
	if !time.Now().Before(h.until()) {
		return false
	}
	gone := make([]bool, len(h.mutexes))
	var all sync.WaitGroup
	for i, mutex := range h.mutexes {
		all.Go(func() {
			if extended, err := mutex.ExtendContext(ctx); !extended {
				gone[i] = countVotes(err).gone(len(h.locker.clients), h.locker.quorum())
			}
		})
	}
	all.Wait()
	return !slices.Contains(gone, true) && time.Now().Before(h.until())
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
