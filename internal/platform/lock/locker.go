package lock

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"slices"
	"strings"
	"sync"
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
}

// New returns a Locker on servers that are independent of each other. Its keys begin with namespace. The lock
// of a dead holder is free after its TTL. To take locks, all Tries together, takes Timeout at most, of
// which one server may take a quarter for an answer.
func New(clients []redis.UniversalClient, namespace string, settings config.Locks, registry prometheus.Registerer) *Locker {
	settings.TTL, settings.Timeout = cmp.Or(settings.TTL, 5*time.Second), cmp.Or(settings.Timeout, time.Second)
	settings.Tries, settings.RetryDelay = cmp.Or(settings.Tries, 3), cmp.Or(settings.RetryDelay, 50*time.Millisecond)
	l := &Locker{settings: settings, namespace: namespace, clients: clients, metrics: newMetrics(registry)}
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

// AcquireFunc is [Locker.Acquire]. When it fails, its caller goes on without the
// locks: they only save waiting in Postgres, and guard nothing.
type AcquireFunc func(ctx context.Context, names ...string) (release func(), err error)

// AcquireFunc returns Acquire, or nil where locks are disabled.
func (l *Locker) AcquireFunc() AcquireFunc {
	if !l.settings.Enabled {
		return nil
	}
	return l.Acquire
}

// Acquire takes all of the named locks, or none. It takes them in ascending order,
// so that two callers with overlapping sets do not block each other. It returns
// ErrTaken when another holder has one of them after all tries, ErrNoQuorum when
// the holder is unknown, and the error of ctx when that has ended. The first two
// are no reason to refuse the caller's work: SQL decides.
//
// The locks are not extended. release deletes those that are still the caller's. It works when ctx has ended, and
// takes no longer than one server may for an answer; a key that cannot be deleted expires. A second call, or one
// after an error, does nothing.
func (l *Locker) Acquire(ctx context.Context, names ...string) (release func(), err error) {
	held, err := l.acquire(ctx, l.settings.TTL, l.settings.Tries, names)
	return sync.OnceFunc(func() { l.giveBack(ctx, held) }), err
}

// While takes the named lock, runs do and extends the lock meanwhile.
// It returns ErrTaken at once when another holder has it, and ErrNoQuorum when the
// holder is unknown. When the lock is lost, the context of do ends with the cause
// ErrLost, and While returns after do. A holder whose ctx has ended keeps the lock until do returns. Where
// locks are disabled it just runs do.
func (l *Locker) While(ctx context.Context, name string, ttl time.Duration, do func(ctx context.Context)) error {
	if !l.settings.Enabled {
		do(ctx)
		return nil
	}
	held, err := l.acquire(ctx, ttl, 1, []string{name})
	if errors.Is(err, ErrTaken) { // by a key that would last for ever, nobody has it
		for _, client := range l.clients {
			_ = client.ExpireNX(ctx, l.key(name), ttl).Err() // the next call tries again
		}
	}
	if err != nil {
		return err
	}
	working, end := context.WithCancelCause(ctx)
	keeping, stop := context.WithCancel(context.WithoutCancel(ctx))
	var extending sync.WaitGroup
	extending.Go(func() {
		if l.extend(keeping, held[0], ttl) {
			l.metrics.lost.Inc()
			end(ErrLost)
		}
	})
	do(working)
	stop()
	extending.Wait()
	lost := errors.Is(context.Cause(working), ErrLost)
	end(nil)
	l.giveBack(ctx, held)
	if lost {
		return ErrLost
	}
	return nil
}

// extend extends a lock until ctx ends. It reports whether the lock was lost before: it has expired, or no
// majority of the servers can have it. The next extension comes after a third of the remaining time, so that
// there are more tries when one fails, but at least a twentieth of ttl. An expired lock is not extended:
// another holder may have it by now.
func (l *Locker) extend(ctx context.Context, mutex *redsync.Mutex, ttl time.Duration) (lost bool) {
	for {
		left := time.Until(mutex.Until())
		if !wait(ctx, min(left, max(left/3, ttl/20))) {
			return false
		}
		left = time.Until(mutex.Until())
		if left <= 0 {
			return true
		}
		bounded, cancel := context.WithTimeout(ctx, min(left, l.patience()))
		extended, err := mutex.ExtendContext(bounded)
		cancel()
		if ctx.Err() != nil {
			return false
		}
		if !extended && countVotes(err).gone(len(l.clients), l.quorum()) {
			return true
		}
	}
}

// acquire takes locks one after the other. After an error none is held.
func (l *Locker) acquire(ctx context.Context, ttl time.Duration, tries int, names []string) (held []*redsync.Mutex, err error) {
	began := time.Now()
	held, err = l.takeAll(ctx, ttl, tries, names)
	if err != nil {
		l.giveBack(ctx, held)
		held, err = nil, fmt.Errorf("lock.Acquire: %w", cmp.Or(ctx.Err(), err))
	}
	l.metrics.acquired(err, time.Since(began))
	return held, err
}

// takeAll also returns, with an error, those that the caller has to give back.
func (l *Locker) takeAll(ctx context.Context, ttl time.Duration, tries int, names []string) (held []*redsync.Mutex, err error) {
	// The last quarter is for giving back.
	ctx, cancel := context.WithTimeout(ctx, l.settings.Timeout-l.patience())
	defer cancel()
	names = slices.Compact(slices.Sorted(slices.Values(names))) // a name given twice would block itself
	value := rand.Text()
	for _, name := range names {
		mutex := l.mutex(name, value, ttl)
		err := l.take(ctx, mutex, tries)
		if err == nil || ctx.Err() != nil { // redsync does not give back what it got when the context has ended
			held = append(held, mutex)
		}
		if err != nil {
			return held, fmt.Errorf("%s: %w", name, err)
		}
	}
	if len(held) > 0 && !time.Now().Before(held[0].Until()) {
		return held, fmt.Errorf("%w: %s expired before the last of %s was taken", ErrNoQuorum, names[0], strings.Join(names, ", "))
	}
	return held, nil
}

// giveBack deletes locks that are still ours.
func (l *Locker) giveBack(ctx context.Context, held []*redsync.Mutex) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.patience())
	defer cancel()
	var all sync.WaitGroup
	for _, mutex := range held {
		all.Go(func() { _, _ = mutex.UnlockContext(ctx) }) // a key that is not deleted expires
	}
	all.Wait()
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
		if last != nil && !wait(ctx, l.settings.RetryDelay/2+mathrand.N(l.settings.RetryDelay+1)) { //nolint:gosec // a jitter is no secret
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
	errs := make([]error, len(l.clients))
	var all sync.WaitGroup
	for i, client := range l.clients {
		all.Go(func() { errs[i] = client.Set(ctx, l.namespace+":health", "locks", time.Minute).Err() })
	}
	all.Wait()
	if failed := slices.DeleteFunc(errs, func(err error) bool { return err == nil }); len(l.clients)-len(failed) < l.quorum() {
		return fmt.Errorf("lock.Ping: %w: %w", ErrNoQuorum, errors.Join(failed...))
	}
	return nil
}

