package batch

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/google/uuid"

	"triprize/internal/domain/uuidv7"
)

// ErrFull means that too many callers are waiting already; nothing was done.
var ErrFull = errors.New("batch: too many callers are waiting")

// ErrClosed means that the coalescer takes no more items; nothing was done.
var ErrClosed = errors.New("batch: closed")

// Options bound a Coalescer.
type Options struct {
	Size     int              // most items in one flush
	Linger   time.Duration    // under load, how long a flush waits for more items
	Every    time.Duration    // a flush that is not full begins so long after the one before it, at the soonest
	InFlight int              // flushes under way at once
	Late     time.Duration    // a flush waits for the one before it so long; 0: not at all
	Pending  int              // callers waiting for a flush; more get ErrFull
	Timeout  time.Duration    // of one flush
	Drain    time.Duration    // how long Close goes on flushing; 0: Timeout
	Whole    func(error) bool // whether an error concerns the whole flush, not one item; nil: none does
	Observe  func(items int, took time.Duration)
}

// Flush does the work of many callers at once. It returns one result for each
// item, in order, or an error for all.
type Flush[T, R any] func(ctx context.Context, items []T) ([]R, error)

// Coalescer collects items and flushes them together.
type Coalescer[T, R any] struct {
	opts    Options
	flush   Flush[T, R]
	pending chan *call[T, R]
	closing sync.RWMutex // held for reading while sending to pending
	closed  bool
	turn    chan struct{}   // full while a flush gathers and runs, for Late at most; nil: flushes take no turns
	done    sync.WaitGroup  // the flushers
	alive   context.Context // ends when Close has waited long enough
	end     context.CancelFunc
}

// New starts a Coalescer; Close stops it.
func New[T, R any](opts Options, flush Flush[T, R]) *Coalescer[T, R] {
	c := &Coalescer[T, R]{opts: opts, flush: flush, pending: make(chan *call[T, R], opts.Pending)}
	c.alive, c.end = context.WithCancel(context.Background()) //nolint:gosec // Close calls it
	if opts.Late > 0 {
		c.turn = make(chan struct{}, 1)
	}
	for range opts.InFlight {
		c.done.Go(c.run)
	}
	return c
}

// NewQuiet starts a Coalescer whose callers learn only of an error, which concerns the whole flush.
func NewQuiet[T any](opts Options, flush func(ctx context.Context, items []T) error) *Coalescer[T, struct{}] {
	opts.Whole = func(error) bool { return true }
	return New(opts, func(ctx context.Context, items []T) ([]struct{}, error) {
		return make([]struct{}, len(items)), flush(ctx, items)
	})
}

// Do adds one item to a batch and waits for its result. When ctx ends meanwhile,
// the item may still be flushed: the caller does not know its outcome. When ctx
// has ended already, nothing is done.
func (c *Coalescer[T, R]) Do(ctx context.Context, item T) (R, error) {
	var none R
	if err := ctx.Err(); err != nil {
		return none, err
	}
	mine := &call[T, R]{item: item, done: make(chan struct{})}
	if err := c.submit(mine); err != nil {
		return none, err
	}
	return mine.wait(ctx)
}

// DoAll adds each of many items to its coalescer, and waits for all: they may end up in several flushes.
// results[i] and errs[i] belong to items[i]. ctx is as with Do.
func DoAll[T, R any](ctx context.Context, items []T, of func(T) *Coalescer[T, R]) (results []R, errs []error) {
	results, errs = make([]R, len(items)), make([]error, len(items))
	calls := make([]*call[T, R], len(items))
	for i, item := range items {
		calls[i] = &call[T, R]{item: item, done: make(chan struct{})}
		err := ctx.Err()
		if err == nil {
			err = of(item).submit(calls[i])
		}
		if err != nil {
			calls[i].err = err
			close(calls[i].done)
		}
	}
	for i, one := range calls {
		results[i], errs[i] = one.wait(ctx)
	}
	return results, errs
}

// Submit adds one item and does not wait for its result.
func (c *Coalescer[T, R]) Submit(item T) error {
	return c.submit(&call[T, R]{item: item, done: make(chan struct{})})
}

// Pending returns how many items wait for a flush.
func (c *Coalescer[T, R]) Pending() int { return len(c.pending) }

