package readcache

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

const (
	maxAge = time.Second
	pause  = 100 * time.Millisecond
	took   = 10 * time.Millisecond // by a read
)

// source is what is read: a number that grows.
type source struct {
	now, reads atomic.Int64
	fails      atomic.Bool
}

var errAway = errors.New("away")

func (s *source) read(ctx context.Context, _ string) (int64, error) {
	s.reads.Add(1)
	seen := s.now.Load()
	select {
	case <-time.After(took):
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	if s.fails.Load() {
		return 0, errAway
	}
	return seen, nil
}

func (s *source) cache(entries, bytes int) *Cache[string, int64] {
	return New(Settings{MaxAge: maxAge, Pause: pause, Timeout: time.Minute, MaxEntries: entries, MaxBytes: bytes}, s.read, func(int64) int { return 8 })
}

func get(t *testing.T, c *Cache[string, int64], key string, isEnough func(Copy[int64]) bool) int64 {
	t.Helper()
	got, err := c.Get(t.Context(), key, isEnough)
	if err != nil {
		t.Error(err)
	}
	return got.Value
}

func atLeast(n int64) func(Copy[int64]) bool {
	return func(known Copy[int64]) bool { return known.Value >= n }
}

// crowd calls do n times at once and waits.
func crowd(n int, do func()) {
	var all sync.WaitGroup
	for range n {
		all.Go(do)
	}
	all.Wait()
}

func TestACrowdCostsOneRead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var s source
		c := s.cache(10, 1000)
		for second := range int64(3) {
			s.now.Store(second)
			for range 9 {
				crowd(100, func() {
					if got := get(t, c, "a", nil); got != second {
						t.Errorf("got %d in second %d", got, second)
					}
				})
				time.Sleep(maxAge / 10)
			}
			time.Sleep(maxAge / 5)
		}
		if n := s.reads.Load(); n != 3 {
			t.Errorf("%d reads", n)
		}
	})
}

func TestWhoNeedsMoreGetsWhatWasReadAfterItAsked(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var s source
		c := s.cache(10, 1000)
		get(t, c, "a", nil)
		time.Sleep(pause)
		for version := int64(1); version <= 5; version++ { // each while the copy is young, and a read of an older one may be under way
			var all sync.WaitGroup
			all.Go(func() { get(t, c, "a", atLeast(version)) })
			time.Sleep(took / 2)
			s.now.Store(version)
			crowd(50, func() {
				if got := get(t, c, "a", atLeast(version)); got != version {
					t.Errorf("got %d, want %d", got, version)
				}
			})
			all.Wait()
			if got := get(t, c, "a", nil); got != version {
				t.Errorf("later: %d", got)
			}
		}
		if n := s.reads.Load(); n > 11 {
			t.Errorf("%d reads", n)
		}
	})
}

func TestWhatDoesNotExistCostsAReadInAPause(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var s source
		c := s.cache(10, 1000)
		began := time.Now()
		crowd(50, func() {
			for time.Since(began) < time.Second {
				if got := get(t, c, "a", atLeast(1)); got != 0 {
					t.Errorf("got %d", got)
				}
			}
		})
		if n := s.reads.Load(); n < 5 || n > int64(time.Since(began)/pause)+1 {
			t.Errorf("%d reads within %s", n, time.Since(began))
		}
	})
}

func TestWhatIsForgottenIsReadAgain(t *testing.T) {
	t.Parallel()
	for name, forget := range map[string]func(*Cache[string, int64]){
		"one": func(c *Cache[string, int64]) { c.Forget("a") },
		"all": (*Cache[string, int64]).Clear,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var s source
				c := s.cache(10, 1000)
				get(t, c, "a", nil)
				s.now.Store(1)
				forget(c)
				if got := get(t, c, "a", nil); got != 1 {
					t.Errorf("got %d", got)
				}
				time.Sleep(2 * maxAge)
				var all sync.WaitGroup
				all.Go(func() { get(t, c, "a", nil) }) // it is read while it changes
				time.Sleep(took / 2)
				s.now.Store(2)
				forget(c)
				if got := get(t, c, "a", nil); got != 2 {
					t.Errorf("beside an older read: %d", got)
				}
				all.Wait()
				if got := get(t, c, "a", nil); got != 2 {
					t.Errorf("after it: %d", got)
				}
			})
		})
	}
}

func TestErrorsAreSharedAndNotKept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var s source
		s.fails.Store(true)
		c := s.cache(10, 1000)
		crowd(50, func() {
			if _, err := c.Get(t.Context(), "a", nil); !errors.Is(err, errAway) {
				t.Error(err)
			}
		})
		if n := s.reads.Load(); n != 1 {
			t.Errorf("%d reads", n)
		}
		s.fails.Store(false)
		get(t, c, "a", nil)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		time.Sleep(2 * maxAge)
		if _, err := c.Get(ctx, "a", nil); !errors.Is(err, context.Canceled) {
			t.Errorf("who does not wait: %v", err)
		}
		time.Sleep(2 * took) // the read is for others too
		before := s.reads.Load()
		if get(t, c, "a", nil); s.reads.Load() != before {
			t.Error("it was read again")
		}
	})
}

func TestTheCacheIsBounded(t *testing.T) {
	t.Parallel()
	for name, bounds := range map[string]struct{ entries, bytes int }{"by entries": {3, 1000}, "by bytes": {1000, 3 * 8}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var s source
				c := s.cache(bounds.entries, bounds.bytes)
				for _, key := range []string{"a", "b", "c", "a", "d", "a", "b"} { // b has to go for d, and c for b
					get(t, c, key, nil)
				}
				if c.copies.Len() != 3 || c.copies.bytes != 24 || s.reads.Load() != 5 || c.copies.Contains("c") || len(c.reads) != 0 {
					t.Errorf("%d copies of %d bytes after %d reads: %v", c.copies.Len(), c.copies.bytes, s.reads.Load(), c.copies.Keys())
				}
			})
		})
	}
}
