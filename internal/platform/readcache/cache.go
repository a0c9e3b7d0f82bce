package readcache

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2/simplelru"
)

// Settings are the bounds of a Cache.
type Settings struct {
	MaxAge     time.Duration // a copy is not given out when its read ended longer ago
	Pause      time.Duration // between two reads of a key that has a copy; shorter than MaxAge
	Timeout    time.Duration // of one read
	MaxEntries int
	MaxBytes   int // of all values together
}

// Copy is a value and the time before it was read.
type Copy[V any] struct {
	Value  V
	ReadAt time.Time

	endedAt time.Time // what takes long to read is read less often
}

// Cache keeps copies of values. It is safe for concurrent use.
type Cache[K comparable, V any] struct {
	settings Settings
	read     func(context.Context, K) (V, error)

	mu     sync.Mutex
	copies *Weighed[K, Copy[V]]
	reads  map[K]*reading[V] // those under way
}

// reading is a read that is about to begin or under way.
type reading[V any] struct {
	hasBegun  bool // a later caller may need a newer read
	forgotten bool // what it reads is not kept
	done      chan struct{}

	copy Copy[V] // once done is closed
	err  error
}

// New returns a Cache of what read returns; size is how many bytes a value needs.
func New[K comparable, V any](settings Settings, read func(context.Context, K) (V, error), size func(V) int) *Cache[K, V] {
	return &Cache[K, V]{settings: settings, read: read, reads: make(map[K]*reading[V]),
		copies: NewWeighed[K](settings.MaxEntries, settings.MaxBytes, func(c Copy[V]) int { return size(c.Value) })}
}

// Get returns a copy that is not too old and that isEnough accepts, or the result of a
// read that began after the call. isEnough must not block; nil accepts everything. A copy
// is older by as long as its read took.
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

// run reads once, not too soon after the read before.
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

// attempt reads. A panic is the error of those who wait for the read, as it would be if
// one of them had made it.
func (c *Cache[K, V]) attempt(ctx context.Context, key K) (value V, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("readcache: a read panicked: %v\n%s", p, debug.Stack())
		}
	}()
	return c.read(ctx, key)
}

// Forget drops the copy of a key. Later callers get a later read.
func (c *Cache[K, V]) Forget(key K) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.copies.Remove(key)
	if r := c.reads[key]; r != nil && r.hasBegun {
		r.forgotten = true
		delete(c.reads, key)
	}
}

// Clear drops every copy, as Forget does.
func (c *Cache[K, V]) Clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.copies.Purge()
	for key, r := range c.reads {
		if r.hasBegun {
			r.forgotten = true
			delete(c.reads, key)
		}
	}
}

// Weighed keeps values until there are too many, or they need too many bytes together: then the
// least recently used go. It is not safe for concurrent use.
type Weighed[K comparable, V any] struct {
	entries  *lru.LRU[K, V]
	size     func(V) int
	maxBytes int
	bytes    int
}

// NewWeighed returns a Weighed with its bounds; size is how many bytes a value needs.
func NewWeighed[K comparable, V any](maxEntries, maxBytes int, size func(V) int) *Weighed[K, V] {
	w := &Weighed[K, V]{size: size, maxBytes: maxBytes}
	w.entries, _ = lru.NewLRU(maxEntries, func(_ K, gone V) { w.bytes -= size(gone) }) // fails only for a size of 0
	return w
}

// Get returns the value of a key, which counts as used.
func (w *Weighed[K, V]) Get(key K) (V, bool) { return w.entries.Get(key) }

// Put keeps a value, in place of the one of its key. One that needs more than all may is not kept.
func (w *Weighed[K, V]) Put(key K, value V) {
	w.entries.Remove(key)
	w.entries.Add(key, value)
	w.bytes += w.size(value)
	for w.bytes > w.maxBytes && w.entries.Len() > 0 {
		w.entries.RemoveOldest()
	}
}

// Remove drops the value of a key.
func (w *Weighed[K, V]) Remove(key K) { w.entries.Remove(key) }

// Purge drops all.
func (w *Weighed[K, V]) Purge() { w.entries.Purge() }
