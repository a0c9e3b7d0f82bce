package idempotency_test

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"triprize/internal/platform/idempotency"
	"triprize/internal/testkit/servers"
)

// newLine returns a store behind a line to Redis that can go dead.
func newLine(t *testing.T) (*servers.Line, store) {
	t.Helper()
	s := newStore(t)
	var l *servers.Line
	l, s.rdb = servers.OnLine(t, s.rdb)
	return l, s
}

// with returns the store's Requests with a budget.
func (s store) with(t *testing.T, budget time.Duration) *idempotency.Requests {
	settings := s.settings
	settings.Budget = budget
	requests := idempotency.NewRequests(s.rdb, s.namespace, "a secret", settings, nil)
	t.Cleanup(requests.Close)
	return requests
}

// counter counts the round trips of look-ups.
type counter struct{ sent atomic.Int64 }

func (*counter) DialHook(next redis.DialHook) redis.DialHook { return next }

func (*counter) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (c *counter) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if cmds[0].Name() == "get" {
			c.sent.Add(1)
		}
		return next(ctx, cmds)
	}
}

var request = idempotency.Request{Client: "shop", Key: "k"}

// simulated is a Redis that has nothing, or is silent.
type simulated struct {
	silent atomic.Bool
	slow   time.Duration
	asked  atomic.Int64
}

func (*simulated) DialHook(next redis.DialHook) redis.DialHook { return next }

func (*simulated) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (s *simulated) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		s.asked.Add(1)
		err := error(redis.Nil)
		time.Sleep(s.slow)
		if s.silent.Load() {
			<-ctx.Done()
			err = ctx.Err()
		}
		for _, cmd := range cmds {
			cmd.SetErr(err)
		}
		return err
	}
}

func TestASilentRedisIsWaitedForThreeTimesAndThenAskedOnceASecond(t *testing.T) {
	t.Parallel()
	const budget, rest = 50 * time.Millisecond, time.Second
	settings := servers.Defaults(t)
	settings.Redis.URL, settings.Idempotency.Budget = "redis://127.0.0.1:1/0", budget // where nothing goes
	synctest.Test(t, func(t *testing.T) {
		server := &simulated{}
		rdb := servers.Redis(t, settings)
		rdb.AddHook(server)
		requests := idempotency.NewRequests(rdb, "ns", "a secret", settings.Idempotency, nil)
		t.Cleanup(requests.Close)
		find := func() (took time.Duration) {
			began := time.Now()
			if got, ok := requests.Find(request); ok {
				t.Errorf("found %+v", got)
			}
			synctest.Wait()
			return time.Since(began)
		}
		if took := find(); took != 0 || server.asked.Load() != 1 {
			t.Errorf("in health it took %s, and Redis was asked %d times", took, server.asked.Load())
		}
		server.silent.Store(true)
		for range 3 {
			if took := find(); took != budget {
				t.Errorf("it took %s", took)
			}
		}
		for range 3 {
			before := server.asked.Load()
			for range 100 {
				if took := find(); took != 0 {
					t.Errorf("it took %s", took)
				}
			}
			if n := server.asked.Load() - before; n != 0 {
				t.Errorf("asked %d times", n)
			}
			time.Sleep(rest + time.Nanosecond)
			find() // tries whether Redis is back
			if n := server.asked.Load() - before; n != 1 {
				t.Errorf("after a second asked %d times", n)
			}
		}
	})
}

func TestASlowRedisIsWaitedForForThreeBudgetsAtMost(t *testing.T) {
	t.Parallel()
	const budget, crowd = 50 * time.Millisecond, 4000
	settings := servers.Defaults(t)
	settings.Redis.URL, settings.Idempotency.Budget = "redis://127.0.0.1:1/0", budget // where nothing goes
	synctest.Test(t, func(t *testing.T) {
		rdb := servers.Redis(t, settings)
		rdb.AddHook(&simulated{slow: budget - time.Millisecond})
		requests := idempotency.NewRequests(rdb, "ns", "a secret", settings.Idempotency, nil)
		t.Cleanup(requests.Close)
		began := time.Now()
		var all sync.WaitGroup
		for range crowd {
			all.Go(func() { requests.Find(request) })
		}
		all.Wait()
		if took := time.Since(began); took > 3*budget {
			t.Errorf("one of %d waited %s", crowd, took)
		}
	})
}

func TestRedisIsAskedAgainWhenItIsBack(t *testing.T) {
	t.Parallel()
	l, s := newLine(t)
	s.remember(t, request, idempotency.Record{State: idempotency.Success, Job: uuid.New(), Answer: []byte("{}")})
	requests := s.with(t, 200*time.Millisecond)
	servers.Eventually(t, "Redis is asked before the outage", func() bool { _, ok := requests.Find(request); return ok })
	l.Die()
	for range 5 {
		if got, ok := requests.Find(request); ok {
			t.Fatalf("in the outage: %+v", got)
		}
	}
	l.Live()
	servers.Eventually(t, "Redis is asked again", func() bool { _, ok := requests.Find(request); return ok })
}

func TestAMissIsNoFailure(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	asked := &counter{}
	s.rdb.AddHook(asked)
	for range 20 {
		if _, ok := s.requests.Find(request); ok {
			t.Fatal("found what nobody has written")
		}
	}
	if n := asked.sent.Load(); n != 20 {
		t.Errorf("%d of 20 look-ups asked", n)
	}
}

func TestWithoutRedisNothingIsRemembered(t *testing.T) {
	t.Parallel()
	l, s := newLine(t)
	l.Die()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	requests := s.with(t, time.Second)
	if err := requests.Remember(ctx, map[idempotency.Request]idempotency.Record{request: {State: idempotency.Success, Job: uuid.New(), Answer: []byte("{}")}}); err == nil {
		t.Error("remembered")
	}
}

func TestLookUpsThatComeTogetherShareRoundTrips(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	asked := &gate{open: make(chan struct{})}
	s.rdb.AddHook(asked)
	const many = 400
	records := make(map[idempotency.Request]idempotency.Record)
	for i := range many {
		if i%2 == 0 {
			records[idempotency.Request{Client: "shop", Key: strconv.Itoa(i)}] = idempotency.Record{State: idempotency.Success, Job: uuid.New(), Answer: []byte("{}")}
		}
	}
	if err := s.requests.Remember(t.Context(), records); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for i := range many {
		all.Go(func() {
			mine := idempotency.Request{Client: "shop", Key: strconv.Itoa(i)}
			got, ok := s.requests.Find(mine)
			if want, remembered := records[mine]; ok != remembered || got.Job != want.Job {
				t.Errorf("%d: got %+v, %v", i, got, ok)
			}
		})
	}
	servers.Eventually(t, "all look-ups wait", func() bool { return asked.finds.Load()+int64(s.requests.Waiting()) == many })
	close(asked.open)
	all.Wait()
	if n := asked.trips.Load(); n > 1+2 { // one had begun, and one takes 256 of what waited then
		t.Errorf("%d round trips for %d look-ups", n, many)
	}
}

// gate holds look-ups back until it is opened, and counts them.
type gate struct {
	open         chan struct{}
	trips, finds atomic.Int64
}

func (*gate) DialHook(next redis.DialHook) redis.DialHook { return next }

func (*gate) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (g *gate) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if cmds[0].Name() == "get" {
			g.finds.Add(int64(len(cmds)))
			g.trips.Add(1)
			<-g.open
		}
		return next(ctx, cmds)
	}
}
