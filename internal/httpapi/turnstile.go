package httpapi

import (
	"context"

	"triprize/internal/config"
	"triprize/internal/holding"
	"triprize/internal/lock"
	"triprize/internal/teller"
)

// turnstile is where crowds wait for their turn: locks that spare Postgres the crowd,
// and prove nothing.
type turnstile struct{ locks *lock.Locker }

// queues are what the deeds know of it.
type queues interface {
	holding.Locker
	teller.Locker
}

// queueAt returns nil where locks are disabled: then nobody queues.
func queueAt(locks *lock.Locker, settings config.Locks) queues {
	if !settings.Enabled {
		return nil
	}
	return turnstile{locks}
}

// Acquire implements holding.Locker.
func (q turnstile) Acquire(ctx context.Context, names ...string) (release func(), err error) {
	held, err := q.locks.Acquire(ctx, names...)
	return func() { held.Release(ctx) }, err
}
