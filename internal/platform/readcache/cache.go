// Package readcache lets many callers share reads.
//
// A [Cache] holds copies for a short time. Callers without a valid copy wait for the same read. A caller
// decides which copy is recent enough ([Cache.Get]); otherwise it gets a read that began after its call.
// Such reads of one key are at least Settings.Pause apart.
//
// Errors are not cached. The cache is bounded by entries and by bytes; the least recently used entry is
// evicted first. [Weighed] has only these limits, for values without a maximum age.
package readcache

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2/simplelru"
)

// Settings are the limits of a Cache.
type Settings struct {
	MaxAge     time.Duration // of a copy, since the end of its read
	Pause      time.Duration // between two reads of a key with a copy; shorter than MaxAge
	Timeout    time.Duration // of one read
	MaxEntries int
	MaxBytes   int // of all values together
}

// Copy is a value and the time before it was read.
type Copy[V any] struct {
	Value  V
	ReadAt time.Time

	endedAt time.Time // end of the read: slow reads are made less often
}

// Cache caches copies of values. It is safe for concurrent use.
type Cache[K comparable, V any] struct {
	settings Settings
	read     func(context.Context, K) (V, error)

	mu     sync.Mutex
	copies *Weighed[K, Copy[V]]
	reads  map[K]*reading[V] // running
}

// reading is a pending or running read.
type reading[V any] struct {
	hasBegun  bool // a later caller may need a newer read
	forgotten bool // its result is not cached
	done      chan struct{}

	copy Copy[V] // once done is closed
	err  error
}

// New returns a Cache of the values that read returns; size returns the bytes of a value.
func New[K comparable, V any](settings Settings, read func(context.Context, K) (V, error), size func(V) int) *Cache[K, V] {
	return &Cache[K, V]{settings: settings, read: read, reads: make(map[K]*reading[V]),
		copies: NewWeighed[K](settings.MaxEntries, settings.MaxBytes, func(c Copy[V]) int { return size(c.Value) })}
}

// Get returns a copy that is at most MaxAge old and that isEnough accepts, or the result of a read that began
// after the call. isEnough must not block; nil accepts every copy. The age of the value also includes the time of
// its read.
func (c *Cache[K, V]) Get(ctx context.Context, key K, isEnough func(Copy[V]) bool) (Copy[V], error) {
	if isEnough == nil {
		isEnough = func(Copy[V]) bool { return true }
	}
	for {
		c.mu.Lock()
		known, isKnown := c.copies.Get(key)
		if isKnown && time.Since(known.endedAt) < c.settings.MaxAge && isEnough(known) {
			c.mu.Unlock()
			return known, nil
		}
		r := c.reads[key]
		if r == nil {
			r = &reading[V]{done: make(chan struct{})}
			c.reads[key] = r
			go c.run(context.WithoutCancel(ctx), key, r, known.endedAt) // others wait for it too
		}
		isAfter := !r.hasBegun
		c.mu.Unlock()
		select {
		case <-r.done:
		case <-ctx.Done():
			return Copy[V]{}, ctx.Err()
		}
		if r.err != nil || isAfter || isEnough(r.copy) {
			return r.copy, r.err
		}
	}
}

// run reads once, at least Pause after the read before.
func (c *Cache[K, V]) run(ctx context.Context, key K, r *reading[V], before time.Time) {
	time.Sleep(time.Until(before.Add(c.settings.Pause)))
	c.mu.Lock()
	r.hasBegun = true
	r.copy.ReadAt = time.Now()
	c.mu.Unlock()
	limited, cancel := context.WithTimeout(ctx, c.settings.Timeout)
	defer cancel()
	r.copy.Value, r.err = c.attempt(limited, key)
	r.copy.endedAt = time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	defer close(r.done)
	if r.forgotten {
		return
	}
	delete(c.reads, key)
	if r.err == nil {
		c.copies.Put(key, r.copy)
	}
}

// attempt reads. A panic becomes the error of all waiting callers.
func (c *Cache[K, V]) attempt(ctx context.Context, key K) (value V, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("readcache: a read panicked: %v\n%s", p, debug.Stack())
		}
	}()
	return c.read(ctx, key)
}

// Last returns the copy of a key, however old, and whether there is one.
func (c *Cache[K, V]) Last(key K) (value V, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	known, ok := c.copies.Peek(key)
	return known.Value, ok
}

// Forget removes the copy of a key. Later callers get a later read.
func (c *Cache[K, V]) Forget(key K) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.copies.Remove(key)
	c.forgetRead(key)
}

func (c *Cache[K, V]) forgetRead(key K) {
	if r := c.reads[key]; r != nil && r.hasBegun {
		r.forgotten = true
		delete(c.reads, key)
	}
}

// Clear is Forget for all keys.
func (c *Cache[K, V]) Clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.copies.Purge()
	for key := range c.reads {
		c.forgetRead(key)
	}
}

// Weighed is an LRU cache that is bounded by entries and by bytes. It is not safe for concurrent use.
type Weighed[K comparable, V any] struct {
	*lru.LRU[K, V] // but for Put

	size     func(V) int
	maxBytes int
	bytes    int
}

// NewWeighed returns a Weighed; size returns the bytes of a value.
func NewWeighed[K comparable, V any](maxEntries, maxBytes int, size func(V) int) *Weighed[K, V] {
	w := &Weighed[K, V]{size: size, maxBytes: maxBytes}
	w.LRU, _ = lru.NewLRU(maxEntries, func(_ K, gone V) { w.bytes -= size(gone) }) // fails only for a size of 0
	return w
}

// Put adds or replaces the value of a key. A value larger than maxBytes is not cached.
func (w *Weighed[K, V]) Put(key K, value V) {
	w.Remove(key)
	w.Add(key, value)
	w.bytes += w.size(value)
	for w.bytes > w.maxBytes && w.Len() > 0 {
		w.RemoveOldest()
	}
}
