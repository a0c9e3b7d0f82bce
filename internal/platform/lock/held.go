package lock

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-redsync/redsync/v4"
)

// Held is a set of locks that are held. They are extended until Release. Most
// holders are done before the first extension, so it is only a timer at first.
type Held struct {
	locker  *Locker
	ttl     time.Duration
	mutexes []*redsync.Mutex // all with the same value; empty: nothing is locked
	lost    chan struct{}
	release sync.Once

	mu       sync.Mutex
	timer    *time.Timer        // the next extension
	cancel   context.CancelFunc // of the extension under way
	running  sync.WaitGroup     // the extension under way
	released bool
}

// Locks tells whether anything is locked; false where locks are disabled.
func (h *Held) Locks() bool { return h != nil && len(h.mutexes) > 0 }

// Lost is closed when one of the locks expired or was lost; then none is extended
// any more. It stays open when they are released.
func (h *Held) Lost() <-chan struct{} {
	if h == nil {
		return nil
	}
	return h.lost
}

// Release deletes the locks that are still its own, and waits for an extension
// under way. It works with a ctx that has ended, and takes no longer than one
// server may for an answer; a key that cannot be deleted expires. A second call does
// nothing.
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
		h.locker.logger.DebugContext(ctx, "locks released", "locks", h)
	})
}

// LogValue names the locks, and only where somebody reads it.
func (h *Held) LogValue() slog.Value {
	names := make([]string, len(h.mutexes))
	for i, mutex := range h.mutexes {
		names[i] = mutex.Name()
	}
	return slog.StringValue(strings.Join(names, " "))
}

// giveBack deletes the locks that have our value.
func (h *Held) giveBack(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), h.locker.patience())
	defer cancel()
	var all sync.WaitGroup
	for _, mutex := range h.mutexes {
		all.Go(func() { _, _ = mutex.UnlockContext(ctx) }) // a key that is not deleted expires
	}
	all.Wait()
}

// until is when the first of the locks expires.
func (h *Held) until() time.Time {
	first := h.mutexes[0].Until()
	for _, mutex := range h.mutexes[1:] {
		if until := mutex.Until(); until.Before(first) {
			first = until
		}
	}
	return first
}

// pause is how long to wait for the next extension: a third of the remaining time,
// so that there are more tries when one fails, but at least a twentieth of the ttl.
func (h *Held) pause() time.Duration {
	left := time.Until(h.until())
	return min(left, max(left/3, h.ttl/20))
}

// keep sets the timer of the first extension.
func (h *Held) keep() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.timer = time.AfterFunc(h.pause(), h.extend)
}

// extend extends the locks and sets the timer of the next extension.
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
	case h.released: // perhaps during the extension: its result does not count
	case kept:
		h.timer.Reset(h.pause())
	default:
		h.locker.metrics.lost.Inc()
		h.locker.logger.DebugContext(ctx, "locks lost", "locks", h)
		close(h.lost)
	}
}

// extendAll extends each of the locks and tells whether they can be kept: none
// has expired, and each may still be on a majority of the servers. An expired lock
// is not extended: another holder may have it by now.
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
