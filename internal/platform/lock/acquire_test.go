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
	"triprize/internal/testkit/servers"
)

// persistent is for tests in which everybody gets the lock in the end.
func persistent(s *config.Locks) { s.Tries, s.RetryDelay = 1_000_000, 2*time.Millisecond }

// acquire takes locks that must be free.
func acquire(t *testing.T, l *lock.Locker, names ...string) (release func()) {
	t.Helper()
	release, err := l.Acquire(t.Context(), names...)
	if err != nil {
		t.Fatalf("got %v", err)
	}
	return release
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

func TestOfManyInTwoProcessesOneHoldsALockAtATime(t *testing.T) {
	t.Parallel()
	s := newSpace(t, persistent)
	_, _, other := s.process()
	const many = 20
	var inside, held atomic.Int64
	var all sync.WaitGroup
	for i := range many {
		locker := []*lock.Locker{s.locker, other}[i%2]
		all.Go(func() {
			release, err := locker.Acquire(t.Context(), "a")
			if err != nil {
				t.Error(err)
				return
			}
			if n := inside.Add(1); n != 1 {
				t.Errorf("%d hold it", n)
			}
			held.Add(1)
			for range 3 { // others try meanwhile
				s.value("a")
			}
			inside.Add(-1)
			release()
		})
	}
	all.Wait()
	if held.Load() != many || s.value("a") != "" {
		t.Errorf("%d held it; now %q does", held.Load(), s.value("a"))
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
	s := newSpace(t)
	taken := &order{}
	s.rdb.AddHook(taken)
	names := []string{"c", "a", "c", "b", "a"}
	held := acquire(t, s.locker, names...)
	if want := []string{s.key("a"), s.key("b"), s.key("c")}; !slices.Equal(taken.keys, want) {
		t.Errorf("taken: %q", taken.keys)
	}
	if !slices.Equal(names, []string{"c", "a", "c", "b", "a"}) {
		t.Errorf("the caller's names are now %q", names)
	}
	held()
	for _, name := range names {
		if s.value(name) != "" {
			t.Errorf("%s is still held", name)
		}
	}
}

func TestOverlappingSetsInOppositeOrderDoNotDeadlock(t *testing.T) {
	t.Parallel()
	s := newSpace(t, persistent)
	_, _, other := s.process()
	var both sync.WaitGroup
	run := func(locker *lock.Locker, names ...string) {
		for range 20 {
			held, err := locker.Acquire(t.Context(), names...)
			if err != nil {
				t.Error(err)
				return
			}
			held()
		}
	}
	both.Go(func() { run(s.locker, "a", "b", "c") })
	both.Go(func() { run(other, "c", "b", "d", "a") })
	both.Wait()
}

func TestAllLocksAreTakenOrNone(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	_, _, other := s.process()
	theirs := acquire(t, other, "b")
	if _, err := s.locker.Acquire(t.Context(), "a", "b", "c"); !errors.Is(err, lock.ErrTaken) {
		t.Errorf("got %v", err)
	}
	if s.value("a") != "" || s.value("b") == "" || s.value("c") != "" {
		t.Errorf("a %q, b %q, c %q", s.value("a"), s.value("b"), s.value("c"))
	}
	theirs()
	acquire(t, s.locker, "a", "b", "c")()
}

func TestALockThatIsGivenBackInTimeIsHadByTheNextTry(t *testing.T) {
	t.Parallel()
	s := newSpace(t, persistent)
	_, _, other := s.process()
	theirs := acquire(t, other, "a")
	tries := &counter{command: "set"}
	s.rdb.AddHook(tries)
	mine := make(chan error)
	release := func() {}
	go func() {
		held, err := s.locker.Acquire(t.Context(), "a")
		release = held
		mine <- err
	}()
	servers.Eventually(t, "it was tried for three times", func() bool { return tries.sent.Load() >= 3 })
	theirs()
	if err := <-mine; err != nil {
		t.Errorf("it was not had: %v", err)
	}
	release()
	if n := measured(t, s.registry, "triprize_lock_wait_seconds", "acquired"); n != 1 {
		t.Errorf("%d were acquired", n)
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
			s := newSpace(t)
			_, _, witness := s.process()
			ctx, leave := context.WithCancel(t.Context())
			s.rdb.AddHook(&leaving{leave: leave, fail: fail})
			_, err := s.locker.Acquire(ctx, "a", "b")
			if !errors.Is(err, context.Canceled) || errors.Is(err, lock.ErrNoQuorum) {
				t.Errorf("got %v", err)
			}
			acquire(t, witness, "a", "b")()
			if n := measured(t, s.registry, "triprize_lock_wait_seconds", ""); n != 0 {
				t.Error("it is counted as an outcome of the lock")
			}
		})
	}
}

func TestCallersWhoLeaveSayNothingOfTheServer(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	ctx, leave := context.WithCancel(t.Context())
	leave()
	for range 10 {
		if _, err := s.locker.Acquire(ctx, "a"); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	}
	acquire(t, s.locker, "a")()
}

func TestWhereLocksAreDisabledNobodyLocks(t *testing.T) {
	t.Parallel()
	s := newSpace(t, func(s *config.Locks) { s.Enabled = false })
	everything := &counter{}
	s.rdb.AddHook(everything)
	if s.locker.AcquireFunc() != nil {
		t.Error("holds take locks")
	}
	ran := 0
	err := s.locker.While(t.Context(), "a", long, func(ctx context.Context) {
		ran++
		err := s.locker.While(ctx, "a", long, func(context.Context) { ran++ })
		if err != nil {
			t.Error(err)
		}
	})
	if err != nil || ran != 2 || everything.sent.Load() != 0 {
		t.Errorf("%v, %d ran, %d commands", err, ran, everything.sent.Load())
	}
}

func TestReleaseCanBeCalledAgainByAnybody(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	_, _, other := s.process()
	ctx, leave := context.WithCancel(t.Context())
	release, err := s.locker.Acquire(ctx, "a")
	if err != nil {
		t.Fatal(err)
	}
	leave() // the request is over
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() {
			if release(); s.value("a") != "" {
				t.Error("it returned before the lock was free")
			}
		})
	}
	all.Wait()
	theirs := acquire(t, other, "a")
	holder, commands := s.value("a"), &counter{}
	s.rdb.AddHook(commands)
	release()
	if commands.sent.Load() != 0 || s.value("a") != holder {
		t.Errorf("another release sent %d commands; %q has the lock of %q", commands.sent.Load(), s.value("a"), holder)
	}
	theirs()
}
