package lock_test

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"triprize/internal/platform/config"
	"triprize/internal/platform/devstack"
	"triprize/internal/platform/lock"
	"triprize/internal/platform/redisx"
	"triprize/internal/testkit/fixture"
)

// ensemble is some servers that know nothing of each other.
type ensemble struct {
	t       *testing.T
	servers []*devstack.Redis
	data    []string // the folder of each
}

func newEnsemble(t *testing.T, n int) *ensemble {
	t.Helper()
	e := &ensemble{t: t, servers: make([]*devstack.Redis, n), data: make([]string, n)}
	for i := range n {
		e.servers[i], e.data[i] = fixture.OwnRedis(t)
	}
	return e
}

// client returns a client of one of the servers.
func (e *ensemble) client(i int) *redis.Client {
	e.t.Helper()
	return open(e.t, e.servers[i].URL())
}

// open returns a client as processes have it.
func open(t *testing.T, url string) *redis.Client {
	t.Helper()
	settings := fixture.Defaults(t).Redis
	settings.URL = url
	client, err := redisx.Open(settings, "triprize-test", redisx.Once)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// process returns what a process has that makes locks on the ensemble.
func (e *ensemble) process(changes ...func(*config.Locks)) *lock.Locker {
	e.t.Helper()
	var clients []redis.UniversalClient
	for i := range e.servers {
		clients = append(clients, e.client(i))
	}
	return e.on(clients, changes...)
}

func (e *ensemble) on(clients []redis.UniversalClient, changes ...func(*config.Locks)) *lock.Locker {
	settings := fixture.Defaults(e.t).Locks
	for _, change := range changes {
		change(&settings)
	}
	return lock.New(clients, "ns", settings, prometheus.NewRegistry())
}

// kill kills the first n servers.
func (e *ensemble) kill(n int) {
	for _, server := range e.servers[:n] {
		server.Kill()
	}
}

func TestAMinorityOfDeadServersIsNotMissed(t *testing.T) {
	t.Parallel()
	for _, n := range []int{3, 5} {
		t.Run(fmt.Sprintf("of %d", n), func(t *testing.T) {
			t.Parallel()
			e := newEnsemble(t, n)
			one, other := e.process(lasting(short)), e.process(lasting(short))
			before := acquire(t, one, "before")
			e.kill(n / 2)
			after := acquire(t, one, "after")
			for end := time.Now().Add(2 * short); time.Now().Before(end); {
				for _, name := range []string{"before", "after"} {
					if _, err := other.Acquire(t.Context(), name); !errors.Is(err, lock.ErrTaken) {
						t.Fatalf("%s: %v", name, err)
					}
				}
			}
			before.Release(t.Context())
			after.Release(t.Context())
			acquire(t, other, "before", "after").Release(t.Context())
			if err := one.Ping(t.Context()); err != nil {
				t.Error(err)
			}
			passing := pass(t, one, 30)
			t.Logf("median and longest: %s and %s", passing[15], passing[29])
			if passing[15] > 100*time.Millisecond {
				t.Errorf("half of them took more than %s", passing[15])
			}
		})
	}
}

func TestWithoutAMajorityNobodyCanSay(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 3, 5} {
		t.Run(fmt.Sprintf("of %d", n), func(t *testing.T) {
			t.Parallel()
			e := newEnsemble(t, n)
			locker := e.process(lasting(short))
			held := acquire(t, locker, "a")
			e.kill(n/2 + 1)
			for _, name := range []string{"a", "b"} {
				began := time.Now()
				got, err := locker.Acquire(t.Context(), name)
				if !errors.Is(err, lock.ErrNoQuorum) || errors.Is(err, lock.ErrTaken) || !errors.Is(err, syscall.ECONNREFUSED) || got != nil {
					t.Errorf("%s: %v", name, err)
				}
				if took := time.Since(began); took > 2*time.Second {
					t.Errorf("it took %s to say so", took)
				}
			}
			if err := locker.Ping(t.Context()); !errors.Is(err, lock.ErrNoQuorum) {
				t.Errorf("ping: %v", err)
			}
			lost(t, held)
			held.Release(t.Context())
		})
	}
}

