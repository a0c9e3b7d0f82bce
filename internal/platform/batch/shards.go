package batch

import (
	"sync"

	"triprize/internal/domain/uuidv7"

	"github.com/google/uuid"
)

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
