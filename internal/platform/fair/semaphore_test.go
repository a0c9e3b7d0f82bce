package fair

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func open(Caller) (ofClient, ofCaller int) { return math.MaxInt, math.MaxInt }

// queued makes callers wait in this order, and returns in which order they come in, one
// after the other.
func queued(t *testing.T, s *Semaphore, callers ...Caller) (order []Caller) {
	t.Helper()
	leave, err := s.Acquire(t.Context(), Caller{Client: "first"})
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for _, c := range callers {
		all.Go(func() {
			leave, err := s.Acquire(t.Context(), c)
			if err != nil {
				t.Error(err)
				return
			}
			order = append(order, c)
			leave()
		})
		synctest.Wait()
	}
	leave()
	all.Wait()
	return order
}

func TestClientsTakeTurnsAndWithinOneItsUsers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := New(Options{Total: 1, MaxWaiting: 100, MaxWaitingOf: open})
		a1, a2, b := Caller{"a", "1"}, Caller{"a", "2"}, Caller{Client: "b"}
		order := queued(t, s, a1, a1, a1, a1, a2, b, b)
		if want := []Caller{a1, b, a2, b, a1, a1, a1}; !slices.Equal(order, want) {
			t.Errorf("they came in as %v", order)
		}
		if len(s.clients) != 0 || s.active != 0 || s.waiting != 0 {
			t.Errorf("afterwards %d clients, %d inside, %d waiting", len(s.clients), s.active, s.waiting)
		}
	})
}

func TestAFullWindowLetsOthersPast(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		window := func(_ string, others int) int {
			if others > 0 {
				return 2
			}
			return 5
		}
		s := New(Options{MaxWaiting: 100, Window: window, MaxWaitingOf: open})
		var leave []func()
		enter := func(client string) (isIn bool) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			defer cancel()
			l, err := s.Acquire(ctx, Caller{Client: client})
			if err == nil {
				leave = append(leave, l)
			}
			return err == nil
		}
		for i := range 6 {
			if enter("flood") != (i < 5) {
				t.Errorf("alone, request %d", i+1)
			}
		}
		for i := range 3 {
			if enter("quiet") != (i < 2) {
				t.Errorf("another client has a window of its own: request %d", i+1)
			}
		}
		for range 3 {
			leave[0]()
			leave = leave[1:]
			if enter("flood") {
				t.Error("the window of a client that is not alone is smaller")
			}
		}
		for _, l := range leave {
			l()
			l() // counts once
		}
		time.Sleep(2 * recentFor)
		leave = nil
		for i := range 6 {
			if enter("flood") != (i < 5) {
				t.Errorf("alone again, request %d", i+1)
			}
		}
	})
}

func TestWaitingHasBounds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := New(Options{Total: 1, MaxWaiting: 3, MaxWaitingOf: func(Caller) (int, int) { return 2, 1 }})
		leave, err := s.Acquire(t.Context(), Caller{Client: "a"})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		for _, step := range []struct {
			caller Caller
			want   error
		}{{Caller{"a", "1"}, context.Canceled}, {Caller{"a", "1"}, ErrCallerQueueFull}, {Caller{"a", "2"}, context.Canceled}, {Caller{"a", "3"}, ErrCallerQueueFull},
			{Caller{Client: "b"}, context.Canceled}, {Caller{Client: "c"}, ErrQueueFull}} {
			go func() {
				if _, err := s.Acquire(ctx, step.caller); !errors.Is(err, step.want) {
					t.Errorf("%v: %v, want %v", step.caller, err, step.want)
				}
			}()
			synctest.Wait()
		}
		cancel()
		synctest.Wait()
		leave()
		if len(s.clients) != 0 || s.active != 0 || s.waiting != 0 || s.rotation.Len() != 0 {
			t.Errorf("afterwards %d clients, %d inside, %d waiting", len(s.clients), s.active, s.waiting)
		}
	})
}

// A greedy owner has as much as stays free, however often it asks; a newcomer is in at once.
func TestAGreedyOwnerLeavesRoomForTheNext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, got := NewPool(16), map[string]int{}
		ask := func(owner string, times int) {
			for range times {
				go func() {
					if _, err := r.Acquire(t.Context(), owner, 1); err == nil {
						got[owner]++ // one at a time: synctest waits
					}
				}()
				synctest.Wait()
			}
		}
		for i, want := range []int{8, 4, 2, 1, 1, 0} {
			owner := fmt.Sprint(i)
			if ask(owner, 100); got[owner] != want {
				t.Errorf("greedy owner %d has %d, want %d", i, got[owner], want)
			}
		}
	})
}

// When all is taken, turns go round by owner: a thousand that one has waiting are one turn
// of it in each round.
func TestTurnsGoRoundByOwner(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := NewPool(1)
		release, _ := r.Acquire(t.Context(), "greedy", 1)
		entered := make(chan string)
		wait := func(owner string, times int) {
			for range times {
				go func() {
					release, err := r.Acquire(t.Context(), owner, 1)
					if err == nil {
						entered <- owner
						release()
						release() // does nothing
					}
				}()
				synctest.Wait()
			}
		}
		wait("greedy", 1000)
		wait("a", 3)
		wait("b", 2)
		release()
		var order string
		for range 9 {
			order += (<-entered)[:1]
		}
		if order != "gabgabgag" {
			t.Errorf("the turns were %s", order)
		}
		for range 1000 - 4 {
			<-entered
		}
		synctest.Wait()
		if r.free != 1 || len(r.held)+len(r.waiting)+len(r.order) != 0 {
			t.Errorf("left are %+v", r)
		}
	})
}

// One that wants much and has nothing is not overtaken; when it gives up, those behind go on.
func TestTheLargeAreNotOvertaken(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := NewPool(10)
		release, _ := r.Acquire(t.Context(), "first", 5)
		ctx, giveUp := context.WithCancel(t.Context())
		var large error
		go func() { _, large = r.Acquire(ctx, "large", 8) }()
		synctest.Wait()
		var small bool
		go func() { _, err := r.Acquire(t.Context(), "small", 1); small = err == nil }()
		if synctest.Wait(); small {
			t.Error("it was overtaken")
		}
		giveUp()
		if synctest.Wait(); !errors.Is(large, context.Canceled) || !small {
			t.Errorf("the large one: %v; the small one is in: %t", large, small)
		}
		release()
		if r.free != 9 {
			t.Errorf("%d are free", r.free)
		}
	})
}
