package batch

import (
	"context"
	"sync"
	"time"
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
	opts  QueueOptions
	flush func(ctx context.Context, f FlushInfo[K], items []T) ([]R, error)

	mu       sync.Mutex
	queues   map[K]*queue[K, T, R] // those with items or a flush
	ready    []*queue[K, T, R]     // with items, in the order of their turns
	retries  []*queue[K, T, R]     // the same, of keys that were put off, after their backoff
	flushing int
	retrying int
	pending  int // items without a result
	closed   bool
	idle     *sync.Cond // pending or the flushes may have become 0
	alive    context.Context
	end      context.CancelFunc
}

// queue is the items of a key. It is in ready, in retries, or held.
type queue[K comparable, T, R any] struct {
	key     K
	calls   []*call[T, R]
	putOff  bool // its last flush was put off
	crowded bool // its last flush had several items: lingering pays
	held    bool // a flush is under way, or its backoff
}

// NewQueues returns Queues; Close closes them.
func NewQueues[K comparable, T, R any](opts QueueOptions, flush func(ctx context.Context, f FlushInfo[K], items []T) ([]R, error)) *Queues[K, T, R] {
	q := &Queues[K, T, R]{opts: opts, flush: flush, queues: make(map[K]*queue[K, T, R])}
	q.idle = sync.NewCond(&q.mu)
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
	cut := time.AfterFunc(q.opts.Drain, q.cutOff)
	defer cut.Stop()
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	for q.pending > 0 || q.flushing+q.retrying > 0 {
		q.idle.Wait()
	}
}

// cutOff ends the flushes under way and gives up what waits for one.
func (q *Queues[K, T, R]) cutOff() {
	q.end()
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, its := range q.queues {
		q.giveUp(its, time.Time{}, ErrClosed)
	}
	q.ready, q.retries = nil, nil
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
		its = &queue[K, T, R]{key: key}
		q.queues[key] = its
	}
	q.pending++
	its.calls = append(its.calls, one)
	if !its.held && len(its.calls) == 1 {
		q.ready = append(q.ready, its)
	}
	q.start()
	return nil
}

// start starts as many flushes as there are turns for. It is called with the lock.
func (q *Queues[K, T, R]) start() {
	for q.flushing < q.opts.InFlight && len(q.ready) > 0 {
		its := q.ready[0]
		q.ready = q.ready[1:]
		q.flushing++
		q.launch(its, &q.flushing)
	}
	for q.retrying < q.opts.Retrying && len(q.retries) > 0 {
		its := q.retries[0]
		q.retries = q.retries[1:]
		q.retrying++
		q.launch(its, &q.retrying)
	}
}

func (q *Queues[K, T, R]) launch(its *queue[K, T, R], permit *int) {
	its.held = true
	info := FlushInfo[K]{Key: its.key, Retry: its.putOff, Waiting: len(q.ready)}
	go func() {
		if its.crowded && !info.Retry && q.opts.Linger > 0 {
			time.Sleep(q.opts.Linger)
		}
		q.mu.Lock()
		n := min(len(its.calls), q.opts.Size)
		calls := its.calls[:n:n]
		its.calls = its.calls[n:]
		q.mu.Unlock()
		putOff := q.run(info, calls)
		q.mu.Lock()
		defer q.mu.Unlock()
		*permit--
		q.pending -= len(calls) - len(putOff)
		q.finish(its, calls, putOff)
		q.start()
		q.idle.Broadcast()
	}()
}

func (q *Queues[K, T, R]) run(info FlushInfo[K], calls []*call[T, R]) (putOff []*call[T, R]) {
	if len(calls) == 0 { // Close has given them up
		return nil
	}
	return flusher[T, R]{
		flush: func(ctx context.Context, items []T) ([]R, error) { return q.flush(ctx, info, items) },
		alive: q.alive, timeout: q.opts.Timeout, whole: q.opts.Whole, putOff: q.opts.PutOff,
	}.flushCalls(calls)
}

// finish decides what comes next for a queue after its flush. It is called with the lock.
func (q *Queues[K, T, R]) finish(its *queue[K, T, R], calls, putOff []*call[T, R]) {
	its.calls = append(putOff, its.calls...)
	its.crowded, its.putOff = len(calls) > 1, len(putOff) > 0
	switch next := time.Now().Add(q.opts.Backoff); {
	case q.alive.Err() != nil:
		q.giveUp(its, time.Time{}, ErrClosed)
	case its.putOff:
		q.giveUp(its, next, putOff[0].err)
	}
	switch {
	case len(its.calls) == 0:
		delete(q.queues, its.key)
	case its.putOff:
		time.AfterFunc(q.opts.Backoff, func() { q.endBackoff(its) })
	default:
		its.held = false
		q.ready = append(q.ready, its)
	}
}

// endBackoff gives a queue that was put off its next turn.
func (q *Queues[K, T, R]) endBackoff(its *queue[K, T, R]) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(its.calls) == 0 { // Close has given them up
		delete(q.queues, its.key)
		return
	}
	q.retries = append(q.retries, its)
	q.start()
}

// giveUp ends the calls that wait with err: those whose time is over at a moment, or
// with the zero time all. It is called with the lock.
func (q *Queues[K, T, R]) giveUp(its *queue[K, T, R], at time.Time, err error) {
	left := make([]*call[T, R], 0, len(its.calls))
	for _, one := range its.calls {
		if !at.IsZero() && one.until.After(at) {
			left = append(left, one)
			continue
		}
		var none R
		one.end(none, err)
		q.pending--
	}
	its.calls = left
	q.idle.Broadcast()
}
