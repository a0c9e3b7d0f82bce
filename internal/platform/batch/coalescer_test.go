package batch

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// gate is a flush that waits to be let through.
type gate struct {
	entered chan int      // the size of a flush that has begun
	open    chan struct{} // one token lets one flush finish
}

func newGate() *gate { return &gate{entered: make(chan int, 100), open: make(chan struct{}, 100)} }

func (g *gate) flush(_ context.Context, items []int) ([]int, error) {
	g.entered <- len(items)
	<-g.open
	doubled := make([]int, len(items))
	for i, x := range items {
		doubled[i] = 2 * x
	}
	return doubled, nil
}

func options() Options {
	return Options{Size: 8, InFlight: 1, Pending: 100, Timeout: time.Minute}
}

func (g *gate) pass(n int) {
	for range n {
		g.open <- struct{}{}
	}
}

// waits blocks until nobody does anything any more, and fails the test unless n
// items are pending then.
func waits(t *testing.T, c *Coalescer[int, int], n int) {
	t.Helper()
	synctest.Wait()
	if c.Pending() != n {
		t.Errorf("%d items pending, want %d", c.Pending(), n)
	}
}

func TestArrivalsDuringAFlushFormTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		c := New(options(), g.flush)
		var wg sync.WaitGroup
		do := func(x int) {
			wg.Go(func() {
				if got, err := c.Do(t.Context(), x); err != nil || got != 2*x {
					t.Errorf("%d: got %d, %v", x, got, err)
				}
			})
		}
		do(1)
		if n := <-g.entered; n != 1 {
			t.Fatalf("the first flush has %d items: a lone caller waited for company", n)
		}
		for x := 2; x <= 12; x++ {
			do(x)
		}
		waits(t, c, 11)
		g.pass(3)
		if a, b := <-g.entered, <-g.entered; a != 8 || b != 3 {
			t.Errorf("flushes of %d and %d items, want 8 (the size) and 3", a, b)
		}
		wg.Wait()
		c.Close()
	})
}

func TestUnderLoadFlushesBeginApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		g.pass(100)
		opts := options()
		opts.InFlight, opts.OrderTimeout, opts.BusyInterval = 2, time.Hour, time.Second
		c := New(opts, g.flush)
		defer c.Close()
		for _, row := range []struct {
			items int
			after time.Duration
		}{{1, 0}, {1, 0}, {3, 0}, {3, time.Second}, {1, time.Second}, {1, 0}} { // a lone caller waits for the interval once
			began := time.Now()
			var all sync.WaitGroup
			for range row.items {
				if err := c.Submit(0); err != nil {
					t.Error(err)
				}
			}
			all.Wait()
			for n := 0; n < row.items; {
				n += <-g.entered
			}
			if took := time.Since(began); took != row.after {
				t.Errorf("%d items after %s, want %s", row.items, took, row.after)
			}
		}
	})
}

func TestFlushesBeginApartUnlessTheyAreFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		g.pass(100)
		opts := options()
		opts.MinInterval = time.Second
		c := New(opts, g.flush)
		began := time.Now()
		submit := func(n int) {
			for range n {
				if err := c.Submit(0); err != nil {
					t.Error(err)
				}
			}
			synctest.Wait()
		}
		flushed := func(after time.Duration, sizes ...int) {
			t.Helper()
			time.Sleep(time.Until(began.Add(after)))
			synctest.Wait()
			for _, want := range sizes {
				select {
				case n := <-g.entered:
					if n != want {
						t.Errorf("after %s: a flush of %d items, want %d", after, n, want)
					}
				default:
					t.Errorf("after %s: no flush, want one of %d items", after, want)
				}
			}
			if more := len(g.entered); more > 0 {
				t.Errorf("after %s: %d flushes more", after, more)
			}
		}
		submit(1)
		flushed(0, 1) // the first waits for nothing
		submit(2)
		flushed(999 * time.Millisecond)
		submit(1)
		flushed(time.Second, 3)
		submit(8)
		flushed(time.Second, 8) // it is full
		submit(1)
		c.Close() // what waits is flushed at once
		if time.Since(began) != time.Second {
			t.Errorf("the end came after %s", time.Since(began))
		}
		flushed(time.Second, 1)
	})
}

