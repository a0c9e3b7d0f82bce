// Package lock reduces contention between processes with locks in one Redis or in a quorum.
//
// A lock here guarantees nothing: its holder can be paused past the expiry, or servers can lose it. SQL
// guards what must not happen twice.
//
//	ns:lock:<name>  a random value of the holder, with an expiry
//
//	Acquire, While ── a majority accepts ───▶ held ── release ──▶ released
//	   │                                      │ ▲
//	   │                                      └─┘ While: extended by a majority, after a third of the remaining time
//	   │                                      │
//	   │                                      └─ expired, or no majority has it any more ──▶ lost: the work of While ends
//	   ├─ a majority answered, and another holder has it ──▶ retried, then ErrTaken
//	   └─ no majority answered in time ──▶ ErrNoQuorum: the holder is unknown
//
// An expired lock is neither extended nor taken again; a lock that cannot be released expires. After three
// consecutive failures a server gets no new locks for a second.
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
	"sync"
	"time"

	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/redis/go-redis/v9"

	"triprize/internal/platform/config"
)

var (
	// ErrTaken means that another holder has the lock.
	ErrTaken = errors.New("lock: taken")
	// ErrNoQuorum means that too few servers answered in time, so the holder is unknown.
	ErrNoQuorum = errors.New("lock: no majority of the servers answers")
	// ErrLost is the cause of the context of While after the lock was lost.
	ErrLost = errors.New("lock: lost")
)

// Locker makes locks.
type Locker struct {
	settings  config.Locks
	namespace string
	clients   []redis.UniversalClient
	sync      *redsync.Redsync
	logger    *slog.Logger

	waits           *prometheus.HistogramVec
	conflicts, lost prometheus.Counter
}

// New returns a Locker on independent servers. namespace is the prefix of its keys. It logs at debug, because a
// crowd takes thousands of locks per second. The lock of a dead holder
// expires after TTL. An acquisition with all its Tries takes at most Timeout, and one answer of a server at
// most a quarter of that.
func New(clients []redis.UniversalClient, namespace string, settings config.Locks, logger *slog.Logger, registry prometheus.Registerer) *Locker {
	settings.TTL, settings.Timeout = cmp.Or(settings.TTL, 5*time.Second), cmp.Or(settings.Timeout, time.Second)
	settings.Tries, settings.RetryDelay = cmp.Or(settings.Tries, 3), cmp.Or(settings.RetryDelay, 50*time.Millisecond)
	metrics := promauto.With(registry)
	l := &Locker{settings: settings, namespace: namespace, clients: clients, logger: logger,
		waits: metrics.NewHistogramVec(prometheus.HistogramOpts{Name: "triprize_lock_wait_seconds",
			Help:    "Time until locks were acquired or not, by outcome: acquired, taken or no_quorum. Canceled calls are not counted.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5}}, []string{"outcome"}),
		conflicts: metrics.NewCounter(prometheus.CounterOpts{Name: "triprize_lock_conflicts_total",
			Help: "Tries that found a lock taken. One acquisition may try several times."}),
		lost: metrics.NewCounter(prometheus.CounterOpts{Name: "triprize_lock_lost_total",
			Help: "Acquisitions that lost a lock before they released it."}),
	}
	for _, outcome := range []string{"acquired", "taken", "no_quorum"} {
		l.waits.WithLabelValues(outcome)
	}
	var pools []redsyncredis.Pool
	for _, client := range clients {
		pools = append(pools, newServer(client, l.serverTimeout()))
	}
	l.sync = redsync.New(pools...)
	return l
}

// serverTimeout bounds one answer of a server. It is a quarter of the time for an acquisition, so that a
// hanging server does not use up all of it.
func (l *Locker) serverTimeout() time.Duration { return l.settings.Timeout / 4 }

// quorum returns the size of a majority of the servers.
func (l *Locker) quorum() int { return len(l.clients)/2 + 1 }

// AcquireFunc is [Locker.Acquire]. After an error the caller continues without the locks: they only avoid waits
// in Postgres and guard nothing.
type AcquireFunc func(ctx context.Context, names ...string) (release func(), err error)

// AcquireFunc returns Acquire, or nil if locks are disabled.
func (l *Locker) AcquireFunc() AcquireFunc {
	if !l.settings.Enabled {
		return nil
	}
	return l.Acquire
}

// Acquire takes all of the named locks or none. It takes them in ascending order, so that callers with
// overlapping sets do not block each other. It returns ErrTaken if another holder has one after all tries,
// ErrNoQuorum if the holder is unknown, and the error of ctx if that has ended. After the first two the caller
// may continue: SQL decides.
//
// The locks are not extended. release deletes those that the caller still holds, also after ctx has ended. It
// takes at most the time for one answer of a server; a key that cannot be deleted expires. release is
// idempotent and may be called after an error.
func (l *Locker) Acquire(ctx context.Context, names ...string) (release func(), err error) {
	held, err := l.acquire(ctx, l.settings.TTL, l.settings.Tries, names)
	began := time.Now()
	return sync.OnceFunc(func() {
		l.release(ctx, held)
		if err == nil {
			l.log("released", names, began)
		}
	}), err
}

// While takes the named lock, runs do and extends the lock meanwhile. It returns ErrTaken at once if another
// holder has it, and ErrNoQuorum if the holder is unknown. If the lock is lost, the context of do ends with the
// cause ErrLost, and While returns after do. After ctx has ended, the lock is held until do returns. If locks
// are disabled, While only runs do.
func (l *Locker) While(ctx context.Context, name string, ttl time.Duration, do func(ctx context.Context)) error {
	if !l.settings.Enabled {
		do(ctx)
		return nil
	}
	held, err := l.acquire(ctx, ttl, 1, []string{name})
	if err != nil {
		return err
	}
	began := time.Now()
	working, end := context.WithCancelCause(ctx)
	holding, stop := context.WithCancel(context.WithoutCancel(ctx))
	var extending sync.WaitGroup
	extending.Go(func() {
		if l.extend(holding, held[0], ttl) {
			l.lost.Inc()
			end(ErrLost)
		}
	})
	do(working)
	stop()
	extending.Wait()
	lost := errors.Is(context.Cause(working), ErrLost)
	end(nil)
	l.release(ctx, held)
	if lost {
		l.log("lost", []string{name}, began)
		return ErrLost
	}
	l.log("released", []string{name}, began)
	return nil
}

// log writes what became of locks, and for how long they were waited for, or held.
func (l *Locker) log(what string, names []string, since time.Time) {
	l.logger.Debug("lock", "outcome", what, "names", names, "took_ms", time.Since(since).Milliseconds())
}

// extend extends a lock until ctx ends. It reports whether the lock was lost before: it has expired, or no
// majority of the servers can have it. The next extension follows after a third of the remaining time, but at
// least a twentieth of ttl, which leaves time for retries. An expired lock is not extended, because another
// holder may have it.
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
		bounded, cancel := context.WithTimeout(ctx, min(left, l.serverTimeout()))
		extended, err := mutex.ExtendContext(bounded)
		cancel()
		if ctx.Err() != nil {
			return false
		}
		if no, _ := countVotes(err); !extended && len(l.clients)-no < l.quorum() { // even if all failed servers have it
			return true
		}
	}
}

