package apikey

import (
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
)

// recent keeps what was looked up for a time. It has no goroutine, unlike the expirable cache
// of the same library, which wakes a hundred times in that time: an idle api would spend most
// of its processor time on it. What is over stays until it is replaced or evicted.
type recent[V any] struct {
	entries *lru.Cache[string, dated[V]]
	ttl     time.Duration
}

type dated[V any] struct {
	value V
	until time.Time
}

func newRecent[V any](ttl time.Duration) *recent[V] {
	entries, _ := lru.New[string, dated[V]](cached) // fails only for a size of 0
	return &recent[V]{entries, ttl}
}

func (r *recent[V]) add(prefix string, value V) {
	r.entries.Add(prefix, dated[V]{value, time.Now().Add(r.ttl)})
}

func (r *recent[V]) get(prefix string) (value V, ok bool) {
	d, ok := r.entries.Get(prefix)
	return d.value, ok && time.Now().Before(d.until)
}