// Of some servers a few are away, and on a few somebody else has the lock.
func TestTakenAndUnknownAreToldApart(t *testing.T) {
	t.Parallel()
	e := newEnsemble(t, 5)
	for name, c := range map[string]struct {
		servers, away, theirs int
		want                  error
	}{
		"all free":                         {servers: 3},
		"one away":                         {servers: 3, away: 1},
		"one theirs":                       {servers: 3, theirs: 1},
		"one away and one theirs":          {servers: 3, away: 1, theirs: 1, want: lock.ErrTaken},
		"two theirs":                       {servers: 3, theirs: 2, want: lock.ErrTaken},
		"two away":                         {servers: 3, away: 2, want: lock.ErrNoQuorum},
		"two away and one theirs":          {servers: 3, away: 2, theirs: 1, want: lock.ErrNoQuorum},
		"of five, two away":                {servers: 5, away: 2},
		"of five, two theirs":              {servers: 5, theirs: 2},
		"of five, two away and one theirs": {servers: 5, away: 2, theirs: 1, want: lock.ErrTaken},
		"of five, one away and two theirs": {servers: 5, away: 1, theirs: 2, want: lock.ErrTaken},
		"of five, three away":              {servers: 5, away: 3, want: lock.ErrNoQuorum},
		"of five, three away, two theirs":  {servers: 5, away: 3, theirs: 2, want: lock.ErrNoQuorum},
		"of one, theirs":                   {servers: 1, theirs: 1, want: lock.ErrTaken},
		"of one, away":                     {servers: 1, away: 1, want: lock.ErrNoQuorum},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var clients []redis.UniversalClient
			for i := range c.servers {
				client := e.client(i)
				switch {
				case i < c.away:
					address, err := devstack.FreeAddress()
					if err != nil {
						t.Fatal(err)
					}
					client = open(t, "redis://"+address+"/0")
				case i < c.away+c.theirs:
					if err := client.Set(t.Context(), "ns:lock:"+name, "theirs", long).Err(); err != nil {
						t.Fatal(err)
					}
				}
				clients = append(clients, client)
			}
			held, err := e.on(clients).Acquire(t.Context(), name)
			defer held.Release(t.Context())
			for _, other := range []error{lock.ErrTaken, lock.ErrNoQuorum} {
				if errors.Is(err, other) != (other == c.want) { //nolint:errorlint // which of the two it is
					t.Errorf("got %v", err)
				}
			}
			if (err == nil) != (c.want == nil) || held.Locks() != (c.want == nil) {
				t.Errorf("got %v", err)
			}
			if err == nil {
				return
			}
			for i := range c.servers - c.away { // nothing of ours stays where the vote was yes
				value, err := e.client(i+c.away).Get(t.Context(), "ns:lock:"+name).Result()
				if !errors.Is(err, redis.Nil) && value != "theirs" {
					t.Errorf("on server %d: %q, %v", i+c.away, value, err)
				}
			}
		})
	}
}