// acquire takes locks and measures that. After an error none is held.
func (l *Locker) acquire(ctx context.Context, ttl time.Duration, tries int, names []string) (held []*redsync.Mutex, err error) {
	began := time.Now()
	held, err = l.lockAll(ctx, ttl, tries, names)
	if err != nil {
		l.release(ctx, held)
		held, err = nil, fmt.Errorf("lock.Acquire: %w", cmp.Or(ctx.Err(), err))
	}
	outcome := "acquired"
	switch {
	case errors.Is(err, ErrTaken):
		outcome = "taken"
	case errors.Is(err, ErrNoQuorum):
		outcome = "no_quorum"
	case err != nil:
		return nil, err
	}
	l.waits.WithLabelValues(outcome).Observe(time.Since(began).Seconds())
	l.log(outcome, names, began)
	return held, err
}

// lockAll takes locks one after the other. After an error the caller must release those it returns.
func (l *Locker) lockAll(ctx context.Context, ttl time.Duration, tries int, names []string) (held []*redsync.Mutex, err error) {
	// The last quarter is for the release.
	ctx, cancel := context.WithTimeout(ctx, l.settings.Timeout-l.serverTimeout())
	defer cancel()
	names = slices.Compact(slices.Sorted(slices.Values(names))) // a name given twice would block itself
	value := rand.Text()
	for _, name := range names {
		mutex := l.mutex(name, value, ttl)
		err := l.lockOne(ctx, mutex, tries)
		if err == nil || ctx.Err() != nil { // redsync does not release locks after the context has ended
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

// release deletes locks that we still hold.
func (l *Locker) release(ctx context.Context, held []*redsync.Mutex) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.serverTimeout())
	defer cancel()
	var all sync.WaitGroup
	for _, mutex := range held {
		all.Go(func() { _, _ = mutex.UnlockContext(ctx) }) // a key that is not deleted expires
	}
	all.Wait()
}

// mutex returns a lock. Its value is known from the start, so that it can be released even if it is unknown
// whether it was taken.
func (l *Locker) mutex(name, value string, ttl time.Duration) *redsync.Mutex {
	return l.sync.NewMutex(l.namespace+":lock:"+name,
		redsync.WithExpiry(ttl),
		redsync.WithDriftFactor(0.01), // of the expiry, because clocks differ
		redsync.WithTimeoutFactor(float64(l.serverTimeout())/float64(ttl)),
		redsync.WithValue(value),
		redsync.WithGenValueFunc(func() (string, error) { return value, nil }))
}

// lockOne takes a lock and retries while another holder has it. redsync's own retries would not return the
// answers of the servers if the time ends during a wait.
func (l *Locker) lockOne(ctx context.Context, mutex *redsync.Mutex, tries int) error {
	var last error
	for range tries {
		if last != nil && !wait(ctx, l.settings.RetryDelay/2+mathrand.N(l.settings.RetryDelay+1)) { //nolint:gosec // a jitter is no secret
			return last
		}
		err := mutex.TryLockContext(ctx)
		if err == nil {
			return nil
		}
		// Another holder has it if a majority answered and one rejected. If all accepted, they were too late.
		if no, failed := countVotes(err); no == 0 || len(l.clients)-failed < l.quorum() {
			if last != nil && ctx.Err() != nil {
				return last // the time ended during this try: the result of the one before counts
			}
			return fmt.Errorf("%w: %w", ErrNoQuorum, err)
		}
		l.conflicts.Inc()
		last = ErrTaken
	}
	return last
}

// wait returns false if ctx ends first.
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

// Ping returns nil if a majority of the servers accepts a write.
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
