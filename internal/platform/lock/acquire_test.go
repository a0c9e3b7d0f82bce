package lock_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"triprize/internal/platform/config"
	"triprize/internal/platform/lock"
)

// persistent is for tests in which everybody gets the lock in the end.
func persistent(s *config.Locks) {
	s.Tries, s.RetryDelay, s.Timeout = 1000, 2*time.Millisecond, 4*time.Second
}

func lasting(ttl time.Duration) func(*config.Locks) {
	return func(s *config.Locks) { s.TTL = ttl }
}

// acquire takes locks that must be free.
func acquire(t *testing.T, l *lock.Locker, names ...string) *lock.Held {
	t.Helper()
	held, err := l.Acquire(t.Context(), names...)
	if err != nil || !held.Locks() {
		t.Fatalf("got %v, locked: %v", err, held.Locks())
	}
	return held
}

// measured returns the value of a counter, or how often a histogram was
// observed, by its first label.
func measured(t *testing.T, registry *prometheus.Registry, name, label string) (n int) {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			if family.GetName() == name && (label == "" || metric.GetLabel()[0].GetValue() == label) {
				n += int(metric.GetCounter().GetValue()) + int(metric.GetHistogram().GetSampleCount())
			}
		}
	}
	return n
}

func TestOfFiftyInTwoProcessesOneHoldsALockAtATime(t *testing.T) {
	t.Parallel()
	h := newHouse(t, persistent)
	_, _, other := h.process()
	var inside, most, held atomic.Int64
	var all sync.WaitGroup
	for i := range 50 {
		locker := []*lock.Locker{h.locker, other}[i%2]
		all.Go(func() {
			lock, err := locker.Acquire(t.Context(), "a")
			if err != nil {
				t.Error(err)
				return
			}
			most.Store(max(most.Load(), inside.Add(1)))
			held.Add(1)
			time.Sleep(time.Millisecond) // so that a second one would be seen
			inside.Add(-1)
			lock.Release(t.Context())
		})
	}
	all.Wait()
	if held.Load() != 50 || most.Load() != 1 {
		t.Errorf("%d held it, %d at once", held.Load(), most.Load())
	}
	if h.value("a") != "" {
		t.Error("somebody still holds it")
	}
}

// order notes the keys that locks are taken with.
type order struct {
	counter
	mu   sync.Mutex
	keys []string
}

func (o *order) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if strings.HasPrefix(cmd.Name(), "set") {
			o.mu.Lock()
			o.keys = append(o.keys, cmd.Args()[1].(string))
			o.mu.Unlock()
		}
		return next(ctx, cmd)
	}
}

func TestLocksAreTakenInAscendingOrderAndEachOnce(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	taken := &order{}
	h.rdb.AddHook(taken)
	names := []string{"c", "a", "c", "b", "a"}
	held := acquire(t, h.locker, names...)
	if want := []string{h.key("a"), h.key("b"), h.key("c")}; !slices.Equal(taken.keys, want) {
		t.Errorf("taken: %q", taken.keys)
	}
	if !slices.Equal(names, []string{"c", "a", "c", "b", "a"}) {
		t.Errorf("the caller's names are now %q", names)
	}
	held.Release(t.Context())
	for _, name := range names {
		if h.value(name) != "" {
			t.Errorf("%s is still held", name)
		}
	}
}

func TestOverlappingSetsInOppositeOrderDoNotDeadlock(t *testing.T) {
	t.Parallel()
	h := newHouse(t, persistent)
	_, _, other := h.process()
	var both sync.WaitGroup
	run := func(locker *lock.Locker, names ...string) {
		for range 50 {
			held, err := locker.Acquire(t.Context(), names...)
			if err != nil {
				t.Error(err)
				return
			}
			held.Release(t.Context())
		}
	}
	both.Go(func() { run(h.locker, "a", "b", "c") })
	both.Go(func() { run(other, "c", "b", "d", "a") })
	both.Wait()
}

func TestAllLocksAreTakenOrNone(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	_, _, other := h.process()
	theirs := acquire(t, other, "b")
	if held, err := h.locker.Acquire(t.Context(), "a", "b", "c"); !errors.Is(err, lock.ErrTaken) || held != nil {
		t.Errorf("got %v", err)
	}
	if h.value("a") != "" || h.value("b") == "" || h.value("c") != "" {
		t.Errorf("a %q, b %q, c %q", h.value("a"), h.value("b"), h.value("c"))
	}
	theirs.Release(t.Context())
	acquire(t, h.locker, "a", "b", "c").Release(t.Context())
}

func TestATakenLockIsTriedForAsOftenAsTheSettingsSay(t *testing.T) {
	t.Parallel()
	h := newHouse(t, func(s *config.Locks) { s.Tries, s.RetryDelay = 4, 40*time.Millisecond })
	_, _, other := h.process()
	defer acquire(t, other, "a").Release(t.Context())
	tries := &counter{command: "set"}
	h.rdb.AddHook(tries)
	began := time.Now()
	if _, err := h.locker.Acquire(t.Context(), "a"); !errors.Is(err, lock.ErrTaken) || errors.Is(err, lock.ErrNoQuorum) {
		t.Errorf("got %v", err)
	}
	if took := time.Since(began); tries.sent.Load() != 4 || took < 60*time.Millisecond { // three pauses of half the delay
		t.Errorf("%d tries in %s", tries.sent.Load(), took)
	}
	if conflicts, taken := measured(t, h.registry, "triprize_lock_conflicts_total", ""), measured(t, h.registry, "triprize_lock_wait_seconds", "taken"); conflicts != 4 || taken != 1 {
		t.Errorf("%d conflicts, %d acquisitions given up", conflicts, taken)
	}
}