func TestAServerThatComesBackEmptyLetsNobodyIn(t *testing.T) {
	t.Parallel()
	e := newEnsemble(t, 3)
	one, other := e.process(), e.process()
	held := acquire(t, one, "a")
	if err := os.RemoveAll(e.data[0]); err != nil {
		t.Fatal(err)
	}
	if err := e.servers[0].RestartAfter(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	if n := e.client(0).DBSize(t.Context()).Val(); n != 0 {
		t.Fatalf("it has %d keys", n)
	}
	for range 3 {
		if _, err := other.Acquire(t.Context(), "a"); !errors.Is(err, lock.ErrTaken) {
			t.Errorf("got %v", err)
		}
	}
	select {
	case <-held.Lost():
		t.Error("it is lost")
	default:
	}
	held.Release(t.Context())
	acquire(t, other, "a").Release(t.Context())
}

func TestALockIsKeptWhileAMajorityMayStillHaveIt(t *testing.T) {
	t.Parallel()
	e := newEnsemble(t, 3)
	outage := &failing{}
	second := e.client(1)
	second.AddHook(outage)
	held := acquire(t, e.on([]redis.UniversalClient{e.client(0), second, e.client(2)}, lasting(short)), "a")
	defer held.Release(t.Context())
	outage.on.Store(true)
	if err := e.client(0).Del(t.Context(), "ns:lock:a").Err(); err != nil {
		t.Fatal(err)
	}
	for outage.failed.Load() == 0 { // one has it, one says no, and one does not answer
		time.Sleep(time.Millisecond)
	}
	outage.on.Store(false)
	select {
	case <-held.Lost():
		t.Error("it is lost")
	case <-time.After(2 * short):
	}
}

func TestOneHoldsALockAtATimeWhileAServerDies(t *testing.T) {
	t.Parallel()
	e := newEnsemble(t, 3)
	lockers := []*lock.Locker{e.process(persistent), e.process(persistent)}
	var inside, most, held atomic.Int64
	var all sync.WaitGroup
	for i := range 50 {
		all.Go(func() {
			for {
				lock, err := lockers[i%2].Acquire(t.Context(), "a")
				if err != nil { // votes may be split, three ways or two
					continue
				}
				most.Store(max(most.Load(), inside.Add(1)))
				if held.Add(1) == 20 {
					e.kill(1)
				}
				inside.Add(-1)
				lock.Release(t.Context())
				return
			}
		})
	}
	all.Wait()
	if held.Load() != 50 || most.Load() != 1 {
		t.Errorf("%d held it, %d at once", held.Load(), most.Load())
	}
}

// pass acquires and releases n locks and returns how long each pair took, in order of length.
func pass(t *testing.T, locker *lock.Locker, n int) (took []time.Duration) {
	t.Helper()
	for i := range n {
		began := time.Now()
		acquire(t, locker, fmt.Sprintf("passing-%d", i)).Release(t.Context())
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	return took
}

func TestAServerThatHangsSlowsDownAFewAcquisitionsAndNotEach(t *testing.T) {
	t.Parallel()
	e := newEnsemble(t, 3)
	first, asked := e.client(0), &counter{command: "set"}
	first.AddHook(asked)
	locker := e.on([]redis.UniversalClient{first, e.client(1), e.client(2)})
	healthy := pass(t, locker, 30)
	if n := asked.sent.Swap(0); n != 30 {
		t.Errorf("in health it is asked %d times", n)
	}
	if err := e.servers[0].Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	hung := pass(t, locker, 30)
	t.Logf("median and longest: %s and %s in health, %s and %s when one of three hangs", healthy[15], healthy[29], hung[15], hung[29])
	if median := hung[15]; median > 100*time.Millisecond { // patience is 250ms, and a tenth of it when it rests
		t.Errorf("half of them took more than %s", median)
	}
	if longest := hung[29]; longest > 1500*time.Millisecond {
		t.Errorf("the longest took %s", longest)
	}
	if n := asked.sent.Swap(0); n < 3 || n > 10 { // until it rests, and once a second
		t.Errorf("it was asked %d times", n)
	}
	if err := e.servers[0].Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	for began := time.Now(); asked.sent.Load() == 0; time.Sleep(10 * time.Millisecond) {
		acquire(t, locker, "a").Release(t.Context())
		if time.Since(began) > 30*time.Second {
			t.Fatal("it is not asked again")
		}
	}
}

func TestAMajorityThatHangsIsKnownInBoundedTimeAndThenAtOnce(t *testing.T) {
	t.Parallel()
	e := newEnsemble(t, 3)
	locker := e.process(lasting(short)) // a server that wakes up takes the locks it was asked for while it hung
	acquire(t, locker, "a").Release(t.Context())
	for _, server := range e.servers[:2] {
		if err := server.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
	}
	var took []time.Duration
	for range 6 {
		began := time.Now()
		if _, err := locker.Acquire(t.Context(), "a"); !errors.Is(err, lock.ErrNoQuorum) {
			t.Errorf("got %v", err)
		}
		took = append(took, time.Since(began))
	}
	if slices.Max(took) > 2*time.Second || took[5] > 150*time.Millisecond {
		t.Errorf("it took %s", took)
	}
	t.Logf("without a majority an acquisition ended after %s", took)
	for _, server := range e.servers[:2] {
		if err := server.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
	}
	for began := time.Now(); ; {
		held, err := locker.Acquire(t.Context(), "a")
		if err == nil {
			held.Release(t.Context())
			return
		}
		if time.Since(began) > 30*time.Second {
			t.Fatalf("the servers are back: %v", err)
		}
	}
}
