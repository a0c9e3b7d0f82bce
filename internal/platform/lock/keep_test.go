package lock_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"triprize/internal/platform/lock"
)

func TestALockIsKeptWellPastItsLife(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	err := h.locker.While(t.Context(), "a", short, func(ctx context.Context) {
		mine := h.value("a")
		select {
		case <-ctx.Done():
			t.Errorf("lost: %v", context.Cause(ctx))
		case <-time.After(2 * short): // what it would have lived for is over
		}
		if now := h.value("a"); now != mine || mine == "" {
			t.Errorf("%q holds it, and %q did", now, mine)
		}
	})
	if err != nil {
		t.Error(err)
	}
}

func TestALockThatIsGoneIsLost(t *testing.T) {
	t.Parallel()
	for what, take := range map[string]func(h *house) error{
		"deleted": func(h *house) error { return h.rdb.Del(t.Context(), h.key("a")).Err() },
		"taken by another": func(h *house) error {
			return h.rdb.Set(t.Context(), h.key("a"), "another", long).Err()
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			h := newHouse(t)
			extensions := &counter{command: "evalsha"} // a server that does not know the script gets an EVAL as well
			h.rdb.AddHook(extensions)
			finished := false
			err := h.locker.While(t.Context(), "a", short, func(ctx context.Context) {
				if err := take(h); err != nil {
					t.Error(err)
					return
				}
				before := extensions.sent.Load()
				await(t, ctx)
				if cause := context.Cause(ctx); !errors.Is(cause, lock.ErrLost) {
					t.Errorf("the cause is %v", cause)
				}
				if n := extensions.sent.Load() - before; n != 1 {
					t.Errorf("it took %d extensions to see that", n)
				}
				finished = true
			})
			if !errors.Is(err, lock.ErrLost) || !finished {
				t.Errorf("finished: %v, error: %v", finished, err)
			}
			if holder := h.value("a"); what == "taken by another" && holder != "another" {
				t.Errorf("the former holder released what %q has", holder)
			}
		})
	}
}

// failing fails extensions of locks while it is on, as a Redis that is away does.
type failing struct {
	on     atomic.Bool
	failed atomic.Int64
}

func (*failing) DialHook(next redis.DialHook) redis.DialHook { return next }

func (f *failing) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if f.on.Load() && strings.HasPrefix(cmd.Name(), "eval") {
			f.failed.Add(1)
			cmd.SetErr(errors.New("redis is away"))
			return cmd.Err()
		}
		return next(ctx, cmd)
	}
}

func (*failing) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func TestAShortOutageDoesNotLoseALock(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	outage := &failing{}
	h.rdb.AddHook(outage)
	err := h.locker.While(t.Context(), "a", short, func(ctx context.Context) {
		outage.on.Store(true)
		for outage.failed.Load() == 0 && ctx.Err() == nil { // after a third of its life
			time.Sleep(time.Millisecond)
		}
		outage.on.Store(false)
		select {
		case <-ctx.Done():
			t.Errorf("lost: %v", context.Cause(ctx))
		case <-time.After(2 * short):
		}
	})
	if err != nil || outage.failed.Load() == 0 {
		t.Errorf("%v, %d extensions failed", err, outage.failed.Load())
	}
}

func TestALongOutageLosesALock(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	outage := &failing{}
	h.rdb.AddHook(outage)
	err := h.locker.While(t.Context(), "a", short, func(ctx context.Context) {
		outage.on.Store(true)
		await(t, ctx)
		if cause := context.Cause(ctx); !errors.Is(cause, lock.ErrLost) {
			t.Errorf("the cause is %v", cause)
		}
	})
	if !errors.Is(err, lock.ErrLost) {
		t.Errorf("got %v", err)
	}
	if n := outage.failed.Load(); n < 2 {
		t.Errorf("given up after %d attempts", n)
	}
}

func TestALossEndsTheWorkAndWhileWaitsForIt(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	working, over := make(chan struct{}), make(chan error, 1)
	lost := make(chan struct{})
	go func() {
		over <- h.locker.While(t.Context(), "a", short, func(ctx context.Context) {
			await(t, ctx)
			close(lost)
			<-working
		})
	}()
	for h.value("a") == "" {
		time.Sleep(time.Millisecond)
	}
	if err := h.rdb.Del(t.Context(), h.key("a")).Err(); err != nil {
		t.Fatal(err)
	}
	<-lost
	select {
	case err := <-over:
		t.Fatalf("it returned %v and the work goes on", err)
	case <-time.After(50 * time.Millisecond): // long enough for one that does not wait
	}
	close(working)
	if err := <-over; !errors.Is(err, lock.ErrLost) {
		t.Errorf("got %v", err)
	}
}

// stuck holds up the first extension until it is let go, whatever the context says.
type stuck struct {
	first        atomic.Bool
	entered, out chan struct{}
}

func (*stuck) DialHook(next redis.DialHook) redis.DialHook { return next }

func (s *stuck) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if strings.HasPrefix(cmd.Name(), "eval") && s.first.CompareAndSwap(false, true) {
			close(s.entered)
			<-s.out
		}
		return next(ctx, cmd)
	}
}

func (*stuck) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func TestNothingOfALockRunsOnAfterItsEnd(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	extension := &stuck{entered: make(chan struct{}), out: make(chan struct{})}
	h.rdb.AddHook(extension)
	over := make(chan error, 1)
	go func() {
		over <- h.locker.While(t.Context(), "a", short, func(context.Context) { <-extension.entered })
	}()
	<-extension.entered
	select {
	case err := <-over:
		t.Errorf("it returned %v in the middle of an extension", err)
		over <- err
	case <-time.After(50 * time.Millisecond): // long enough for one that does not wait
	}
	close(extension.out)
	if err := <-over; err != nil {
		t.Error(err)
	}
	if holder := h.value("a"); holder != "" {
		t.Errorf("%q still holds it", holder)
	}
}
