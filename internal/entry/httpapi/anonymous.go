package httpapi

import (
	"context"
	"time"

	"golang.org/x/sync/semaphore"

	"triprize/internal/domain/fault"
	"triprize/internal/platform/callerlimit"
)

// Bounds of requests without a credential in a process. However many come, those of
// clients find most of the connections to Postgres free.
const (
	anonymousWaiting   = 256 // at once, with those that are served
	anonymousOfAddress = 16  // of these, if addresses have a rate: without one, all may have the address of a proxy
	anonymousServed    = 2   // at once
	anonymousPatience  = 2 * time.Second
)

// anonymousLimits bounds how many requests without a credential are served at once. It has
// nothing to do with how often they may come: that is a rate limit.
type anonymousLimits struct {
	waiting   *callerlimit.Limit
	ofAddress int
	served    *semaphore.Weighted
}

// newAnonymous returns the bounds; rate is limits.address_rate.
func newAnonymous(rate int) *anonymousLimits {
	s := &anonymousLimits{waiting: callerlimit.New("requests without a key", anonymousWaiting), ofAddress: anonymousOfAddress, served: semaphore.NewWeighted(anonymousServed)}
	if rate == 0 {
		s.ofAddress = anonymousWaiting
	}
	return s
}

// enter waits for a place. The Error is rate-limited or overloaded.
func (s *anonymousLimits) enter(ctx context.Context, address string) (leave func(), err error) {
	release, err := s.waiting.Acquire(address, s.ofAddress)
	if err != nil {
		return nil, err
	}
	bounded, cancel := context.WithTimeout(ctx, anonymousPatience)
	defer cancel()
	if err := s.served.Acquire(bounded, 1); err != nil {
		release()
		return nil, fault.Wrap(fault.Overloaded, err, "too many requests without a key are waiting; retry later, or send one with a key")
	}
	return func() { s.served.Release(1); release() }, nil
}
