package lock_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"triprize/internal/platform/lock"
)

const brief = 300 * time.Millisecond // the life of locks whose expiry is waited for

// lost waits for the loss of a lock.
func lost(t *testing.T, held *lock.Held) {
	t.Helper()
	select {
	case <-held.Lost():
	case <-time.After(30 * time.Second):
		t.Fatal("it is not lost")
	}
}

func TestALockIsHeldForAsLongAsItsHolderLives(t *testing.T) {
	t.Parallel()
	h := newHouse(t, lasting(brief))
	rival, _, other := h.process()
	held := acquire(t, h.locker, "a", "b")
	for end := time.Now().Add(3 * brief); time.Now().Before(end); {
		for _, name := range []string{"a", "b"} {
			if _, err := other.Acquire(t.Context(), name); !errors.Is(err, lock.ErrTaken) {
				t.Fatalf("of %s: %v", name, err)
			}
		}
	}
	select {
	case <-held.Lost():
		t.Error("it is lost")
	default:
	}
	held.Release(t.Context())
	acquire(t, other, "a", "b").Release(t.Context())
	if n := measured(t, h.registry, "triprize_lock_lost_total", ""); n != 0 || rival == nil {
		t.Errorf("%d were lost", n)
	}
}

func TestMostLocksAreNeverExtended(t *testing.T) {
	t.Parallel()
	h := newHouse(t, lasting(brief))
	extensions := &counter{command: "eval"}
	held := acquire(t, h.locker, "a")
	h.rdb.AddHook(extensions)
	held.Release(t.Context())
	select {
	case <-held.Lost():
		t.Error("it is lost")
	case <-time.After(brief):
	}
	if n := extensions.sent.Load(); n > 2 { // EVALSHA, and EVAL on a server that does not know the script
		t.Errorf("%d commands for one release", n)
	}
}

func TestAnExpiredLockIsNeverExtended(t *testing.T) {
	t.Parallel()
	h := newHouse(t, lasting(brief))
	_, _, other := h.process()
	outage, extensions := &failing{}, &counter{command: "eval"}
	h.rdb.AddHook(extensions)
	h.rdb.AddHook(outage)
	held := acquire(t, h.locker, "a")
	outage.on.Store(true)
	lost(t, held)
	if n := outage.failed.Load(); n < 2 {
		t.Errorf("given up after %d attempts", n)
	}
	for h.value("a") != "" { // its expiry here is a little before that on the server
		time.Sleep(time.Millisecond)
	}
	outage.on.Store(false)
	sent := extensions.sent.Load()
	time.Sleep(brief) // in which it would be extended, or made anew
	if n := extensions.sent.Load() - sent; n != 0 || h.value("a") != "" {
		t.Errorf("%d more commands, and %q holds it", n, h.value("a"))
	}
	theirs := acquire(t, other, "a")
	mine := h.value("a")
	held.Release(t.Context())
	if now := h.value("a"); now != mine || mine == "" {
		t.Errorf("the former holder released what is another's: %q, now %q", mine, now)
	}
	theirs.Release(t.Context())
	if n := measured(t, h.registry, "triprize_lock_lost_total", ""); n != 1 {
		t.Errorf("%d losses are counted", n)
	}
}

