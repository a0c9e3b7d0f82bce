package httpapi

import (
	"context"

	"triprize/internal/platform/config"
	"triprize/internal/platform/lock"
	"triprize/internal/service/holds"
	"triprize/internal/service/wallets"
)

// turnstile is where crowds wait for their turn: locks that spare Postgres the crowd,
// and prove nothing.
type turnstile struct{ locks *lock.Locker }

// queues are what the deeds know of it.
type queues interface {
	holds.Locker
	wallets.Locker
}

// queueAt returns nil where locks are disabled: then nobody queues.
func queueAt(locks *lock.Locker, settings config.Locks) queues {
	if !settings.Enabled {
		return nil
	}
	return turnstile{locks}
}

// Acquire implements holds.Locker.
func (q turnstile) Acquire(ctx context.Context, names ...string) (release func(), err error) {
	held, err := q.locks.Acquire(ctx, names...)
	return func() { held.Release(ctx) }, err
}