// A flush may hang: on a dead connection, or behind somebody's lock.
func TestAFlushThatHangsHoldsUpTheNextForATimeOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		opts := options()
		opts.InFlight, opts.OrderTimeout = 2, time.Second
		c := New(opts, g.flush)
		submit := func(n int) {
			for range n {
				if err := c.Submit(0); err != nil {
					t.Error(err)
				}
			}
		}
		began := time.Now()
		submit(1)
		if n := <-g.entered; n != 1 {
			t.Fatalf("a flush of %d items", n)
		}
		submit(3)
		waits(t, c, 3)
		if n := <-g.entered; n != 3 || time.Since(began) != opts.OrderTimeout {
			t.Errorf("after %s a flush of %d items", time.Since(began), n)
		}
		submit(1)
		time.Sleep(opts.OrderTimeout)
		waits(t, c, 1) // two hang
		g.pass(1)
		if n := <-g.entered; n != 1 {
			t.Errorf("a flush of %d items", n)
		}
		g.pass(2)
		c.Close()
	})
}

func TestAFlushThatFailsIsTriedInHalvesUnlessItConcernsAll(t *testing.T) {
	bad, away := errors.New("bad item"), errors.New("database is away")
	for name, row := range map[string]struct {
		fail   func(items []int) error
		failed []int // of 1 to 8
		is     error
		most   int // items that are flushed, each time that they are
	}{
		"a bad item": {func(items []int) error {
			if slices.Contains(items, 5) {
				return bad
			}
			return nil
		}, []int{5}, bad, 8 + 8 + 4 + 2},
		"a panic": {func(items []int) error {
			if slices.Contains(items, 3) {
				panic("three")
			}
			return nil
		}, []int{3}, nil, 8 + 8 + 4 + 2},
		"a fault of the whole": {func([]int) error { return away }, []int{1, 2, 3, 4, 5, 6, 7, 8}, away, 8},
	} {
		flushed := 0
		opts := options()
		opts.Whole = func(err error) bool { return errors.Is(err, away) }
		c := New(opts, func(_ context.Context, items []int) ([]int, error) {
			flushed += len(items)
			return items, row.fail(items)
		})
		items := []int{1, 2, 3, 4, 5, 6, 7, 8}
		results, errs := DoAll(t.Context(), items, always(c))
		c.Close()
		for i, x := range items {
			if fails := slices.Contains(row.failed, x); (errs[i] != nil) != fails || !fails && results[i] != x || fails && row.is != nil && !errors.Is(errs[i], row.is) {
				t.Errorf("%s: item %d: %d, %v", name, x, results[i], errs[i])
			}
		}
		if flushed > row.most {
			t.Errorf("%s: %d items were flushed", name, flushed)
		}
	}
}

func TestAFullQueueRefusesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		opts := options()
		opts.Pending = 2
		c := New(opts, g.flush)
		var wg sync.WaitGroup
		wg.Go(func() { _, _ = c.Do(t.Context(), 1) })
		<-g.entered
		for x := 2; x <= 3; x++ {
			wg.Go(func() { _, _ = c.Do(t.Context(), x) })
		}
		waits(t, c, 2)
		if _, err := c.Do(t.Context(), 4); !errors.Is(err, ErrFull) {
			t.Errorf("got %v, want ErrFull", err)
		}
		g.pass(100)
		wg.Wait()
		c.Close()
	})
}

func TestCloseDrainsAndRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		c := New(options(), g.flush)
		var wg sync.WaitGroup
		do := func(x int) {
			wg.Go(func() {
				if _, err := c.Do(t.Context(), x); err != nil {
					t.Errorf("%d was lost at the close: %v", x, err)
				}
			})
		}
		do(0)
		<-g.entered
		for x := range 19 {
			do(x + 1)
		}
		waits(t, c, 19)
		g.pass(100)
		c.Close()
		wg.Wait()
		if _, err := c.Do(t.Context(), 1); !errors.Is(err, ErrClosed) {
			t.Errorf("got %v, want ErrClosed", err)
		}
		c.Close() // twice does no harm
	})
}

