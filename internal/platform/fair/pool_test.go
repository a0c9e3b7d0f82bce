package fair

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
)

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