type metrics struct {
	wait      *prometheus.HistogramVec
	conflicts prometheus.Counter
	lost      prometheus.Counter
}

func newMetrics(registry prometheus.Registerer) *metrics {
	m := &metrics{
		wait: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "triprize_lock_wait_seconds",
			Help:    "Time until locks were acquired or given up, by outcome: acquired, taken or no_quorum. A caller who left is not counted.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5},
		}, []string{"outcome"}),
		conflicts: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "triprize_lock_conflicts_total", Help: "Tries that found a lock taken. One acquisition may try several times.",
		}),
		lost: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "triprize_lock_lost_total", Help: "Acquisitions whose holder lost a lock before it gave it back.",
		}),
	}
	for _, outcome := range []string{"acquired", "taken", "no_quorum"} {
		m.wait.WithLabelValues(outcome)
	}
	registry.MustRegister(m.wait, m.conflicts, m.lost)
	return m
}

// acquired records how an acquisition ended.
func (m *metrics) acquired(err error, took time.Duration) {
	outcome := "acquired"
	switch {
	case errors.Is(err, ErrTaken):
		outcome = "taken"
	case errors.Is(err, ErrNoQuorum):
		outcome = "no_quorum"
	case err != nil:
		return
	}
	m.wait.WithLabelValues(outcome).Observe(took.Seconds())
}
