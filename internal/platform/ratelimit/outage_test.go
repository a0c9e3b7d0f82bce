package ratelimit_test

import (
	"context"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"triprize/internal/platform/config"
	"triprize/internal/platform/ratelimit"
	"triprize/internal/testkit/servers"
)

const (
	budget = 50 * time.Millisecond
	rest   = time.Second + time.Nanosecond // until Redis is asked again that has not answered
)

// simulated is a Redis that passes each request, or is silent.
type simulated struct {
	silent atomic.Bool
	asked  atomic.Int64 // pipelines
	told   atomic.Int64 // requests that it has charged
}

// answer sends nothing.
func (s *simulated) answer(ctx context.Context, cmds []redis.Cmder, _ redis.ProcessPipelineHook) error {
	s.asked.Add(1)
	if s.silent.Load() {
		<-ctx.Done()
	}
	for _, cmd := range cmds {
		n := int64(cmd.Args()[len(cmd.Args())-1].(int))
		if cmd.SetErr(ctx.Err()); ctx.Err() == nil {
			s.told.Add(n)
		}
		cmd.(*redis.Cmd).SetVal([]any{n, int64(4), "-1", "1"})
	}
	return ctx.Err()
}

// simulate runs a test with a limit of users on a simulated Redis and clock.
func simulate(t *testing.T, burst int, test func(t *testing.T, server *simulated, limiter *ratelimit.Limiter)) {
	t.Helper()
	t.Parallel()
	settings := servers.Defaults(t)
	settings.Redis.URL = "redis://127.0.0.1:1/0" // where nothing goes
	synctest.Test(t, func(t *testing.T) {
		server, rdb := &simulated{}, servers.Redis(t, settings)
		rdb.AddHook(servers.Hook(server.answer))
		limiter := ratelimit.New(rdb, "ns", config.Limits{UserRate: 1, UserBurst: burst, ClientBurst: 5, Budget: budget}, nil)
		t.Cleanup(limiter.Close)
		test(t, server, limiter)
	})
}

func TestASilentRedisIsWaitedForThreeTimesAndThenAskedOnceASecond(t *testing.T) {
	simulate(t, 5, func(t *testing.T, server *simulated, limiter *ratelimit.Limiter) {
		users := 0
		ask := func(what, policy string, took time.Duration, asked int64) {
			t.Helper()
			began, before := time.Now(), server.asked.Load()
			users++
			verdict := allow(t.Context(), limiter, "shop", strconv.Itoa(users))
			synctest.Wait()
			if !verdict.Allowed || verdict.Policy != policy || (len(headers(verdict)) == 0) != (policy == "") || time.Since(began) != took || server.asked.Load()-before != asked {
				t.Fatalf("%s: %+v after %s, Redis was asked %d times", what, verdict, time.Since(began), server.asked.Load()-before)
			}
		}
		ask("in health", "user", 0, 1)
		server.silent.Store(true)
		for range 3 {
			ask("at first", "", budget, 1)
		}
		for range 3 {
			for range 100 {
				ask("within a second", "", 0, 0)
			}
			time.Sleep(rest)
			ask("after a second", "", budget, 1) // tries whether Redis is back
		}
		server.silent.Store(false)
		time.Sleep(rest)
		for range 3 {
			ask("after it is back", "user", 0, 1)
		}
	})
}

// Requests that passed before an outage are charged after it, but for those that Redis may have
// heard of. A burst of 59 has a slack of 4.
func TestWhatRedisHasNotHeardOfIsToldWhenItIsBack(t *testing.T) {
	simulate(t, 59, func(t *testing.T, server *simulated, limiter *ratelimit.Limiter) {
		ask := func(user string, n int) {
			for range n {
				if verdict := limiter.User(t.Context(), "shop", user); !verdict.Allowed {
					t.Errorf("%s: %+v", user, verdict)
				}
				synctest.Wait()
			}
		}
		ask("alice", 4)
		server.silent.Store(true)
		for _, user := range []string{"bob", "carol", "dave"} { // the fifth request asks Redis, in vain
			ask(user, 5)
		}
		asked := server.asked.Load()
		ask("alice", 1)
		if n := server.asked.Load() - asked; asked != 3 || n != 0 {
			t.Errorf("Redis was asked %d times, and then %d times", asked, n)
		}
		server.silent.Store(false)
		time.Sleep(rest)
		ask("alice", 1)
		if n := server.told.Load(); n != 5 {
			t.Errorf("Redis was told of %d requests: 4 from before the outage, one from after it", n)
		}
		ask("bob", 4)
		if n := server.told.Load(); n != 5 {
			t.Errorf("Redis was told of %d requests twice", n-5)
		}
	})
}

// A flood that makes Redis slow must not take the limits away that would end it.
func TestWhileRedisIsSilentTheProcessCountsAlone(t *testing.T) {
	simulate(t, 5, func(t *testing.T, server *simulated, limiter *ratelimit.Limiter) {
		server.silent.Store(true)
		passed := func(user string, n int) (passed int) {
			for range n {
				verdict := limiter.User(t.Context(), "shop", user)
				if verdict.Allowed {
					passed++
				} else if verdict.Policy != "user" || verdict.Limit != 5 || verdict.Remaining != 0 || verdict.RetryAfterSeconds() != 1 || len(headers(verdict)) != 2 {
					t.Errorf("refused with %+v", verdict)
				}
			}
			return passed
		}
		if a, b := passed("alice", 50), passed("bob", 50); a != 5 || b != 5 {
			t.Errorf("%d and %d of 50 passed, want the burst", a, b)
		}
		time.Sleep(2 * time.Second)
		if n := passed("alice", 50); n != 2 && n != 3 { // Redis is tried again meanwhile, which takes a moment
			t.Errorf("%d passed after two seconds", n)
		}
	})
}
