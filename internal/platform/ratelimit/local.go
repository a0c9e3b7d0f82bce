package ratelimit

import (
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
)

// localOwners is how many owners of limits a process counts for by itself. Beyond it
// those that were not seen for longest have their whole burst again.
const localOwners = 50_000

// local holds requests against the limits as one process: the limits that no other process
// shares, and the shared ones while Redis is not asked or does not answer. So a flood that
// slows down the process or Redis does not open the door for itself.
type local struct {
	mu      sync.Mutex // of every bucket
	buckets *lru.Cache[string, *bucket]
	now     func() time.Time
}

// bucket is what this process knows about one owner of a limit.
type bucket struct {
	policy *policy
	full   time.Time // when the whole burst is there again
	owed   int       // requests that passed here, and that Redis has not been told
	asking int       // questions to Redis under way
}

func newLocal() *local {
	buckets, _ := lru.New[string, *bucket](localOwners) // fails only for a size of 0
	return &local{buckets: buckets, now: time.Now}
}

// of returns the bucket of a key. For a new one it throws away up to two that are stale. The
// caller holds mu.
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

// isStale tells whether a bucket says no more than none: its burst was whole again long ago, and
// so were the requests that it owes. Sooner they must not be forgotten: a user that asks many
// processes in turn, each seldom, would pass at all of them.
func (b *bucket) isStale(now time.Time) bool {
	return now.Sub(b.full) > time.Duration(b.policy.limit.Burst)*b.policy.interval
}

// after returns when the burst is whole again after one request more, and how long that
// request has to wait for its turn.
func (b *bucket) after(p *policy, now time.Time) (full time.Time, wait time.Duration) {
	full = b.full
	if full.Before(now) {
		full = now
	}
	full = full.Add(p.interval)
	return full, max(0, full.Sub(now)-time.Duration(p.limit.Burst)*p.interval)
}

// charge charges one request to what this process counts alone. A verdict that allows it
// says nothing about what is left, because other processes count too.
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

// chargeAhead charges one request before Redis is told, if the slack of this process allows
// it. If not, the caller has to tell Redis about owed requests, this one included, and then to
// settle.
func (l *local) chargeAhead(p *policy, key string) (verdict Verdict, owed int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	b := l.of(p, key, now)
	if b.isStale(now) {
		b.owed = 0
	}
	full, wait := b.after(p, now)
	if wait == 0 && b.asking == 0 && b.owed < p.slack {
		b.full = full
		b.owed++
		return p.pass(full.Sub(now)), 0
	}
	owed = 1 + b.owed
	b.owed = 0
	b.asking++
	return Verdict{}, owed
}

// settle ends a question to Redis: so many requests have passed and are still owed. The burst is
// whole again after reset, or later: a later answer may have come first.
func (l *local) settle(p *policy, key string, owed int, reset time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	b := l.of(p, key, now)
	b.asking = max(0, b.asking-1) // the bucket may be another one by now
	b.owed += owed
	if full := now.Add(reset); full.After(b.full) {
		b.full = full
	}
}
