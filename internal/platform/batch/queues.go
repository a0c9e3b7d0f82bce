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
	InFlight int           // concurrent flushes, except retries
	Retrying int           // concurrent retries
	Backoff  time.Duration // between a requeue and the retry of the key
	Pending  int           // callers without a result; more get ErrFull
	Timeout  time.Duration // of one flush, and of an item with all its retries
	Drain    time.Duration // how long Close goes on flushing
	Whole    func(error) bool
	Requeue  func(error) bool // whether an error means that nothing was done and the flush is retried later
}

// FlushInfo describes one flush of Queues.
type FlushInfo[K comparable] struct {
	Key     K
	Retry   bool // the flush before it was requeued
	Waiting int  // keys waiting for a flush
}

// Queues collects items by key. The items of a key form one queue, which has one flush at a time. A
// requeued key occupies no slot during its backoff, and is retried in one of the Retrying slots: however
// many keys are requeued, the others have all InFlight slots.
type Queues[K comparable, T, R any] struct {
	opts            QueueOptions
	flush           func(ctx context.Context, f FlushInfo[K], items []T) ([]R, error)
	firsts, retries *semaphore.Weighted // slots for flushes, in order of arrival

	mu      sync.Mutex
	queues  map[K]*queue[T, R] // of keys with items or a flush; each has a goroutine
	waiting int                // keys that wait for one of firsts
	pending int                // items without a result
	closed  bool
	running sync.WaitGroup
	alive   context.Context
	end     context.CancelFunc
}

// queue has the items of a key.
type queue[T, R any] struct{ calls []*call[T, R] }

// NewQueues returns Queues; Close closes them.
func NewQueues[K comparable, T, R any](opts QueueOptions, flush func(ctx context.Context, f FlushInfo[K], items []T) ([]R, error)) *Queues[K, T, R] {
	q := &Queues[K, T, R]{opts: opts, flush: flush, queues: make(map[K]*queue[T, R]),
		firsts: semaphore.NewWeighted(int64(opts.InFlight)), retries: semaphore.NewWeighted(int64(opts.Retrying))}
	q.alive, q.end = context.WithCancel(context.Background()) //nolint:gosec // Close calls it
	return q
}

// Do adds one item to the queue of a key and waits for its result. If ctx ends meanwhile, the item may
// still be flushed and its outcome is unknown.
func (q *Queues[K, T, R]) Do(ctx context.Context, key K, item T) (R, error) {
	var none R
	if err := ctx.Err(); err != nil {
		return none, err
	}
	one := newCall[T, R](item)
	one.deadline = time.Now().Add(q.opts.Timeout)
	if err := q.submit(key, one); err != nil {
		return none, err
	}
	return one.wait(ctx)
}

// Pending returns how many items of a key wait for a flush.
func (q *Queues[K, T, R]) Pending(key K) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	if queue := q.queues[key]; queue != nil {
		return len(queue.calls)
	}
	return 0
}

// Close rejects new items and waits until all others have their results. After Drain it cancels the
// running flushes, and the remaining items get ErrClosed.
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
	items := q.queues[key]
	if items != nil && len(items.calls) >= (q.opts.Pending+1)/2 { // no queue may take all of Pending
		return ErrFull
	}
	if items == nil {
		items = &queue[T, R]{}
		q.queues[key] = items
		q.running.Go(func() { q.serve(key, items) })
	}
	q.pending++
	items.calls = append(items.calls, one)
	return nil
}

// serve flushes the items of a key until there are none.
func (q *Queues[K, T, R]) serve(key K, items *queue[T, R]) {
	info := FlushInfo[K]{Key: key}
	busy := false // the last flush had several items, so it is worth waiting for more
	for {
		release := q.acquire(&info)
		if busy && !info.Retry {
			time.Sleep(q.opts.Linger)
		}
		q.mu.Lock()
		n := min(len(items.calls), q.opts.Size)
		calls := items.calls[:n:n]
		items.calls = items.calls[n:]
		q.mu.Unlock()
		requeued := flusher[T, R]{
			flush: func(ctx context.Context, items []T) ([]R, error) { return q.flush(ctx, info, items) },
			alive: q.alive, timeout: q.opts.Timeout, whole: q.opts.Whole, requeue: q.opts.Requeue,
		}.flushCalls(calls)
		release()
		busy, info.Retry = len(calls) > 1, len(requeued) > 0
		if q.finish(key, items, len(calls), requeued) {
			return
		}
	}
}

// acquire waits for a slot for a flush of a key. After Close has canceled flushes it returns without
// one, and the flush fails at once.
func (q *Queues[K, T, R]) acquire(info *FlushInfo[K]) (release func()) {
	slots, waiting := q.firsts, 1
	if info.Retry {
		slots, waiting = q.retries, 0
		select {
		case <-time.After(q.opts.Backoff):
		case <-q.alive.Done():
		}
	}
	q.mu.Lock()
	q.waiting += waiting
	q.mu.Unlock()
	err := slots.Acquire(q.alive, 1)
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting -= waiting
	info.Waiting = q.waiting
	if err != nil {
		return func() {}
	}
	return func() { slots.Release(1) }
}

// finish requeues items of a key. Those whose deadline is before the next flush fail, and after Close has
// canceled flushes all do. It reports whether the queue is empty.
func (q *Queues[K, T, R]) finish(key K, items *queue[T, R], flushed int, requeued []*call[T, R]) (isEmpty bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.pending -= flushed - len(requeued)
	all := append(requeued, items.calls...)
	items.calls = nil
	next := time.Now().Add(q.opts.Backoff)
	for _, one := range all {
		var none R
		switch {
		case q.alive.Err() != nil:
			one.end(none, ErrClosed)
		case len(requeued) > 0 && !one.deadline.After(next):
			one.end(none, requeued[0].err)
		default:
			items.calls = append(items.calls, one)
			continue
		}
		q.pending--
	}
	if len(items.calls) == 0 {
		delete(q.queues, key)
	}
	return len(items.calls) == 0
}
