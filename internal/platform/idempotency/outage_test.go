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

const budget = 50 * time.Millisecond

// simulate runs a test on a simulated Redis and clock.
func simulate(t *testing.T, server *simulated, test func(t *testing.T, requests *idempotency.Requests)) {
	t.Helper()
	t.Parallel()
	settings := servers.Defaults(t)
	settings.Redis.URL, settings.Idempotency.Budget = "redis://127.0.0.1:1/0", budget // where nothing goes
	synctest.Test(t, func(t *testing.T) {
		rdb := servers.Redis(t, settings)
		rdb.AddHook(server)
		requests := idempotency.NewRequests(rdb, "ns", "a secret", settings.Idempotency, nil)
		t.Cleanup(requests.Close)
		test(t, requests)
	})
}

func TestASilentRedisIsWaitedForThreeTimesAndThenAskedOnceASecond(t *testing.T) {
	server := &simulated{}
	simulate(t, server, func(t *testing.T, requests *idempotency.Requests) {
		find := func(what string, took time.Duration, asked int64) {
			t.Helper()
			began, before := time.Now(), server.asked.Load()
			got, ok := requests.Find(request)
			synctest.Wait()
			if ok || time.Since(began) != took || server.asked.Load()-before != asked {
				t.Fatalf("%s: found %+v after %s, Redis was asked %d times", what, got, time.Since(began), server.asked.Load()-before)
			}
		}
		for range 20 {
			find("in health", 0, 1) // a miss is no failure
		}
		server.silent.Store(true)
		for range 3 {
			find("at first", budget, 1)
		}
		for range 3 {
			for range 100 {
				find("within a second", 0, 0)
			}
			time.Sleep(time.Second + time.Nanosecond)
			find("after a second", budget, 1) // tries whether Redis is back
		}
		ctx, cancel := context.WithTimeout(t.Context(), budget)
		defer cancel()
		if err := requests.Remember(ctx, map[idempotency.Request]idempotency.Record{request: {State: idempotency.Success, Answer: []byte("{}")}}); err == nil {
			t.Error("remembered")
		}
		server.silent.Store(false)
		time.Sleep(time.Second + time.Nanosecond)
		for range 3 {
			find("after it is back", 0, 1)
		}
	})
}

func TestASlowRedisIsWaitedForForThreeBudgetsAtMost(t *testing.T) {
	simulate(t, &simulated{slow: budget - time.Millisecond}, func(t *testing.T, requests *idempotency.Requests) {
		began := time.Now()
		var all sync.WaitGroup
		for range 4000 {
			all.Go(func() { requests.Find(request) })
		}
		all.Wait()
		if took := time.Since(began); took > 3*budget {
			t.Errorf("one of a crowd waited %s", took)
		}
	})
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
	s.remember(t, records)
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