// Close refuses new items, flushes those that wait, and returns when all is done.
// When that takes longer than Options.Drain it cancels the flush under way, and
// the waiting items get ErrClosed.
func (c *Coalescer[T, R]) Close() {
	drain := c.opts.Drain
	if drain == 0 {
		drain = c.opts.Timeout
	}
	defer time.AfterFunc(drain, c.end).Stop()
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
	busy := false // the last flush had several items: there is load, so lingering pays
	var start time.Time
	for {
		pass := c.takeTurn()
		first, open := <-c.pending
		if !open {
			pass()
			return
		}
		calls := c.gather(first, c.patience(busy, start))
		busy = len(calls) > 1
		start = time.Now()
		c.flushInTurn(calls, pass)
		if c.opts.Observe != nil {
			c.opts.Observe(len(calls), time.Since(start))
		}
	}
}

func (c *Coalescer[T, R]) flushInTurn(calls []*call[T, R], pass func()) {
	defer pass()
	if c.turn != nil {
		defer time.AfterFunc(c.opts.Late, pass).Stop()
	}
	c.flusher().flushCalls(calls)
}

// takeTurn waits for the turn of a flush; pass ends it.
func (c *Coalescer[T, R]) takeTurn() (pass func()) {
	if c.turn == nil {
		return func() {}
	}
	c.turn <- struct{}{}
	return sync.OnceFunc(func() { <-c.turn })
}

func (c *Coalescer[T, R]) flusher() flusher[T, R] {
	return flusher[T, R]{flush: c.flush, alive: c.alive, timeout: c.opts.Timeout, whole: c.opts.Whole}
}

// patience is how long a flush waits for more items, when the last one began at last.
func (c *Coalescer[T, R]) patience(busy bool, last time.Time) time.Duration {
	var linger time.Duration
	if busy {
		linger = c.opts.Linger
	}
	if !last.IsZero() {
		linger = max(linger, c.opts.Every-time.Since(last))
	}
	return linger
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
	item   T
	result R
	err    error
	done   chan struct{}
	until  time.Time // how long a Queues tries it
}

func (c *call[T, R]) end(result R, err error) {
	c.result, c.err = result, err
	close(c.done)
}

// wait returns the result. When ctx ends before it is there, the item may still be
// flushed.
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
	alive   context.Context // ends when the flush under way is to be cut off
	timeout time.Duration
	whole   func(error) bool
	putOff  func(error) bool // whether the calls of a flush are to be flushed again; nil: never
}

// flushCalls flushes calls and returns those that are put off. When the flush fails
// it tries each half by itself, unless the error concerns all items.
func (f flusher[T, R]) flushCalls(calls []*call[T, R]) (putOff []*call[T, R]) {
	items := make([]T, len(calls))
	for i, one := range calls {
		items[i] = one.item
	}
	results, err := f.try(items)
	if err == nil && len(results) != len(items) {
		err = fmt.Errorf("batch: %d results for %d items", len(results), len(items))
	}
	if err != nil && f.putOff != nil && f.alive.Err() == nil && f.putOff(err) {
		for _, one := range calls {
			one.err = err // the answer if there is no time left for another flush
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

// try runs one flush under its timeout and turns a panic into an error.
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

// Shards are several Coalescers. Items of one key are always in the same shard, so
// with one flush in flush per shard, two flushes never have the same key.
type Shards[T, R any] struct{ shards []*Coalescer[T, R] }

// NewShards starts n shards with the same options and flush; Close stops them.
func NewShards[T, R any](n int, opts Options, flush Flush[T, R]) *Shards[T, R] {
	l := &Shards[T, R]{}
	for range n {
		l.shards = append(l.shards, New(opts, flush))
	}
	return l
}

// Of returns the shard of a key, always the same one.
func (l *Shards[T, R]) Of(key uuid.UUID) *Coalescer[T, R] {
	return l.shards[uuidv7.Spread(key, len(l.shards))]
}

// Close closes all shards at the same time.
func (l *Shards[T, R]) Close() {
	var closing sync.WaitGroup
	for _, shard := range l.shards {
		closing.Go(shard.Close)
	}
	closing.Wait()
}
