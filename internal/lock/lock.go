// Package lock spares several processes the trouble of doing the same thing at
// once, with redsync on Redis. A lock here proves nothing: its holder can be
// paused past the expiry, or Redis can forget it. What must not happen twice is
// guarded in SQL, always.
package lock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

var (
	// ErrTaken means that somebody else holds the lock.
	ErrTaken = errors.New("lock: taken")
	// ErrLost is the cause of the context given to While when the lock could not be kept.
	ErrLost = errors.New("lock: lost")
)

// Locker makes locks on one Redis.
type Locker struct {
	sync      *redsync.Redsync
	namespace string
}

// New returns a Locker; its keys begin with namespace.
func New(rdb redis.UniversalClient, namespace string) *Locker {
	return &Locker{sync: redsync.New(goredis.NewPool(rdb)), namespace: namespace}
}

// While runs do for as long as it holds the named lock, which it keeps alive.
// It returns ErrTaken at once when somebody else holds it, and another error
// when Redis cannot say. When the lock is lost, the context of do ends with the
// cause ErrLost; While returns after do has.
func (l *Locker) While(ctx context.Context, name string, ttl time.Duration, do func(ctx context.Context)) error {
	mutex := l.sync.NewMutex(l.namespace+":lock:"+name, redsync.WithExpiry(ttl), redsync.WithTries(1))
	if err := mutex.TryLockContext(ctx); err != nil {
		if _, taken := errors.AsType[*redsync.ErrTaken](err); taken {
			return ErrTaken
		}
		return fmt.Errorf("lock.While(%s): %w", name, err)
	}
	held, lose := context.WithCancelCause(ctx)
	defer lose(nil)
	kept := make(chan struct{})
	go func() {
		defer close(kept)
		keep(held, mutex, ttl, lose)
	}()
	do(held)
	lost := errors.Is(context.Cause(held), ErrLost)
	lose(nil)
	<-kept
	release, cancel := context.WithTimeout(context.WithoutCancel(ctx), ttl)
	defer cancel()
	_, _ = mutex.UnlockContext(release) // a lock that is not released expires
	if lost {
		return ErrLost
	}
	return nil
}

// keep extends the lock every third of its life until ctx ends. A failed
// extension is tried again until the lock has run out.
func keep(ctx context.Context, mutex *redsync.Mutex, ttl time.Duration, lose context.CancelCauseFunc) {
	ticker := time.NewTicker(ttl / 3)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		attempt, cancel := context.WithDeadline(ctx, mutex.Until())
		extended, err := mutex.ExtendContext(attempt)
		cancel()
		_, taken := errors.AsType[*redsync.ErrTaken](err)
		switch {
		case extended && err == nil:
		case taken, err == nil: // somebody else has it, or it is gone
			lose(ErrLost)
			return
		case !time.Now().Before(mutex.Until()):
			lose(ErrLost)
			return
		}
	}
}