// A server whose clock is slow still has a lock that has run out for its holder.
func TestALockThatRanOutForItsHolderIsNotExtendedThoughTheServerHasIt(t *testing.T) {
	t.Parallel()
	h := newHouse(t, lasting(brief))
	elsewhere, _, _ := h.process()
	extension := &stuck{entered: make(chan struct{}), out: make(chan struct{})}
	h.rdb.AddHook(extension)
	held := acquire(t, h.locker, "a")
	<-extension.entered // a third of its life is over: the holder is paused here
	if err := elsewhere.Persist(t.Context(), h.key("a")).Err(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(brief)
	close(extension.out)
	lost(t, held)
	if ttl := elsewhere.PTTL(t.Context(), h.key("a")).Val(); ttl != -1 {
		t.Errorf("it was extended to %s", ttl)
	}
	held.Release(t.Context())
	if h.value("a") != "" {
		t.Error("and it is not given back")
	}
}

func TestALockThatIsTakenAwayIsLostAndTheNewHoldersStays(t *testing.T) {
	t.Parallel()
	h := newHouse(t, lasting(brief))
	elsewhere, _, _ := h.process()
	held := acquire(t, h.locker, "a", "b")
	if err := elsewhere.Set(t.Context(), h.key("b"), "another", 10*brief).Err(); err != nil {
		t.Fatal(err)
	}
	lost(t, held)
	held.Release(t.Context())
	if h.value("a") != "" || h.value("b") != "another" {
		t.Errorf("a %q, b %q", h.value("a"), h.value("b"))
	}
	if ttl := elsewhere.PTTL(t.Context(), h.key("b")).Val(); ttl < 5*brief {
		t.Errorf("the new holder's lock has only %s left", ttl)
	}
}

func TestReleaseCanBeCalledAgainByAnybody(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	_, _, other := h.process()
	held := acquire(t, h.locker, "a")
	ctx, leave := context.WithCancel(t.Context())
	leave() // the request is over
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() {
			held.Release(ctx)
			if held.Locks() && h.value("a") != "" {
				t.Error("it returned before the lock was free")
			}
		})
	}
	all.Wait()
	theirs := acquire(t, other, "a")
	mine, commands := h.value("a"), &counter{}
	h.rdb.AddHook(commands)
	held.Release(ctx)
	if commands.sent.Load() != 0 || h.value("a") != mine {
		t.Errorf("another release sent %d commands; %q has the lock of %q", commands.sent.Load(), h.value("a"), mine)
	}
	theirs.Release(t.Context())
}

// refusing notes which commands came after it was told to.
type refusing struct {
	counter
	on   atomic.Bool
	late atomic.Int64
}

func (r *refusing) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if r.on.Load() && strings.HasPrefix(cmd.Name(), "eval") {
			r.late.Add(1)
		}
		return next(ctx, cmd)
	}
}

func TestReleaseWaitsForTheExtensionUnderWay(t *testing.T) {
	t.Parallel()
	h := newHouse(t, lasting(brief))
	extension, after := &stuck{entered: make(chan struct{}), out: make(chan struct{})}, &refusing{}
	h.rdb.AddHook(after)
	h.rdb.AddHook(extension)
	held := acquire(t, h.locker, "a")
	<-extension.entered
	released := make(chan struct{})
	go func() { defer close(released); held.Release(t.Context()) }()
	select {
	case <-released:
		t.Error("it did not wait")
	case <-time.After(50 * time.Millisecond): // long enough for one that does not wait
	}
	close(extension.out)
	<-released
	after.on.Store(true)
	time.Sleep(brief / 2) // a next extension would be due
	if n := after.late.Load(); n != 0 || h.value("a") != "" {
		t.Errorf("%d commands after the release; %q holds it", n, h.value("a"))
	}
	select {
	case <-held.Lost():
		t.Error("who gives a lock back has not lost it")
	default:
	}
}

func TestLocksLeaveNoGoroutineBehind(t *testing.T) { // not parallel: it counts goroutines
	h := newHouse(t, lasting(brief))
	acquire(t, h.locker, "warm").Release(t.Context())
	before := goleak.IgnoreCurrent()
	held := acquire(t, h.locker, "a", "b", "c")
	time.Sleep(brief) // extended meanwhile
	held.Release(t.Context())
	gone := acquire(t, h.locker, "d")
	if err := h.rdb.Del(t.Context(), h.key("d")).Err(); err != nil {
		t.Fatal(err)
	}
	lost(t, gone) // and never released
	goleak.VerifyNone(t, before)
}
