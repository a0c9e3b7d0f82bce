// Package batch merges many calls into few: calls that arrive during a flush share the next one.
//
// A [Coalescer] does this. A single call does not wait for others, unless Options.MinInterval is set.
// [Shards] are several coalescers, chosen by key. [Queues] have a queue per key, and requeue a locked
// key without delaying others.
//
//	Do ─▶ pending (bounded) ─▶ flusher 1..n ─▶ flush([]T) ─▶ []R ─▶ Do returns
//
// A flush has a maximum size and a timeout; Close flushes the rest. A failed flush is retried in halves
// until only the bad item fails, unless the error concerns all items (Options.Whole).
package batch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"triprize/internal/domain/uuidv7"
)

// ErrFull means that too many callers already wait; nothing was done.
var ErrFull = errors.New("batch: too many callers are waiting")

// ErrClosed means that the coalescer is closed; nothing was done.
var ErrClosed = errors.New("batch: closed")

// Options bound a Coalescer.
type Options struct {
	Size         int              // most items in one flush
	Linger       time.Duration    // under load, how long a flush waits for more items
	MinInterval  time.Duration    // between the starts of two flushes, unless the second is full
	BusyInterval time.Duration    // the same under load: after a flush of several items
	InFlight     int              // concurrent flushes
	OrderTimeout time.Duration    // how long a flush waits for the one before it; 0: not at all
	Pending      int              // callers waiting for a flush; more get ErrFull
	Timeout      time.Duration    // of one flush
	Drain        time.Duration    // how long Close goes on flushing; 0: Timeout
	Whole        func(error) bool // whether an error concerns all items of a flush; nil: never
	Observe      func(items int, took time.Duration)
}

// Flush does the work of many callers at once. It returns one result per item, in order, or an error
// for all.
type Flush[T, R any] func(ctx context.Context, items []T) ([]R, error)

// Coalescer collects items and flushes them together.
type Coalescer[T, R any] struct {
	opts    Options
	flush   Flush[T, R]
	pending chan *call[T, R]
	closing sync.RWMutex // held for reading while sending to pending
	closed  bool
	order   chan struct{} // full while a flush gathers and runs, up to OrderTimeout; nil: flushes are not ordered
	last    atomic.Pointer[started]
	done    sync.WaitGroup  // the flushers
	alive   context.Context // ends when Close has waited for Drain
	end     context.CancelFunc
}

// started is a flush that has begun.
type started struct {
	at   time.Time
	busy bool // it has several items, so it is worth waiting for more
}

// New starts a Coalescer; Close stops it.
func New[T, R any](opts Options, flush Flush[T, R]) *Coalescer[T, R] {
	c := &Coalescer[T, R]{opts: opts, flush: flush, pending: make(chan *call[T, R], opts.Pending)}
	c.alive, c.end = context.WithCancel(context.Background()) //nolint:gosec // Close calls it
	if opts.OrderTimeout > 0 {
		c.order = make(chan struct{}, 1)
	}
	for range opts.InFlight {
		c.done.Go(c.run)
	}
	return c
}

// NewQuiet starts a Coalescer without results, whose errors concern all items of a flush.
func NewQuiet[T any](opts Options, flush func(ctx context.Context, items []T) error) *Coalescer[T, struct{}] {
	opts.Whole = func(error) bool { return true }
	return New(opts, func(ctx context.Context, items []T) ([]struct{}, error) {
		return make([]struct{}, len(items)), flush(ctx, items)
	})
}

// Do adds one item to a batch and waits for its result. If ctx ends meanwhile, the item may still be
// flushed and its outcome is unknown. If ctx has already ended, nothing is done.
func (c *Coalescer[T, R]) Do(ctx context.Context, item T) (R, error) {
	var none R
	if err := ctx.Err(); err != nil {
		return none, err
	}
	one := newCall[T, R](item)
	if err := c.submit(one); err != nil {
		return none, err
	}
	return one.wait(ctx)
}

// DoAll is Do for many items, each with its own coalescer and possibly in several flushes. results[i] and
// errs[i] belong to items[i].
func DoAll[T, R any](ctx context.Context, items []T, of func(T) *Coalescer[T, R]) (results []R, errs []error) {
	results, errs = make([]R, len(items)), make([]error, len(items))
	calls := make([]*call[T, R], len(items))
	for i, item := range items {
		calls[i] = newCall[T, R](item)
		if errs[i] = ctx.Err(); errs[i] == nil {
			errs[i] = of(item).submit(calls[i])
		}
	}
	for i, one := range calls {
		if errs[i] == nil {
			results[i], errs[i] = one.wait(ctx)
		}
	}
	return results, errs
}

// Submit adds one item and does not wait for its result.
func (c *Coalescer[T, R]) Submit(item T) error {
	return c.submit(newCall[T, R](item))
}

// Pending returns how many items wait for a flush.
func (c *Coalescer[T, R]) Pending() int { return len(c.pending) }

// Close rejects new items, flushes the pending ones and waits for all flushes. After Options.Drain it
// cancels the running flushes, and the pending items get ErrClosed.
func (c *Coalescer[T, R]) Close() {
	defer time.AfterFunc(cmp.Or(c.opts.Drain, c.opts.Timeout), c.end).Stop()
	defer c.end()
	c.closing.Lock()
	if !c.closed {
		c.closed = true
		close(c.pending)
	}
	c.closing.Unlock()
	c.done.Wait()
}

func (c *Coalescer[T, R]) submit(one *call[T, R]) error {
	c.closing.RLock()
	defer c.closing.RUnlock()
	if c.closed {
		return ErrClosed
	}
	select {
	case c.pending <- one:
		return nil
	default:
		return ErrFull
	}
}

