package batch

import (
	"sync"

	"triprize/internal/domain/uuidv7"

	"github.com/google/uuid"
)

// Lanes are several Coalescers. Items of one key are always in the same lane, so
// with one flush in flight per lane, two flushes never have the same key.
type Lanes[T, R any] struct{ lanes []*Coalescer[T, R] }

// NewLanes starts n lanes with the same options and flush; Close stops them.
func NewLanes[T, R any](n int, opts Options, flush Flush[T, R]) *Lanes[T, R] {
	l := &Lanes[T, R]{}
	for range n {
		l.lanes = append(l.lanes, New(opts, flush))
	}
	return l
}

// Of returns the lane of a key, always the same one.
func (l *Lanes[T, R]) Of(key uuid.UUID) *Coalescer[T, R] {
	return l.lanes[uuidv7.Spread(key, len(l.lanes))]
}

// Close closes all lanes at the same time.
func (l *Lanes[T, R]) Close() {
	var closing sync.WaitGroup
	for _, lane := range l.lanes {
		closing.Go(lane.Close)
	}
	closing.Wait()
}
