package lock_test

import (
	"context"
	"sync"
	"testing"
)

func TestAnExtensionGivesALockItsWholeLifeAgain(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	held := acquire(t, s.locker, "a", "b")
	defer held.Release(t.Context())
	for _, name := range []string{"a", "b"} {
		if err := s.rdb.Expire(t.Context(), s.key(name), long/2).Err(); err != nil {
			t.Fatal(err)
		}
	}
	held.Extend()
	for _, name := range []string{"a", "b"} {
		if left := s.rdb.PTTL(t.Context(), s.key(name)).Val(); left <= long/2 || left > long {
			t.Errorf("%s has %s left", name, left)
		}
	}
	kept(t, held)
}

func TestALockThatIsGoneIsLostAndNotMadeAnew(t *testing.T) {
	t.Parallel()
	for what, holder := range map[string]string{"deleted": "", "taken by another": "another"} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s := newSpace(t)
			held := acquire(t, s.locker, "a", "b")
			if err := s.rdb.Del(t.Context(), s.key("b")).Err(); err != nil {
				t.Fatal(err)
			}
			if holder != "" {
				if err := s.rdb.Set(t.Context(), s.key("b"), holder, long/2).Err(); err != nil {
					t.Fatal(err)
				}
			}
			held.Extend()
			select {
			case <-held.Lost():
			default:
				t.Error("it is not lost")
			}
			held.Release(t.Context())
			if s.value("a") != "" || s.value("b") != holder {
				t.Errorf("a %q, b %q", s.value("a"), s.value("b"))
			}
			if left := s.rdb.PTTL(t.Context(), s.key("b")).Val(); left > long/2 {
				t.Errorf("the new holder's lock has %s left", left)
			}
			if n := measured(t, s.registry, "triprize_lock_lost_total", ""); n != 1 {
				t.Errorf("%d losses are counted", n)
			}
		})
	}
}

func TestReleaseCanBeCalledAgainByAnybody(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	_, _, other := s.process()
	held := acquire(t, s.locker, "a")
	ctx, leave := context.WithCancel(t.Context())
	leave() // the request is over
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() {
			held.Release(ctx)
			if held.Locks() && s.value("a") != "" {
				t.Error("it returned before the lock was free")
			}
		})
	}
	all.Wait()
	theirs := acquire(t, other, "a")
	holder, commands := s.value("a"), &counter{}
	s.rdb.AddHook(commands)
	held.Release(ctx)
	if commands.sent.Load() != 0 || s.value("a") != holder {
		t.Errorf("another release sent %d commands; %q has the lock of %q", commands.sent.Load(), s.value("a"), holder)
	}
	theirs.Release(t.Context())
}
