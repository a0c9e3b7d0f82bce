package batch

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"
)

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
