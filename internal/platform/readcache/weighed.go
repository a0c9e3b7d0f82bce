package readcache

import lru "github.com/hashicorp/golang-lru/v2/simplelru"

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
