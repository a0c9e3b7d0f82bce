package idempotency_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

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
		if err := requests.Remember(ctx, map[idempotency.Request]idempotency.Record{request: {Answer: []byte("{}")}}); err == nil {
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