func TestACallerThatGivesUpLeavesTheOthersAlone(t *testing.T) {
	g := newGate()
	c := New(options(), g.flush)
	ctx, cancel := context.WithCancel(t.Context())
	var gone, other sync.WaitGroup
	gone.Go(func() {
		if _, err := c.Do(ctx, 1); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	})
	<-g.entered
	other.Go(func() {
		if got, err := c.Do(t.Context(), 2); err != nil || got != 4 {
			t.Errorf("got %d, %v", got, err)
		}
	})
	cancel()
	gone.Wait() // before its answer comes: of two it would have any
	g.pass(2)
	other.Wait()
	c.Close()
}

func TestNothingIsDoneForACallerThatHasGone(t *testing.T) {
	c := New(options(), func(_ context.Context, items []int) ([]int, error) {
		t.Errorf("flushed %v", items)
		return items, nil
	})
	gone, leave := context.WithCancel(t.Context())
	leave()
	for range 100 { // an answer would be a matter of chance
		if _, err := c.Do(gone, 1); !errors.Is(err, context.Canceled) {
			t.Fatalf("one: %v", err)
		}
		if _, errs := DoAll(gone, []int{1, 2}, always(c)); !errors.Is(errs[0], context.Canceled) || !errors.Is(errs[1], context.Canceled) {
			t.Fatalf("two: %v", errs)
		}
	}
	c.Close()
}

func TestCloseEndsWhatTakesTooLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := options()
		o.InFlight, o.Drain = 1, 50*time.Millisecond
		entered := make(chan struct{}, 1)
		flushes := 0
		c := New(o, func(ctx context.Context, _ []int) ([]int, error) {
			flushes++
			entered <- struct{}{}
			<-ctx.Done() // it hangs until it is ended
			return nil, ctx.Err()
		})
		var wg sync.WaitGroup
		do := func(x int) {
			wg.Go(func() {
				if _, err := c.Do(t.Context(), x); !errors.Is(err, ErrClosed) {
					t.Errorf("%d: got %v, want ErrClosed", x, err)
				}
			})
		}
		do(0)
		<-entered
		for x := range 50 {
			do(x + 1)
		}
		waits(t, c, 50)
		c.Close()
		wg.Wait()
		if flushes != 1 {
			t.Errorf("%d flushes, all but one after the end", flushes)
		}
	})
}

func TestUnderLoadAFlushWaitsForCompanyUntilItIsFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		opts := options()
		opts.Linger = time.Second
		c := New(opts, g.flush)
		began := time.Now()
		var wg sync.WaitGroup
		do := func(x int) { wg.Go(func() { _, _ = c.Do(t.Context(), x) }) }
		do(1)
		<-g.entered // alone, and at once
		do(2)
		do(3)
		waits(t, c, 2)
		g.pass(100)
		if n := <-g.entered; n != 2 || time.Since(began) != 0 {
			t.Errorf("%d items after %s", n, time.Since(began))
		}
		synctest.Wait()
		do(4)
		time.Sleep(opts.Linger / 2)
		do(5)
		if n := <-g.entered; n != 2 || time.Since(began) != opts.Linger {
			t.Errorf("%d items after %s", n, time.Since(began))
		}
		synctest.Wait()
		for x := range opts.Size {
			do(x)
		}
		if n := <-g.entered; n != opts.Size || time.Since(began) != opts.Linger {
			t.Errorf("%d items after %s", n, time.Since(began))
		}
		wg.Wait()
		c.Close()
	})
}

// always chooses one coalescer for each item.
func always[T, R any](c *Coalescer[T, R]) func(T) *Coalescer[T, R] {
	return func(T) *Coalescer[T, R] { return c }
}
