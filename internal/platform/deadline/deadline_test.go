package deadline_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"triprize/internal/platform/deadline"
)

func ended(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return true
	default:
		return false
	}
}

func TestItEndsAtItsTimeWhetherSomebodyWaitsOrNot(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, waits := range []bool{false, true} {
			ctx, cancel := deadline.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if waits && ended(ctx) {
				t.Error("it has ended at once")
			}
			time.Sleep(time.Second - time.Nanosecond)
			synctest.Wait()
			if err := ctx.Err(); err != nil {
				t.Errorf("just before: %v", err)
			}
			time.Sleep(time.Nanosecond)
			synctest.Wait()
			if err := ctx.Err(); !errors.Is(err, context.DeadlineExceeded) || !ended(ctx) || !errors.Is(ctx.Err(), context.DeadlineExceeded) {
				t.Errorf("afterwards: %v, then %v", err, ctx.Err())
			}
		}
	})
}

func TestItEndsWhenItIsCancelled(t *testing.T) {
	t.Parallel()
	for _, waits := range []bool{false, true} {
		ctx, cancel := deadline.WithTimeout(t.Context(), time.Hour)
		if waits && ended(ctx) {
			t.Error("it has ended at once")
		}
		cancel()
		cancel()
		if err := ctx.Err(); !errors.Is(err, context.Canceled) || !ended(ctx) || !errors.Is(ctx.Err(), context.Canceled) {
			t.Errorf("%v, then %v", err, ctx.Err())
		}
	}
}

func TestItsErrorStaysTheSame(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for want, cancelledAfter := range map[error]time.Duration{context.Canceled: time.Second - 1, context.DeadlineExceeded: time.Second} {
			ctx, cancel := deadline.WithTimeout(t.Context(), time.Second)
			time.Sleep(cancelledAfter)
			cancel()
			time.Sleep(time.Second)
			if err := ctx.Err(); !errors.Is(err, want) || !ended(ctx) || !errors.Is(ctx.Err(), want) {
				t.Errorf("cancelled after %s: %v, then %v", cancelledAfter, err, ctx.Err())
			}
		}
	})
}

func TestItEndsWithItsParentAndItsChildrenWithIt(t *testing.T) {
	t.Parallel()
	type key struct{}
	parent, end := context.WithCancel(context.WithValue(t.Context(), key{}, "a value"))
	ctx, cancel := deadline.WithTimeout(parent, time.Hour)
	defer cancel()
	child, cancelChild := context.WithTimeout(ctx, time.Hour)
	defer cancelChild()
	if child.Value(key{}) != "a value" || ctx.Value(key{}) != "a value" {
		t.Error("it lacks its parent's value")
	}
	end()
	<-child.Done()
	if !errors.Is(ctx.Err(), context.Canceled) || !errors.Is(child.Err(), context.Canceled) {
		t.Errorf("%v, %v", ctx.Err(), child.Err())
	}
	unwaited, cancel := deadline.WithTimeout(parent, time.Hour)
	defer cancel()
	if !errors.Is(unwaited.Err(), context.Canceled) {
		t.Errorf("of an ended parent: %v", unwaited.Err())
	}
}

func TestItsChildrenCostNoGoroutines(t *testing.T) { //nolint:paralleltest // counts goroutines
	const children = 1000
	parent, end := context.WithCancel(t.Context())
	defer end()
	ctx, cancel := deadline.WithTimeout(parent, time.Hour)
	defer cancel()
	before := runtime.NumGoroutine()
	for range children {
		_, cancel := context.WithCancel(ctx)
		defer cancel()
	}
	if n := runtime.NumGoroutine() - before; n > children/2 {
		t.Errorf("%d goroutines for %d children", n, children)
	}
}

func TestItsTimeIsTheEarlierOne(t *testing.T) {
	t.Parallel()
	parent, end := context.WithTimeout(t.Context(), time.Minute)
	defer end()
	want, _ := parent.Deadline()
	for timeout, is := range map[time.Duration]func(time.Time) bool{time.Hour: want.Equal, time.Second: want.After} {
		ctx, cancel := deadline.WithTimeout(parent, timeout)
		defer cancel()
		if at, ok := ctx.Deadline(); !ok || !is(at) {
			t.Errorf("after %s at most: %s, and its parent's is %s", timeout, at, want)
		}
	}
}