// run collects and flushes items until pending is closed and empty.
func (c *Coalescer[T, R]) run() {
	for {
		unlock := c.lockOrder()
		first, open := <-c.pending
		if !open {
			unlock()
			return
		}
		calls := c.gather(first, c.linger())
		start := time.Now()
		c.last.Store(&started{start, len(calls) > 1})
		c.flushInOrder(calls, unlock)
		if c.opts.Observe != nil {
			c.opts.Observe(len(calls), time.Since(start))
		}
	}
}

func (c *Coalescer[T, R]) flushInOrder(calls []*call[T, R], unlock func()) {
	defer unlock()
	if c.order != nil {
		defer time.AfterFunc(c.opts.OrderTimeout, unlock).Stop()
	}
	flusher[T, R]{flush: c.flush, alive: c.alive, timeout: c.opts.Timeout, whole: c.opts.Whole}.flushCalls(calls)
}

// lockOrder waits until the flush before has ended; unlock admits the next one.
func (c *Coalescer[T, R]) lockOrder() (unlock func()) {
	if c.order == nil {
		return func() {}
	}
	c.order <- struct{}{}
	return sync.OnceFunc(func() { <-c.order })
}

// linger returns how long a flush waits for more items.
func (c *Coalescer[T, R]) linger() time.Duration {
	last := c.last.Load()
	switch {
	case last == nil:
		return 0
	case last.busy:
		return max(c.opts.Linger, max(c.opts.MinInterval, c.opts.BusyInterval)-time.Since(last.at))
	}
	return c.opts.MinInterval - time.Since(last.at)
}

func (c *Coalescer[T, R]) gather(first *call[T, R], linger time.Duration) []*call[T, R] {
	calls := append(make([]*call[T, R], 0, min(c.opts.Size, len(c.pending)+1)), first)
	var over <-chan time.Time
	if linger > 0 {
		timer := time.NewTimer(linger)
		defer timer.Stop()
		over = timer.C
	}
	for len(calls) < c.opts.Size {
		select {
		case one, open := <-c.pending:
			if !open {
				return calls
			}
			calls = append(calls, one)
			continue
		default:
		}
		if over == nil {
			return calls
		}
		select {
		case one, open := <-c.pending:
			if !open {
				return calls
			}
			calls = append(calls, one)
		case <-over:
			over = nil
		}
	}
	return calls
}

// call is an item and the caller that waits for it.
type call[T, R any] struct {
	item     T
	result   R
	err      error
	done     chan struct{}
	deadline time.Time // of retries in Queues
}

func newCall[T, R any](item T) *call[T, R] { return &call[T, R]{item: item, done: make(chan struct{})} }

func (c *call[T, R]) end(result R, err error) {
	c.result, c.err = result, err
	close(c.done)
}

// wait returns the result. If ctx ends first, the item may still be flushed.
func (c *call[T, R]) wait(ctx context.Context) (R, error) {
	select {
	case <-c.done:
		return c.result, c.err
	case <-ctx.Done():
		var none R
		return none, ctx.Err()
	}
}

// flusher flushes calls and gives each its result.
type flusher[T, R any] struct {
	flush   Flush[T, R]
	alive   context.Context // ends to cancel a running flush
	timeout time.Duration
	whole   func(error) bool
	requeue func(error) bool // whether the calls of a failed flush are flushed again; nil: never
}

// flushCalls flushes calls and returns those to requeue. After a failure it retries each half
// separately, unless the error concerns all items.
func (f flusher[T, R]) flushCalls(calls []*call[T, R]) (requeued []*call[T, R]) {
	items := make([]T, len(calls))
	for i, one := range calls {
		items[i] = one.item
	}
	results, err := f.try(items)
	if err == nil && len(results) != len(items) {
		err = fmt.Errorf("batch: %d results for %d items", len(results), len(items))
	}
	if err != nil && f.requeue != nil && f.alive.Err() == nil && f.requeue(err) {
		for _, one := range calls {
			one.err = err // the result if its deadline ends before another flush
		}
		return calls
	}
	if err != nil && len(calls) > 1 && f.alive.Err() == nil && (f.whole == nil || !f.whole(err)) {
		half := len(calls) / 2
		return append(f.flushCalls(calls[:half:half]), f.flushCalls(calls[half:])...)
	}
	if err != nil && f.alive.Err() != nil {
		err = fmt.Errorf("%w: %w", ErrClosed, err)
	}
	for i, one := range calls {
		var result R
		if err == nil {
			result = results[i]
		}
		one.end(result, err)
	}
	return nil
}

// try runs one flush with its timeout and returns a panic as an error.
func (f flusher[T, R]) try(items []T) (results []R, err error) {
	if err := f.alive.Err(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(f.alive, f.timeout)
	defer cancel()
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("batch: flush panicked: %v\n%s", p, debug.Stack())
		}
	}()
	return f.flush(ctx, items)
}

// Shards are several Coalescers. Items of one key always go to the same shard: with one flush at a time
// per shard, no two concurrent flushes have the same key.
type Shards[T, R any] struct{ shards []*Coalescer[T, R] }

// NewShards starts n shards with the same options and flush; Close stops them.
func NewShards[T, R any](n int, opts Options, flush Flush[T, R]) *Shards[T, R] {
	l := &Shards[T, R]{}
	for range n {
		l.shards = append(l.shards, New(opts, flush))
	}
	return l
}

// Of returns the shard of a key.
func (l *Shards[T, R]) Of(key uuid.UUID) *Coalescer[T, R] {
	return l.shards[uuidv7.Spread(key, len(l.shards))]
}

// Close closes all shards concurrently.
func (l *Shards[T, R]) Close() {
	var closing sync.WaitGroup
	for _, shard := range l.shards {
		closing.Go(shard.Close)
	}
	closing.Wait()
}
