package batch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

var errLocked = errors.New("the row is locked")

// rows is a flush that fails for locked keys and records its flushes.
type rows struct {
	mu      sync.Mutex
	locked  map[string]bool
	takes   time.Duration
	flushes []string
	at      map[string]int // flushes under way
	most    int
}

func (r *rows) flush(_ context.Context, f FlushInfo[string], items []int) ([]int, error) {
	r.mu.Lock()
	r.flushes = append(r.flushes, fmt.Sprint(f.Key, " ", items, " ", f.Retry))
	if r.at[f.Key]++; r.at[f.Key] > 1 {
		panic("two flushes of one key")
	}
	locked := r.locked[f.Key]
	under := 0
	for _, n := range r.at {
		under += n
	}
	r.most = max(r.most, under)
	takes := r.takes
	r.mu.Unlock()
	time.Sleep(takes)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.at[f.Key]--
	if locked {
		return nil, errLocked
	}
	return items, nil
}

func queues(r *rows, change ...func(*QueueOptions)) *Queues[string, int, int] {
	r.at = make(map[string]int)
	o := QueueOptions{Size: 4, InFlight: 2, Retrying: 1, Backoff: 100 * time.Millisecond, Pending: 100, Timeout: time.Second, Drain: time.Minute,
		Requeue: func(err error) bool { return errors.Is(err, errLocked) }}
	for _, c := range change {
		c(&o)
	}
	return NewQueues(o, r.flush)
}

// send adds items to the queue of a key and returns a function that waits for their results.
func send(q *Queues[string, int, int], key string, items ...int) (wait func() []error) {
	var all sync.WaitGroup
	errs := make([]error, len(items))
	for i, item := range items {
		all.Go(func() {
			result, err := q.Do(context.Background(), key, item)
			if err == nil && result != item {
				err = fmt.Errorf("%d got %d", item, result)
			}
			errs[i] = err
		})
		synctest.Wait() // in this order
	}
	return func() []error { all.Wait(); return errs }
}

func TestAKeyIsOneQueueWithOneFlightAtATime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &rows{takes: time.Second}
		q := queues(r)
		a, b, c := send(q, "a", 1, 2, 3, 4, 5, 6), send(q, "b", 7), send(q, "c", 8)
		if n := q.Pending("a"); n != 5 {
			t.Errorf("%d wait", n)
		}
		if errs := append(append(a(), b()...), c()...); errors.Join(errs...) != nil {
			t.Error(errs)
		}
		want := []string{"a [1] false", "b [7] false", "c [8] false", "a [2 3 4 5] false", "a [6] false"}
		if slices.Sort(r.flushes[2:4]); !slices.Equal(r.flushes, []string{want[0], want[1], want[3], want[2], want[4]}) || r.most != 2 {
			t.Errorf("%q, %d at once", r.flushes, r.most)
		}
		q.Close()
		if len(q.queues) > 0 || q.pending != 0 {
			t.Errorf("%d queues and %d items are left", len(q.queues), q.pending)
		}
	})
}

// More keys are locked than there are flushes. While they are, the others are served
// as if they were alone; when they no longer are, they are served too.
func TestLockedKeysDelayNoOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &rows{takes: time.Millisecond, locked: make(map[string]bool)}
		q := queues(r)
		var stuck []func() []error
		for i := range 10 {
			key := fmt.Sprint("locked-", i)
			r.locked[key] = true
			stuck = append(stuck, send(q, key, i))
		}
		time.Sleep(20 * time.Millisecond)
		const waits = 50 * time.Millisecond // of a flush, for a locked row
		r.mu.Lock()
		r.takes = waits
		r.mu.Unlock()
		time.Sleep(300 * time.Millisecond)
		began := time.Now()
		if err := errors.Join(send(q, "free", 1)()...); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > waits {
			t.Errorf("it took %s", took)
		}
		r.mu.Lock()
		clear(r.locked)
		r.takes = 0
		r.mu.Unlock()
		for _, wait := range stuck {
			if err := errors.Join(wait()...); err != nil {
				t.Error(err)
			}
		}
		q.Close()
	})
}

func TestWhatStaysLockedFailsInTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &rows{takes: 10 * time.Millisecond, locked: map[string]bool{"a": true}}
		q := queues(r)
		began := time.Now()
		errs := send(q, "a", 1, 2, 3, 4, 5, 6)()
		for _, err := range errs {
			if !errors.Is(err, errLocked) {
				t.Error(err)
			}
		}
		if took := time.Since(began); took > time.Second || took < 700*time.Millisecond {
			t.Errorf("it took %s", took)
		}
		if q.Close(); len(q.queues) > 0 || q.pending != 0 {
			t.Errorf("%d queues and %d items are left", len(q.queues), q.pending)
		}
	})
}

func TestAQueueLeavesRoomForOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &rows{takes: time.Second, locked: map[string]bool{"a": true}}
		q := queues(r, func(o *QueueOptions) { o.Pending, o.Timeout = 8, time.Hour })
		first := send(q, "a", 0)
		synctest.Wait()
		stuck := send(q, "a", 1, 2, 3, 4)
		synctest.Wait()
		if err := errors.Join(send(q, "a", 5)()...); !errors.Is(err, ErrFull) {
			t.Errorf("more than half: %v", err)
		}
		if err := errors.Join(send(q, "b", 6)()...); err != nil {
			t.Errorf("another: %v", err)
		}
		q.Close()
		_, _ = first(), stuck()
	})
}

func TestQueuesAreBoundedAndClose(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &rows{takes: time.Second, locked: map[string]bool{"a": true}}
		q := queues(r, func(o *QueueOptions) { o.Pending, o.Timeout = 3, time.Hour })
		stuck, ok := send(q, "a", 1), send(q, "b", 2, 3)
		if err := errors.Join(send(q, "c", 4)()...); !errors.Is(err, ErrFull) {
			t.Error(err)
		}
		began := time.Now()
		q.Close()
		if took := time.Since(began); took < time.Minute || took > time.Minute+2*time.Second {
			t.Errorf("it took %s to close", took)
		}
		if err := errors.Join(ok()...); err != nil {
			t.Error(err)
		}
		if err := errors.Join(stuck()...); !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
		if _, err := q.Do(t.Context(), "a", 1); !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
		time.Sleep(time.Minute) // what backedOff has gone
		if len(q.queues) > 0 || q.pending != 0 {
			t.Errorf("%d queues and %d items are left", len(q.queues), q.pending)
		}
	})
}
