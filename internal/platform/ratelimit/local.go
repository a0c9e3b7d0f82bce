package ratelimit

import (
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
)

// localOwners bounds the owners in a local. Beyond it the least recently used have their whole burst again.
const localOwners = 50_000

// local counts requests in this process: for limits that are not shared, and for shared ones while Redis is not
// used or does not answer. So a flood that slows down Redis is still limited.
type local struct {
	mu      sync.Mutex // of every bucket
	buckets *lru.Cache[string, *bucket]
	now     func() time.Time
}

// bucket is the state of one owner of a limit in this process.
type bucket struct {
	policy   *policy
	full     time.Time // when the whole burst is available again
	owed     int       // requests that were allowed here and not charged in Redis
	inFlight int       // running calls of Redis
}

func newLocal() *local {
	buckets, _ := lru.New[string, *bucket](localOwners) // fails only for a size of 0
	return &local{buckets: buckets, now: time.Now}
}

// of returns the bucket of a key. Before it adds one it removes up to two stale ones. The caller holds mu.
func (l *local) of(p *policy, key string, now time.Time) *bucket {
	b, ok := l.buckets.Get(key)
	if ok {
		return b
	}
	for range 2 {
		if _, oldest, ok := l.buckets.GetOldest(); ok && oldest.isStale(now) {
			l.buckets.RemoveOldest()
		}
	}
	b = &bucket{policy: p}
	l.buckets.Add(key, b)
	return b
}

// isStale reports whether a bucket can be removed: its burst has recovered long ago, also from the requests that
// it owes. If they were dropped earlier, a user who spreads requests over many processes would exceed the limit.
func (b *bucket) isStale(now time.Time) bool {
	return now.Sub(b.full) > time.Duration(b.policy.limit.Burst)*b.policy.interval
}

// after returns when the burst has recovered after one more request, and how long that request must wait.
func (b *bucket) after(p *policy, now time.Time) (full time.Time, wait time.Duration) {
	full = b.full
	if full.Before(now) {
		full = now
	}
	full = full.Add(p.interval)
	return full, max(0, full.Sub(now)-time.Duration(p.limit.Burst)*p.interval)
}

// charge charges one request to this process' own count. A verdict that allows it has no remaining number,
// because other processes count too.
func (l *local) charge(p *policy, key string) Verdict {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	b := l.of(p, key, now)
	full, wait := b.after(p, now)
	if wait > 0 {
		return p.refusal(b.full.Sub(now), wait)
	}
	b.full = full
	return Verdict{Allowed: true}
}

// chargeAhead charges one request without Redis, if the slack of this process allows it. Otherwise the caller must
// charge owed requests in Redis, including this one, and then call settle.
func (l *local) chargeAhead(p *policy, key string) (verdict Verdict, owed int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	b := l.of(p, key, now)
	if b.isStale(now) {
		b.owed = 0
	}
	full, wait := b.after(p, now)
	if wait == 0 && b.inFlight == 0 && b.owed < p.slack {
		b.full = full
		b.owed++
		return p.pass(full.Sub(now)), 0
	}
	owed = 1 + b.owed
	b.owed = 0
	b.inFlight++
	return Verdict{}, owed
}

// settle ends a call of Redis: owed requests were allowed and are still uncharged. The burst has recovered after
// reset, or later, because answers may arrive out of order.
func (l *local) settle(p *policy, key string, owed int, reset time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	b := l.of(p, key, now)
	b.inFlight = max(0, b.inFlight-1) // the bucket may be a new one
	b.owed += owed
	if full := now.Add(reset); full.After(b.full) {
		b.full = full
	}
}