func TestALockThatIsGivenBackInTimeIsHadByTheNextTry(t *testing.T) {
	t.Parallel()
	h := newHouse(t, persistent)
	_, _, other := h.process()
	theirs := acquire(t, other, "a")
	tries := &counter{command: "set"}
	h.rdb.AddHook(tries)
	go func() {
		for tries.sent.Load() < 3 {
			time.Sleep(time.Millisecond)
		}
		theirs.Release(t.Context())
	}()
	acquire(t, h.locker, "a").Release(t.Context())
	if n := measured(t, h.registry, "triprize_lock_wait_seconds", "acquired"); n != 1 {
		t.Errorf("%d were acquired", n)
	}
}

func TestAnAcquisitionTakesNoLongerThanItsTimeout(t *testing.T) {
	t.Parallel()
	h := newHouse(t, func(s *config.Locks) {
		s.Tries, s.RetryDelay, s.Timeout = 100, 100*time.Millisecond, 400*time.Millisecond
	})
	_, _, other := h.process()
	defer acquire(t, other, "a").Release(t.Context())
	began := time.Now()
	_, err := h.locker.Acquire(t.Context(), "a")
	if took := time.Since(began); !errors.Is(err, lock.ErrTaken) || took > time.Second { // 100 tries would be ten seconds
		t.Errorf("%v after %s", err, took)
	}
}

// leaving lets the caller leave when the first lock was taken, and says, if it
// is told to, that the command failed.
type leaving struct {
	counter
	leave context.CancelFunc
	fail  error
}

func (l *leaving) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if strings.HasPrefix(cmd.Name(), "set") && l.sent.Add(1) == 1 {
			l.leave()
			if l.fail != nil {
				cmd.SetErr(l.fail)
				return l.fail
			}
		}
		return err
	}
}

func TestACallerWhoLeavesLeavesNoLockBehind(t *testing.T) {
	t.Parallel()
	for what, fail := range map[string]error{"between two locks": nil, "before the answer": errors.New("the connection broke")} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			h := newHouse(t)
			_, _, witness := h.process()
			ctx, leave := context.WithCancel(t.Context())
			h.rdb.AddHook(&leaving{leave: leave, fail: fail})
			held, err := h.locker.Acquire(ctx, "a", "b")
			if !errors.Is(err, context.Canceled) || errors.Is(err, lock.ErrNoQuorum) || held != nil {
				t.Errorf("got %v", err)
			}
			acquire(t, witness, "a", "b").Release(t.Context())
			if n := measured(t, h.registry, "triprize_lock_wait_seconds", ""); n != 0 {
				t.Error("it is counted as an outcome of the lock")
			}
		})
	}
}

func TestCallersWhoLeaveSayNothingOfTheServer(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	ctx, leave := context.WithCancel(t.Context())
	leave()
	for range 10 {
		if _, err := h.locker.Acquire(ctx, "a"); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	}
	acquire(t, h.locker, "a").Release(t.Context())
}

func TestASetOfWhichOneRanOutMeanwhileIsNotHeld(t *testing.T) {
	t.Parallel()
	h := newHouse(t, persistent, lasting(200*time.Millisecond)) // which settings would not allow
	key := h.key("b")
	if err := h.rdb.Set(t.Context(), key, "somebody", 500*time.Millisecond).Err(); err != nil {
		t.Fatal(err)
	}
	if held, err := h.locker.Acquire(t.Context(), "a", "b"); !errors.Is(err, lock.ErrNoQuorum) || held != nil {
		t.Errorf("got %v", err)
	}
	if h.value("a") != "" || h.value("b") != "" {
		t.Error("something is still held")
	}
}

func TestWhereLocksAreDisabledNobodyLocks(t *testing.T) {
	t.Parallel()
	h := newHouse(t, func(s *config.Locks) { s.Enabled = false })
	everything := &counter{}
	h.rdb.AddHook(everything)
	for range 2 {
		held, err := h.locker.Acquire(t.Context(), "a")
		if err != nil || held.Locks() {
			t.Fatalf("got %v, locked: %v", err, held.Locks())
		}
		defer held.Release(t.Context())
	}
	ran := 0
	err := h.locker.While(t.Context(), "a", long, func(ctx context.Context) {
		ran++
		err := h.locker.While(ctx, "a", long, func(context.Context) { ran++ })
		if err != nil {
			t.Error(err)
		}
	})
	if err != nil || ran != 2 || everything.sent.Load() != 0 {
		t.Errorf("%v, %d ran, %d commands", err, ran, everything.sent.Load())
	}
}

func TestWhatIsNotHeldCanBeReleased(t *testing.T) {
	t.Parallel()
	var held *lock.Held
	held.Release(t.Context())
	select {
	case <-held.Lost():
		t.Error("it is lost")
	default:
	}
	if held.Locks() {
		t.Error("it locks something")
	}
}
