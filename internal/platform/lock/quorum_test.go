package lock_test

import (
	"context"
	"errors"
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
	"triprize/internal/testkit/servers"
)

// Real servers: of three one dies while many take turns, then another hangs, is back and dies.
func TestAMajorityOfServersKeepsLocksAndWithoutItNobodyCanSay(t *testing.T) {
	t.Parallel()
	var all [3]*devstack.Redis
	for i := range all {
		all[i], _ = servers.OwnRedis(t)
	}
	process := func(change func(*config.Locks)) *lock.Locker {
		settings := servers.Defaults(t).Locks
		settings.TTL, settings.Timeout = long, long/2 // nothing ends by its time, however slow the machine is
		change(&settings)
		var clients []redis.UniversalClient
		for _, server := range all {
			clients = append(clients, open(t, server.URL()))
		}
		return lock.New(clients, "ns", settings, prometheus.NewRegistry())
	}
	one, other := process(persistent), process(persistent)
	const many = 20
	var inside, held atomic.Int64
	var turns sync.WaitGroup
	for i := range many {
		turns.Go(func() {
			release, err := []*lock.Locker{one, other}[i%2].Acquire(t.Context(), "a")
			if err != nil {
				t.Error(err)
				return
			}
			if n := inside.Add(1); n != 1 {
				t.Errorf("%d hold it", n)
			}
			if held.Add(1) == many/2 {
				all[0].Kill()
			}
			inside.Add(-1)
			release()
		})
	}
	turns.Wait()
	if held.Load() != many {
		t.Errorf("%d held it", held.Load())
	}
	err := one.While(t.Context(), "a", long, func(context.Context) {
		if err := other.While(t.Context(), "a", long, func(context.Context) {}); !errors.Is(err, lock.ErrTaken) {
			t.Errorf("a second holder: %v", err)
		}
	})
	if err = errors.Join(err, one.Ping(t.Context())); err != nil {
		t.Error(err)
	}

	hasty := process(func(s *config.Locks) { // a server that is back takes the locks it was asked for while it hung
		s.Timeout, s.TTL = 200*time.Millisecond, time.Second
	})
	signal := func(what syscall.Signal) {
		if err := all[1].Signal(what); err != nil {
			t.Fatal(err)
		}
	}
	signal(syscall.SIGSTOP)
	for range 4 { // more than it takes until it is not asked for a while
		if _, err := hasty.Acquire(t.Context(), "b"); !errors.Is(err, lock.ErrNoQuorum) {
			t.Errorf("got %v", err)
		}
	}
	signal(syscall.SIGCONT)
	servers.Eventually(t, "a lock is had again", func() bool {
		release, err := hasty.Acquire(t.Context(), "b")
		release()
		return err == nil
	})

	acquire(t, one, "c")
	all[1].Kill()
	for _, name := range []string{"c", "d"} {
		_, err := one.Acquire(t.Context(), name)
		if !errors.Is(err, lock.ErrNoQuorum) || errors.Is(err, lock.ErrTaken) || !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := one.Ping(t.Context()); !errors.Is(err, lock.ErrNoQuorum) {
		t.Errorf("ping: %v", err)
	}
}
