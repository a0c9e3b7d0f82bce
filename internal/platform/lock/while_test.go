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

	"triprize/internal/platform/config"
	"triprize/internal/platform/devstack"
	"triprize/internal/platform/lock"
	"triprize/internal/platform/redisx"
	"triprize/internal/testkit/fixture"
)

func TestMain(m *testing.M) {
	redisx.LogTo(slog.New(slog.DiscardHandler)) // of servers that are away there is much to say
	fixture.Main(m)
}

// The lives of locks in these tests.
const (
	short = time.Second // of locks that are to be lost or kept
	long  = time.Minute // of locks whose end must not be their expiry
)

// house is a namespace of its own on Redis.
type house struct {
	t         *testing.T
	settings  config.Settings
	rdb       *redis.Client
	namespace string
	registry  *prometheus.Registry // of locker
	locker    *lock.Locker
}

func newHouse(t *testing.T, changes ...func(*config.Locks)) *house {
	t.Helper()
	h := &house{t: t, settings: fixture.Settings(t)}
	h.namespace = h.settings.Redis.Namespace
	h.rdb, h.registry, h.locker = h.process(changes...)
	return h
}

// process returns what another process of the house would have.
func (h *house) process(changes ...func(*config.Locks)) (*redis.Client, *prometheus.Registry, *lock.Locker) {
	h.t.Helper()
	for _, change := range changes {
		change(&h.settings.Locks)
	}
	rdb, registry := fixture.Redis(h.t, h.settings), prometheus.NewRegistry()
	return rdb, registry, lock.New([]redis.UniversalClient{rdb}, h.namespace, h.settings.Locks, registry)
}

// key returns the Redis key of a lock.
func (h *house) key(name string) string { return h.namespace + ":lock:" + name }

// value returns what holds a lock, or nothing.
func (h *house) value(name string) string {
	h.t.Helper()
	value, err := h.rdb.Get(h.t.Context(), h.key(name)).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		h.t.Fatal(err)
	}
	return value
}

// tries tells whether a lock can be had at the moment.
func (h *house) tries(name string) bool {
	h.t.Helper()
	ran := false
	err := h.locker.While(h.t.Context(), name, long, func(context.Context) { ran = true })
	if (err == nil) != ran || err != nil && !errors.Is(err, lock.ErrTaken) {
		h.t.Fatalf("ran: %v, error: %v", ran, err)
	}
	return ran
}

// await fails the test when a context does not end.
func await(t *testing.T, ctx context.Context) { //nolint:revive // the context is what is tested
	t.Helper()
	select {
	case <-ctx.Done():
	case <-time.After(30 * time.Second):
		t.Error("the context does not end")
	}
}

func TestALockIsHeldWhileTheWorkRunsAndFreeAfter(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	ran := false
	err := h.locker.While(t.Context(), "a", long, func(ctx context.Context) {
		ran = true
		if h.tries("a") {
			t.Error("a second holder")
		}
		if !h.tries("b") {
			t.Error("another lock is taken too")
		}
		if elsewhere := newHouse(t); !elsewhere.tries("a") {
			t.Error("the lock is taken in another namespace too")
		}
		if ctx.Err() != nil {
			t.Errorf("the context has ended: %v", context.Cause(ctx))
		}
	})
	if err != nil || !ran {
		t.Fatalf("ran: %v, error: %v", ran, err)
	}
	if holder := h.value("a"); holder != "" {
		t.Errorf("after the work %q holds it", holder)
	}
	if !h.tries("a") {
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
	h := newHouse(t)
	if err := h.rdb.Set(t.Context(), h.key("a"), "somebody", long).Err(); err != nil {
		t.Fatal(err)
	}
	tries := &counter{command: "set"}
	h.rdb.AddHook(tries)
	err := h.locker.While(t.Context(), "a", long, func(context.Context) { t.Error("it ran") })
	if !errors.Is(err, lock.ErrTaken) {
		t.Errorf("got %v", err)
	}
	if n := tries.sent.Load(); n != 1 {
		t.Errorf("%d attempts", n)
	}
	if holder := h.value("a"); holder != "somebody" {
		t.Errorf("now %q holds it", holder)
	}
}

func TestOfManyOnlyOneHoldsALock(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	const tried = 20
	var inside, most, taken atomic.Int64
	over := make(chan error, tried)
	gate := make(chan struct{})
	for range tried {
		go func() {
			<-gate
			over <- h.locker.While(t.Context(), "a", long, func(context.Context) {
				most.Store(max(most.Load(), inside.Add(1)))
				for taken.Load() < tried-1 { // until everybody else was refused
					time.Sleep(time.Millisecond)
				}
				inside.Add(-1)
			})
		}()
	}
	close(gate)
	held := 0
	for range tried {
		switch err := <-over; {
		case err == nil:
			held++
		case errors.Is(err, lock.ErrTaken):
			taken.Add(1)
		default:
			t.Error(err)
			taken.Add(1)
		}
	}
	if held != 1 || most.Load() != 1 {
		t.Errorf("%d held it, %d at once", held, most.Load())
	}
}

func TestTheEndOfTheCallerIsNoLoss(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	reason := errors.New("shutting down")
	ctx, end := context.WithCancelCause(t.Context())
	err := h.locker.While(ctx, "a", long, func(held context.Context) {
		end(reason)
		await(t, held)
		if cause := context.Cause(held); !errors.Is(cause, reason) {
			t.Errorf("the cause is %v", cause)
		}
	})
	if err != nil {
		t.Errorf("got %v", err)
	}
	if holder := h.value("a"); holder != "" {
		t.Errorf("%q still holds it", holder)
	}
	err = h.locker.While(ctx, "a", long, func(context.Context) { t.Error("it ran for a caller who is gone") })
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
	settings := fixture.Defaults(t)
	settings.Redis.URL = "redis://" + address + "/0"
	locker := lock.New([]redis.UniversalClient{fixture.Redis(t, settings)}, "ns", settings.Locks, prometheus.NewRegistry())
	err = locker.While(t.Context(), "a", short, func(context.Context) { t.Error("it ran") })
	if !errors.Is(err, lock.ErrNoQuorum) || errors.Is(err, lock.ErrTaken) || errors.Is(err, lock.ErrLost) {
		t.Errorf("got %v", err)
	}
}
