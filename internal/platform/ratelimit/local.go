package ratelimit

import (
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/time/rate"
)

// localOwners is how many owners of limits a process counts for by itself. Beyond it
// those that were not seen for longest have their whole burst again.
const localOwners = 50_000

// local holds requests against the limits as one process, while Redis does not
// answer: an owner then has the limit at each process. So a flood that slows down
// the process or Redis does not open the door for itself.
type local struct {
	buckets *lru.Cache[string, *rate.Limiter]
}

func newLocal() local {
	buckets, _ := lru.New[string, *rate.Limiter](localOwners) // fails only for a size of 0
	return local{buckets}
}

// charge charges one request. A verdict that allows it says nothing about what is
// left, because other processes count too.
func (l local) charge(p *policy, key string) Verdict {
	bucket, ok := l.buckets.Get(key)
	if !ok {
		bucket = rate.NewLimiter(rate.Limit(p.limit.Rate), p.limit.Burst)
		if other, found, _ := l.buckets.PeekOrAdd(key, bucket); found {
			bucket = other
		}
	}
	now := time.Now()
	reservation := bucket.ReserveN(now, 1)
	wait := reservation.DelayFrom(now)
	if wait == 0 {
		return Verdict{Allowed: true}
	}
	reservation.CancelAt(now)
	return Verdict{Policy: p.name, Limit: p.limit.Burst, Reset: wait, RetryAfter: wait, header: p.header}
}
