package lock_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"triprize/devkit/devstack"
	"triprize/internal/platform/config"
	"triprize/internal/platform/lock"
	"triprize/internal/platform/redisx"
	"triprize/internal/testkit/servers"
)

func TestMain(m *testing.M) {
	redisx.LogTo(slog.New(slog.DiscardHandler)) // of servers that are away there is much to say
	servers.Main(m)
}

// long is the life of locks that must not run out in a test.
const long = time.Hour

// patient is for tests on real servers: nothing may end by its time there,
// however slow the machine is.
func patient(l *config.Locks) { l.TTL, l.Timeout = long, long/2 }

// space is a namespace of its own on Redis.
type space struct {
	t         *testing.T
	settings  config.Settings
	rdb       *redis.Client
	namespace string
	registry  *prometheus.Registry // of locker
	locker    *lock.Locker
}

func newSpace(t *testing.T, changes ...func(*config.Locks)) *space {
	t.Helper()
	s := &space{t: t, settings: servers.RedisSettings(t)}
	s.namespace = s.settings.Redis.Namespace
	patient(&s.settings.Locks)
	s.rdb, s.registry, s.locker = s.process(changes...)
	return s
}

// process returns what another process has that uses the same namespace.
func (s *space) process(changes ...func(*config.Locks)) (*redis.Client, *prometheus.Registry, *lock.Locker) {
	s.t.Helper()
	for _, change := range changes {
		change(&s.settings.Locks)
	}
	rdb, registry := servers.Redis(s.t, s.settings), prometheus.NewRegistry()
	return rdb, registry, lock.New([]redis.UniversalClient{rdb}, s.namespace, s.settings.Locks, registry)
}

// key returns the Redis key of a lock.
func (s *space) key(name string) string { return s.namespace + ":lock:" + name }

// value returns what holds a lock, or nothing.
func (s *space) value(name string) string {
	s.t.Helper()
	value, err := s.rdb.Get(s.t.Context(), s.key(name)).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		s.t.Fatal(err)
	}
	return value
}

// tries tells whether a lock can be had at the moment.
func (s *space) tries(name string) bool {
	s.t.Helper()
	ran := false
	err := s.locker.While(s.t.Context(), name, long, func(context.Context) { ran = true })
	if (err == nil) != ran || err != nil && !errors.Is(err, lock.ErrTaken) {
		s.t.Fatalf("ran: %v, error: %v", ran, err)
	}
	return ran
}

func TestALockIsHeldWhileTheWorkRunsAndFreeAfter(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	ran := false
	err := s.locker.While(t.Context(), "a", long, func(ctx context.Context) {
		ran = true
		if s.tries("a") {
			t.Error("a second holder")
		}
		if !s.tries("b") {
			t.Error("another lock is taken too")
		}
		if elsewhere := newSpace(t); !elsewhere.tries("a") {
			t.Error("the lock is taken in another namespace too")
		}
		if ctx.Err() != nil {
			t.Errorf("the context has ended: %v", context.Cause(ctx))
		}
	})
	if err != nil || !ran {
		t.Fatalf("ran: %v, error: %v", ran, err)
	}
	if holder := s.value("a"); holder != "" {
		t.Errorf("after the work %q holds it", holder)
	}
	if !s.tries("a") {
		t.Error("after the work it is taken")
	}
}

// counter counts the commands whose names begin with command.
type counter struct {
	command string
	sent    atomic.Int64
}

func (*counter) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c *counter) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if strings.HasPrefix(cmd.Name(), c.command) {
			c.sent.Add(1)
		}
		return next(ctx, cmd)
	}
}

func (*counter) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func TestWhoFindsALockTakenDoesNotTryAgain(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	if err := s.rdb.Set(t.Context(), s.key("a"), "somebody", long).Err(); err != nil {
		t.Fatal(err)
	}
	tries := &counter{command: "set"}
	s.rdb.AddHook(tries)
	err := s.locker.While(t.Context(), "a", long, func(context.Context) { t.Error("it ran") })
	if !errors.Is(err, lock.ErrTaken) {
		t.Errorf("got %v", err)
	}
	if n := tries.sent.Load(); n != 1 {
		t.Errorf("%d attempts", n)
	}
	if holder := s.value("a"); holder != "somebody" {
		t.Errorf("now %q holds it", holder)
	}
}

func TestOfManyOnlyOneHoldsALock(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	const tried = 20
	var inside, most atomic.Int64
	over := make(chan error, tried)
	gate, refused := make(chan struct{}), make(chan struct{})
	for range tried {
		go func() {
			<-gate
			over <- s.locker.While(t.Context(), "a", long, func(context.Context) {
				most.Store(max(most.Load(), inside.Add(1)))
				<-refused // by now everybody else was
				inside.Add(-1)
			})
		}()
	}
	close(gate)
	for range tried - 1 {
		if err := <-over; !errors.Is(err, lock.ErrTaken) {
			t.Errorf("got %v", err)
		}
	}
	close(refused)
	if err := <-over; err != nil || most.Load() != 1 {
		t.Errorf("%v, %d held it at once", err, most.Load())
	}
}

func TestTheEndOfTheCallerIsNoLoss(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	reason := errors.New("shutting down")
	ctx, end := context.WithCancelCause(t.Context())
	err := s.locker.While(ctx, "a", long, func(held context.Context) {
		end(reason)
		<-held.Done()
		if cause := context.Cause(held); !errors.Is(cause, reason) {
			t.Errorf("the cause is %v", cause)
		}
	})
	if err != nil {
		t.Errorf("got %v", err)
	}
	if holder := s.value("a"); holder != "" {
		t.Errorf("%q still holds it", holder)
	}
	err = s.locker.While(ctx, "a", long, func(context.Context) { t.Error("it ran for a caller who is gone") })
	if !errors.Is(err, context.Canceled) || errors.Is(err, lock.ErrTaken) || errors.Is(err, lock.ErrNoQuorum) {
		t.Errorf("for a caller who is gone: %v", err)
	}
}

func TestWithoutRedisNobodyCanSayWhoHoldsALock(t *testing.T) {
	t.Parallel()
	address, err := devstack.FreeAddress()
	if err != nil {
		t.Fatal(err)
	}
	settings := servers.Defaults(t)
	settings.Redis.URL = "redis://" + address + "/0"
	locker := lock.New([]redis.UniversalClient{servers.Redis(t, settings)}, "ns", settings.Locks, prometheus.NewRegistry())
	err = locker.While(t.Context(), "a", long, func(context.Context) { t.Error("it ran") })
	if !errors.Is(err, lock.ErrNoQuorum) || errors.Is(err, lock.ErrTaken) || errors.Is(err, lock.ErrLost) {
		t.Errorf("got %v", err)
	}
}
