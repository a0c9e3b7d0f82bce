package lock_test

import (
	"context"
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"triprize/devkit/devstack"
	"triprize/internal/platform/config"
	"triprize/internal/platform/lock"
	"triprize/internal/platform/redisx"
	"triprize/internal/testkit/servers"
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
		e.servers[i], e.data[i] = servers.OwnRedis(t)
	}
	return e
}

// client returns a client of one of the servers.
func (e *ensemble) client(i int) *redis.Client {
	e.t.Helper()
	return open(e.t, e.servers[i].URL())
}

// open returns a client as processes have it, but that its own timeouts end nothing:
// only the context of a command can.
func open(t *testing.T, url string) *redis.Client {
	t.Helper()
	settings := servers.Defaults(t).Redis
	settings.URL = url
	settings.Timeout = long
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
	settings := servers.Defaults(e.t).Locks
	patient(&settings)
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
	e := newEnsemble(t, 3)
	one, other := e.process(), e.process()
	before := acquire(t, one, "before")
	e.kill(1)
	after := acquire(t, one, "after")
	for range 2 {
		for _, name := range []string{"before", "after"} {
			if _, err := other.Acquire(t.Context(), name); !errors.Is(err, lock.ErrTaken) {
				t.Fatalf("%s: %v", name, err)
			}
		}
	}
	before()
	after()
	acquire(t, other, "before", "after")()
	if err := one.Ping(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestWithoutAMajorityNobodyCanSay(t *testing.T) {
	t.Parallel()
	e := newEnsemble(t, 3)
	locker := e.process()
	acquire(t, locker, "a")
	e.kill(2)
	for _, name := range []string{"a", "b"} {
		_, err := locker.Acquire(t.Context(), name)
		if !errors.Is(err, lock.ErrNoQuorum) || errors.Is(err, lock.ErrTaken) || !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := locker.Ping(t.Context()); !errors.Is(err, lock.ErrNoQuorum) {
		t.Errorf("ping: %v", err)
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
			defer held()
			for _, other := range []error{lock.ErrTaken, lock.ErrNoQuorum} {
				if errors.Is(err, other) != (other == c.want) { //nolint:errorlint // which of the two it is
					t.Errorf("got %v", err)
				}
			}
			if (err == nil) != (c.want == nil) {
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
	held()
	acquire(t, other, "a")()
}

func TestALockIsKeptWhileAMajorityMayStillHaveIt(t *testing.T) {
	t.Parallel()
	simulate(t, 3, func(t *testing.T, c *cluster) {
		err := c.locker.While(t.Context(), "a", ttl, func(ctx context.Context) {
			c.servers[0].remove("a")
			c.servers[1].set(func(s *simulated) { s.away = true })
			time.Sleep(ttl / 2) // one has it, one says no, and one does not answer
			if n := c.servers[1].count("extend"); n != 1 || ctx.Err() != nil {
				t.Errorf("after %d extensions: %v", n, context.Cause(ctx))
			}
			c.servers[1].set(func(s *simulated) { s.away = false })
			time.Sleep(3 * ttl) // two have it
			if ctx.Err() != nil {
				t.Errorf("lost: %v", context.Cause(ctx))
			}
		})
		if err != nil {
			t.Error(err)
		}
	})
}

func TestOneHoldsALockAtATimeWhileAServerDies(t *testing.T) {
	t.Parallel()
	e := newEnsemble(t, 3)
	lockers := []*lock.Locker{e.process(persistent), e.process(persistent)}
	const many = 20
	var inside, held atomic.Int64
	var all sync.WaitGroup
	for i := range many {
		all.Go(func() {
			release, err := lockers[i%2].Acquire(t.Context(), "a")
			if err != nil {
				t.Error(err)
				return
			}
			if n := inside.Add(1); n != 1 {
				t.Errorf("%d hold it", n)
			}
			if held.Add(1) == many/2 {
				e.kill(1)
			}
			inside.Add(-1)
			release()
		})
	}
	all.Wait()
	if held.Load() != many {
		t.Errorf("%d held it", held.Load())
	}
}

// How long it takes is shown on simulated servers.
func TestAMajorityThatHangsIsMissedUntilItIsBack(t *testing.T) {
	t.Parallel()
	e := newEnsemble(t, 3)
	locker := e.process(func(s *config.Locks) {
		s.Timeout = 200 * time.Millisecond
		s.TTL = time.Second // a server that is back takes the locks it was asked for while it hung
	})
	for _, server := range e.servers[:2] {
		if err := server.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
	}
	for range 4 { // more than it takes until they are not asked for a while
		if _, err := locker.Acquire(t.Context(), "a"); !errors.Is(err, lock.ErrNoQuorum) {
			t.Errorf("got %v", err)
		}
	}
	for _, server := range e.servers[:2] {
		if err := server.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
	}
	servers.Eventually(t, "a lock is had again", func() bool {
		held, err := locker.Acquire(t.Context(), "a")
		held()
		return err == nil
	})
}
