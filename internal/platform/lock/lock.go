// Package lock reduces contention between processes with locks in one Redis or in a quorum.
//
// A lock here guarantees nothing: its holder can be paused past the expiry, or servers can lose it. SQL
// guards what must not happen twice.
//
//	ns:lock:<name>  a random value of the holder, with an expiry
//
// A lock is held when a majority of the servers has accepted it, until it is released or expires. An expired
// lock is neither extended nor taken again.
package lock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/redis/go-redis/v9"
	"github.com/sony/gobreaker/v2"

	"triprize/internal/platform/config"
)

var (
	// ErrTaken means that another holder has the lock: one server that says so is enough, also without a majority.
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
// crowd takes thousands of locks per second. An acquisition takes at most the timeout: tries begin in two fifths of
// it, and one answer of a server takes at most a fifth.
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
		pools = append(pools, server{goredis.NewPool(client), gobreaker.NewCircuitBreaker[any](gobreaker.Settings{
			Timeout:     time.Second, // then one command probes
			ReadyToTrip: func(c gobreaker.Counts) bool { return c.ConsecutiveFailures >= 3 },
		})})
	}
	l.sync = redsync.New(pools...)
	return l
}

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

// Acquire takes all of the named locks or none, in ascending order, so that callers with overlapping sets do not
// block each other. It returns ErrTaken if another holder has one after all tries, ErrNoQuorum if the holder is
// unknown, and the error of ctx if that has ended: it then returns when the running try has ended, after two
// fifths of the timeout at most, plus a fifth for the release.
//
// The locks are not extended. release deletes those that the caller still holds, also after ctx has ended; a key
// that cannot be deleted expires. release may be called again, and after an error.
func (l *Locker) Acquire(ctx context.Context, names ...string) (release func(), err error) {
	held, err := l.acquire(ctx, l.settings.TTL, l.settings.Tries, names)
	began := time.Now()
	return sync.OnceFunc(func() {
		if l.release(ctx, held); err == nil {
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
	began, outcome, done := time.Now(), "released", make(chan struct{})
	working, end := context.WithCancelCause(ctx)
	defer end(nil)
	go func() {
		defer close(done)
		do(working)
	}()
	if err = l.extend(context.WithoutCancel(ctx), held[0], ttl, done); err != nil {
		outcome = "lost"
		l.lost.Inc()
		end(err)
		<-done
	}
	l.release(ctx, held)
	l.log(outcome, []string{name}, began)
	return err
}

// log writes what became of locks, and for how long they were waited for, or held.
func (l *Locker) log(what string, names []string, since time.Time) {
	l.logger.Debug("lock", "outcome", what, "names", names, "took_ms", time.Since(since).Milliseconds())
}

// extend extends a lock until done. It returns ErrLost if the lock has expired, or a majority of the servers does
// not have it. The next extension follows after a third of the remaining time, but at least a twentieth of ttl.
func (l *Locker) extend(ctx context.Context, mutex *redsync.Mutex, ttl time.Duration, done <-chan struct{}) error {
	for {
		left := time.Until(mutex.Until())
		select {
		case <-done:
			return nil
		case <-time.After(min(left, max(left/3, ttl/20))):
		}
		if left = time.Until(mutex.Until()); left <= 0 { // another may have it
			return ErrLost
		}
		bounded, cancel := context.WithTimeout(ctx, min(left, l.settings.Timeout/5))
		_, err := mutex.ExtendContext(bounded)
		cancel()
		if _, gone := errors.AsType[*redsync.ErrTaken](err); gone { // else all servers that failed may have it
			return ErrLost
		}
	}
}

// acquire takes locks and measures that. After an error none is held.
func (l *Locker) acquire(ctx context.Context, ttl time.Duration, tries int, names []string) (held []*redsync.Mutex, err error) {
	began := time.Now()
	for _, name := range slices.Compact(slices.Sorted(slices.Values(names))) { // a name given twice would block itself
		mutex := l.sync.NewMutex(l.namespace+":lock:"+name, redsync.WithExpiry(ttl),
			redsync.WithDriftFactor(0.01), // of the expiry, because clocks differ
			redsync.WithTimeoutFactor(float64(l.settings.Timeout/5)/float64(ttl)))
		if err = l.lock(ctx, mutex, tries, began.Add(l.settings.Timeout*2/5)); err != nil {
			break
		}
		held = append(held, mutex)
	}
	if err = cmp.Or(ctx.Err(), err); err != nil {
		l.release(ctx, held)
		held, err = nil, fmt.Errorf("lock.Acquire: %w", err)
	}
	outcome := "acquired"
	switch {
	case errors.Is(err, ErrTaken):
		outcome = "taken"
	case errors.Is(err, ErrNoQuorum):
		outcome = "no_quorum"
	case err != nil: // of ctx
		return nil, err
	}
	l.waits.WithLabelValues(outcome).Observe(time.Since(began).Seconds())
	l.log(outcome, names, began)
	return held, err
}

// lock takes a lock, and retries until last while another holder has it on some server. redsync's own retries would
// go on without a quorum, and it releases what a failed try has taken only if its context has not ended.
func (l *Locker) lock(ctx context.Context, mutex *redsync.Mutex, tries int, last time.Time) error {
	outcome := ErrNoQuorum
	for time.Now().Before(last) && ctx.Err() == nil {
		err := mutex.TryLockContext(context.WithoutCancel(ctx))
		if err == nil {
			return nil
		}
		_, all := errors.AsType[*redsync.ErrTaken](err)
		if _, some := errors.AsType[*redsync.ErrNodeTaken](err); !some && !all {
			return fmt.Errorf("%w: %s: %w", ErrNoQuorum, mutex.Name(), err)
		}
		l.conflicts.Inc()
		outcome = ErrTaken
		if tries--; tries == 0 {
			break
		}
		select {
		case <-ctx.Done():
		case <-time.After(min(l.settings.RetryDelay/2+rand.N(l.settings.RetryDelay+1), time.Until(last))): //nolint:gosec // a jitter is no secret
		}
	}
	return fmt.Errorf("%w: %s", outcome, mutex.Name())
}

// release deletes locks that we still hold.
func (l *Locker) release(ctx context.Context, held []*redsync.Mutex) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.settings.Timeout/5)
	defer cancel()
	var all sync.WaitGroup
	for _, mutex := range held {
		all.Go(func() { _, _ = mutex.UnlockContext(ctx) })
	}
	all.Wait()
}

// Ping returns nil if a majority of the servers accepts a write.
func (l *Locker) Ping(ctx context.Context) error {
	errs := make([]error, len(l.clients))
	var all sync.WaitGroup
	for i, client := range l.clients {
		all.Go(func() { errs[i] = client.Set(ctx, l.namespace+":health", "locks", time.Minute).Err() })
	}
	all.Wait()
	if failed := slices.DeleteFunc(errs, func(err error) bool { return err == nil }); len(failed) > len(l.clients)/2 {
		return fmt.Errorf("lock.Ping: %w: %w", ErrNoQuorum, errors.Join(failed...))
	}
	return nil
}

// server is a redsync pool with a breaker: redsync waits for all servers, so one that hangs would delay every lock.
// After three consecutive failures it gets no command for a second, and no release: the keys expire.
type server struct {
	redsyncredis.Pool
	breaker *gobreaker.CircuitBreaker[any]
}

// Get returns what redsync calls a connection: commands under one context.
func (s server) Get(ctx context.Context) (redsyncredis.Conn, error) {
	commands, err := s.Pool.Get(ctx)
	return conn{commands, s.breaker}, err
}

// conn is a redsync connection. redsync takes a lock with SetNX, and extends and deletes it with Eval.
type conn struct {
	redsyncredis.Conn
	breaker *gobreaker.CircuitBreaker[any]
}

func (c conn) SetNX(name, value string, expiry time.Duration) (bool, error) {
	set, err := c.breaker.Execute(func() (any, error) { return c.Conn.SetNX(name, value, expiry) })
	return set == true, err
}

func (c conn) Eval(script *redsyncredis.Script, keysAndArgs ...any) (any, error) {
	return c.breaker.Execute(func() (any, error) { return c.Conn.Eval(script, keysAndArgs...) })
}
