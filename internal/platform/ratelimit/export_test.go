package ratelimit

import (
	"context"
	"time"
)

// UseClock lets no time pass in this process but that of a clock.
func (l *Limiter) UseClock(now func() time.Time) { l.local.now = now }

// Known returns how many owners of shared limits this process knows.
func (l *Limiter) Known() int { return l.local.buckets.Len() }

// Ask charges n requests of a user in Redis, and returns how many it has charged, and how many are left.
func (l *Limiter) Ask(ctx context.Context, client, user string, n int) (charged, left int, err error) {
	charged, result, err := l.chargeRedis(ctx, l.user, l.user.key(client, user), n)
	if err == nil {
		left = l.user.left(result.ResetAfter)
	}
	return charged, left, err
}
