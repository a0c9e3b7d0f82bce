package lock

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	mathrand "math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"triprize/internal/platform/config"
)

var (
	// ErrTaken means that another holder has the lock.
	ErrTaken = errors.New("lock: taken")
	// ErrNoQuorum means that too few servers answered in time: the holder is unknown.
	ErrNoQuorum = errors.New("lock: no majority of the servers answers")
	// ErrLost is the cause of the context given to While when the lock could not be kept.
	ErrLost = errors.New("lock: lost")
)

// Locker makes locks.
type Locker struct {
	settings  config.Locks
	namespace string
	clients   []redis.UniversalClient
	sync      *redsync.Redsync
	metrics   *metrics
	logger    *slog.Logger
}

// New returns a Locker on servers that are independent of each other. Its keys begin with namespace. The lock
// of a dead holder is free after its TTL. To take locks, all Tries together, takes Timeout at most, of
// which one server may take a quarter for an answer.
func New(clients []redis.UniversalClient, namespace string, settings config.Locks, registry prometheus.Registerer, logger *slog.Logger) *Locker {
	settings.TTL, settings.Timeout = cmp.Or(settings.TTL, 5*time.Second), cmp.Or(settings.Timeout, time.Second)
	settings.Tries, settings.RetryDelay = cmp.Or(settings.Tries, 3), cmp.Or(settings.RetryDelay, 50*time.Millisecond)
	l := &Locker{settings: settings, namespace: namespace, clients: clients, metrics: newMetrics(registry), logger: logger}
	var pools []redsyncredis.Pool
	for _, client := range clients {
		pools = append(pools, newServer(client, l.patience()))
	}
	l.sync = redsync.New(pools...)
	return l
}

// patience is how long one server may take for one answer: a quarter of the time
// for an acquisition, so that a server that hangs does not use up all of it.
func (l *Locker) patience() time.Duration { return l.settings.Timeout / 4 }

// quorum is a majority of the servers.
func (l *Locker) quorum() int { return len(l.clients)/2 + 1 }

// Acquire takes all of the named locks, or none. It takes them in ascending order,
// so that two callers with overlapping sets do not block each other. It returns
// ErrTaken when another holder has one of them after all tries, ErrNoQuorum when
// the holder is unknown, and the error of ctx when that has ended. The first two
// are no reason to refuse the caller's work: SQL decides. With an error, Held is
// nil; Release does nothing on it.
func (l *Locker) Acquire(ctx context.Context, names ...string) (*Held, error) {
	held, err := l.acquire(ctx, l.settings.TTL, l.settings.Tries, names)
	if err != nil {
		return nil, fmt.Errorf("lock.Acquire: %w", err)
	}
	return held, nil
}

// AcquireFunc takes all of the named locks, or none, as Acquire does, and returns
// a function that releases them. When it fails, its caller goes on without the
// locks: they only save waiting in Postgres, and guard nothing.
type AcquireFunc func(ctx context.Context, names ...string) (release func(), err error)

// AcquireFunc returns Acquire as an AcquireFunc, or nil where locks are disabled.
func (l *Locker) AcquireFunc() AcquireFunc {
	if !l.settings.Enabled {
		return nil
	}
	return func(ctx context.Context, names ...string) (func(), error) {
		held, err := l.Acquire(ctx, names...)
		return func() { held.Release(ctx) }, err
	}
}

// While takes the named lock, runs do and extends the lock meanwhile.
// It returns ErrTaken at once when another holder has it, and ErrNoQuorum when the
// holder is unknown. When the lock is lost, the context of do ends with the cause
// ErrLost, and While returns after do. Where locks are disabled it just runs do.
func (l *Locker) While(ctx context.Context, name string, ttl time.Duration, do func(ctx context.Context)) error {
	held, err := l.acquire(ctx, ttl, 1, []string{name})
	if errors.Is(err, ErrTaken) { // by a key that would last for ever, nobody has it
		for _, client := range l.clients {
			_ = client.ExpireNX(ctx, l.key(name), ttl).Err() // the next call tries again
		}
	}
	if err != nil {
		return fmt.Errorf("lock.While: %w", err)
	}
	working, lose := context.WithCancelCause(ctx)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case <-held.Lost():
			lose(ErrLost)
		case <-working.Done():
		}
	}()
	do(working)
	lost := errors.Is(context.Cause(working), ErrLost)
	lose(nil)
	<-watched
	held.Release(ctx)
	if lost {
		return ErrLost
	}
	return nil
}

