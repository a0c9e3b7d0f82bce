package batch

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
)

// QueueOptions bound Queues.
type QueueOptions struct {
	Size     int           // most items in one flush
	Linger   time.Duration // under load, how long a flush waits for more items of its key
	InFlight int           // flushes under way at once, without those of keys that were put off
	Retrying int           // flushes under way at once of keys that were put off
	Backoff  time.Duration // how long a key that was put off waits before it is flushed again
	Pending  int           // callers without a result; more get ErrFull
	Timeout  time.Duration // of one flush; and how long an item is put off until it fails
	Drain    time.Duration // how long Close goes on flushing
	Whole    func(error) bool
	PutOff   func(error) bool // whether an error means that nothing was done, and that the key is to be flushed again later
}

// FlushInfo describes one flush of Queues.
type FlushInfo[K comparable] struct {
	Key     K
	Retry   bool // the flush before it was put off
	Waiting int  // keys that wait for a flush
}

// Queues collects items by key. The items of a key form one queue, which is flushed
// by one flush at a time. A key that is put off occupies nothing during its backoff,
// and then has only the Retrying flushes: however many keys are put off, and however
// often, the others have the InFlight flushes to themselves.
type Queues[K comparable, T, R any] struct {
	opts            QueueOptions
	flush           func(ctx context.Context, f FlushInfo[K], items []T) ([]R, error)
	firsts, retries *semaphore.Weighted // of flushes: first come, first served

	mu      sync.Mutex
	queues  map[K]*queue[T, R] // those with items or a flush; each has a goroutine
	waiting int                // keys that wait for one of firsts
	pending int                // items without a result
	closed  bool
	running sync.WaitGroup
	alive   context.Context
	end     context.CancelFunc
}

// queue is the items of a key.
type queue[T, R any] struct{ calls []*call[T, R] }

// NewQueues returns Queues; Close closes them.
func NewQueues[K comparable, T, R any](opts QueueOptions, flush func(ctx context.Context, f FlushInfo[K], items []T) ([]R, error)) *Queues[K, T, R] {
	q := &Queues[K, T, R]{opts: opts, flush: flush, queues: make(map[K]*queue[T, R]),
		firsts: semaphore.NewWeighted(int64(opts.InFlight)), retries: semaphore.NewWeighted(int64(opts.Retrying))}
	q.alive, q.end = context.WithCancel(context.Background()) //nolint:gosec // Close calls it
	return q
}

// Do adds one item to the queue of a key and waits for its result. When ctx ends
// meanwhile, the item may still be flushed: the caller does not know its outcome.
func (q *Queues[K, T, R]) Do(ctx context.Context, key K, item T) (R, error) {
	var none R
	if err := ctx.Err(); err != nil {
		return none, err
	}
	mine := &call[T, R]{item: item, done: make(chan struct{}), until: time.Now().Add(q.opts.Timeout)}
	if err := q.submit(key, mine); err != nil {
		return none, err
	}
	return mine.wait(ctx)
}

// Pending returns how many items of a key wait for a flush.
func (q *Queues[K, T, R]) Pending(key K) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	if its := q.queues[key]; its != nil {
		return len(its.calls)
	}
	return 0
}

// Close refuses new items and returns when all others have their results. When that
// takes longer than Drain, it cuts off what is under way: the rest gets ErrClosed.
func (q *Queues[K, T, R]) Close() {
	defer q.end()
	defer time.AfterFunc(q.opts.Drain, q.end).Stop()
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	q.running.Wait()
}

func (q *Queues[K, T, R]) submit(key K, one *call[T, R]) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.closed:
		return ErrClosed
	case q.pending >= q.opts.Pending:
		return ErrFull
	}
	its := q.queues[key]
	if its != nil && len(its.calls) >= (q.opts.Pending+1)/2 { // one queue leaves room for others
		return ErrFull
	}
	if its == nil {
		its = &queue[T, R]{}
		q.queues[key] = its
		q.running.Go(func() { q.serve(key, its) })
	}
	q.pending++
	its.calls = append(its.calls, one)
	return nil
}

// serve flushes the items of a key until there are none.
func (q *Queues[K, T, R]) serve(key K, its *queue[T, R]) {
	info := FlushInfo[K]{Key: key}
	crowded := false // the last flush had several items: lingering pays
	for {
		release := q.enter(&info)
		if crowded && !info.Retry {
			time.Sleep(q.opts.Linger)
		}
		q.mu.Lock()
		n := min(len(its.calls), q.opts.Size)
		calls := its.calls[:n:n]
		its.calls = its.calls[n:]
		q.mu.Unlock()
		putOff := flusher[T, R]{
			flush: func(ctx context.Context, items []T) ([]R, error) { return q.flush(ctx, info, items) },
			alive: q.alive, timeout: q.opts.Timeout, whole: q.opts.Whole, putOff: q.opts.PutOff,
		}.flushCalls(calls)
		release()
		crowded, info.Retry = len(calls) > 1, len(putOff) > 0
		if q.finish(key, its, len(calls), putOff) {
			return
		}
	}
}

// enter waits for a flush of a key: when Close cuts off it may begin, and ends at once.
func (q *Queues[K, T, R]) enter(info *FlushInfo[K]) (release func()) {
	permits, waiting := q.firsts, 1
	if info.Retry {
		permits, waiting = q.retries, 0
		select {
		case <-time.After(q.opts.Backoff):
		case <-q.alive.Done():
		}
	}
	q.mu.Lock()
	q.waiting += waiting
	q.mu.Unlock()
	err := permits.Acquire(q.alive, 1)
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting -= waiting
	info.Waiting = q.waiting
	if err != nil {
		return func() {}
	}
	return func() { permits.Release(1) }
}

// finish takes the items of a key back that were put off, but those whose time is over before the next flush,
// or all when Close cuts off. It reports whether none is left.
func (q *Queues[K, T, R]) finish(key K, its *queue[T, R], flushed int, putOff []*call[T, R]) (over bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.pending -= flushed - len(putOff)
	all := append(putOff, its.calls...)
	its.calls = nil
	next := time.Now().Add(q.opts.Backoff)
	for _, one := range all {
		var none R
		switch {
		case q.alive.Err() != nil:
			one.end(none, ErrClosed)
		case len(putOff) > 0 && !one.until.After(next):
			one.end(none, putOff[0].err)
		default:
			its.calls = append(its.calls, one)
			continue
		}
		q.pending--
	}
	if len(its.calls) == 0 {
		delete(q.queues, key)
	}
	return len(its.calls) == 0
}