func (l *Locker) acquire(ctx context.Context, ttl time.Duration, tries int, names []string) (*Held, error) {
	h := &Held{locker: l, ttl: ttl, lost: make(chan struct{})}
	if !l.settings.Enabled || len(names) == 0 {
		return h, nil
	}
	began := time.Now()
	err := l.takeAll(ctx, h, tries, names)
	if err == nil {
		h.keep()
		h.locker.logger.DebugContext(ctx, "locks taken", "locks", h)
	} else {
		h.giveBack(ctx)
		if ctx.Err() != nil {
			err = ctx.Err()
		}
	}
	l.metrics.acquired(err, time.Since(began))
	return h, err
}

// takeAll takes locks one after the other into h. After an error the caller gives
// back those that h has.
func (l *Locker) takeAll(ctx context.Context, h *Held, tries int, names []string) error {
	// The last quarter is for giving back.
	ctx, cancel := context.WithTimeout(ctx, l.settings.Timeout-l.patience())
	defer cancel()
	names = slices.Compact(slices.Sorted(slices.Values(names))) // a name given twice would block itself
	value := rand.Text()
	for _, name := range names {
		mutex := l.mutex(name, value, h.ttl)
		err := l.take(ctx, mutex, tries)
		if err == nil || ctx.Err() != nil { // redsync does not give back what it got when the context has ended
			h.mutexes = append(h.mutexes, mutex)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	if !time.Now().Before(h.until()) {
		return fmt.Errorf("%w: %s expired before the last of %s was taken", ErrNoQuorum, names[0], strings.Join(names, ", "))
	}
	return nil
}

// mutex describes a lock. It has its value from the start, so that it can be
// given back when it is not known whether it was taken.
func (l *Locker) mutex(name, value string, ttl time.Duration) *redsync.Mutex {
	return l.sync.NewMutex(l.key(name),
		redsync.WithExpiry(ttl),
		redsync.WithDriftFactor(0.01), // of its life, because clocks differ
		redsync.WithTimeoutFactor(float64(l.patience())/float64(ttl)),
		redsync.WithValue(value),
		redsync.WithGenValueFunc(func() (string, error) { return value, nil }))
}

func (l *Locker) key(name string) string { return l.namespace + ":lock:" + name }

// take tries to take a lock, and tries again while another holder has it. redsync
// could repeat the tries itself, but when the time is up during its wait it does
// not return what the servers said.
func (l *Locker) take(ctx context.Context, mutex *redsync.Mutex, tries int) error {
	var last error
	for range tries {
		if last != nil && !wait(ctx, jittered(l.settings.RetryDelay)) {
			return last
		}
		err := mutex.TryLockContext(ctx)
		if err == nil {
			return nil
		}
		if !countVotes(err).taken(len(l.clients), l.quorum()) {
			if last != nil && ctx.Err() != nil {
				return last // the time was up during this try; the result of the one before stands
			}
			return fmt.Errorf("%w: %w", ErrNoQuorum, err)
		}
		l.metrics.conflicts.Inc()
		last = ErrTaken
	}
	return last
}

// jittered returns between half and one and a half of a delay, so that callers
// that collided do not collide again.
func jittered(mean time.Duration) time.Duration {
	return mean/2 + mathrand.N(mean+1) //nolint:gosec // a jitter is no secret
}

// wait returns false when ctx ends first.
func wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// Ping returns nil when a majority of the servers takes a write.
func (l *Locker) Ping(ctx context.Context) error {
	answers := make(chan error, len(l.clients))
	for _, client := range l.clients {
		go func() { answers <- client.Set(ctx, l.namespace+":health", "locks", time.Minute).Err() }()
	}
	var failed []error
	answered := 0
	for range l.clients {
		if err := <-answers; err != nil {
			failed = append(failed, err)
		} else {
			answered++
		}
	}
	if answered < l.quorum() {
		return fmt.Errorf("lock.Ping: %w: %w", ErrNoQuorum, errors.Join(failed...))
	}
	return nil
}
