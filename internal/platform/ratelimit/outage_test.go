package ratelimit_test

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"triprize/internal/platform/config"
	"triprize/internal/platform/ratelimit"
	"triprize/internal/testkit/servers"
)

// newLine returns a space behind a line to Redis that can go dead.
func newLine(t *testing.T, change ...func(*config.Limits)) (*servers.Line, *space) {
	t.Helper()
	p := newSpace(t, change...)
	var l *servers.Line
	l, p.rdb = servers.OnLine(t, p.rdb)
	p.rdb.AddHook(p.clock)
	return l, p
}

// The client's own timeouts are a minute; how long it takes is shown on a simulated
// clock.
func TestWhileRedisIsSilentRequestsPass(t *testing.T) {
	t.Parallel()
	l, p := newLine(t, func(c *config.Limits) { c.ClientRate, c.Budget = 1, 50*time.Millisecond })
	l.Die()
	verdict := p.limiter(t).User(t.Context(), "shop", "alice")
	if !verdict.Allowed || len(headers(verdict)) != 0 || verdict.RetryAfterSeconds() != 0 {
		t.Errorf("%+v", verdict)
	}
	if got := p.outcomes(t); got["away"] != 1 || got["passed"] != 0 {
		t.Errorf("counted %v", got)
	}
}

// simulated is a Redis that passes each request, or is silent.
type simulated struct {
	silent atomic.Bool
	asked  atomic.Int64 // pipelines
	told   atomic.Int64 // requests that it has charged
}

func (*simulated) DialHook(next redis.DialHook) redis.DialHook { return next }

func (*simulated) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (s *simulated) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
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
}

func TestASilentRedisIsWaitedForThreeTimesAndThenAskedOnceASecond(t *testing.T) {
	t.Parallel()
	const budget, rest = 50 * time.Millisecond, time.Second
	settings := servers.Defaults(t)
	settings.Redis.URL = "redis://127.0.0.1:1/0" // where nothing goes
	synctest.Test(t, func(t *testing.T) {
		server := &simulated{}
		rdb := servers.Redis(t, settings)
		rdb.AddHook(server)
		limiter := ratelimit.New(rdb, "ns", config.Limits{UserRate: 1, UserBurst: 5, ClientBurst: 5, Budget: budget}, nil)
		t.Cleanup(limiter.Close)
		users := 0
		ask := func(policy string) (took time.Duration) {
			t.Helper()
			began := time.Now()
			users++
			if verdict := allow(t.Context(), limiter, "shop", strconv.Itoa(users)); !verdict.Allowed || verdict.Policy != policy {
				t.Errorf("%+v", verdict)
			}
			synctest.Wait()
			return time.Since(began)
		}
		if took := ask("user"); took != 0 {
			t.Errorf("in health it took %s", took)
		}
		server.silent.Store(true)
		for range 3 {
			if took := ask(""); took != budget {
				t.Errorf("it took %s", took)
			}
		}
		for range 3 {
			before := server.asked.Load()
			for range 100 {
				if took := ask(""); took != 0 {
					t.Errorf("it took %s", took)
				}
			}
			if n := server.asked.Load() - before; n != 0 {
				t.Errorf("asked %d times", n)
			}
			time.Sleep(rest + time.Nanosecond)
			ask("") // tries whether Redis is back
			if n := server.asked.Load() - before; n != 1 {
				t.Errorf("after a second asked %d times", n)
			}
		}
		server.silent.Store(false)
		time.Sleep(rest + time.Nanosecond)
		for range 3 {
			if took := ask("user"); took != 0 {
				t.Errorf("after it is back it took %s", took)
			}
		}
	})
}

// Requests that passed before an outage are charged after it, but for those that Redis may have
// heard of. A burst of 59 has a slack of 2.
func TestWhatRedisHasNotHeardOfIsToldWhenItIsBack(t *testing.T) {
	t.Parallel()
	settings := servers.Defaults(t)
	settings.Redis.URL = "redis://127.0.0.1:1/0" // where nothing goes
	synctest.Test(t, func(t *testing.T) {
		server := &simulated{}
		rdb := servers.Redis(t, settings)
		rdb.AddHook(server)
		limiter := ratelimit.New(rdb, "ns", config.Limits{UserRate: 1, UserBurst: 59, ClientBurst: 5, Budget: time.Millisecond}, nil)
		t.Cleanup(limiter.Close)
		ask := func(user string, n int) {
			for range n {
				if verdict := limiter.User(t.Context(), "shop", user); !verdict.Allowed {
					t.Errorf("%s: %+v", user, verdict)
				}
				synctest.Wait()
			}
		}
		ask("alice", 2)
		server.silent.Store(true)
		for _, user := range []string{"bob", "carol", "dave"} { // the third request asks Redis, in vain
			ask(user, 3)
		}
		asked := server.asked.Load()
		ask("alice", 1)
		if n := server.asked.Load() - asked; asked != 3 || n != 0 {
			t.Errorf("Redis was asked %d times, and then %d times", asked, n)
		}
		server.silent.Store(false)
		time.Sleep(time.Second + time.Nanosecond)
		ask("alice", 1)
		if n := server.told.Load(); n != 3 {
			t.Errorf("Redis was told of %d requests: 2 from before the outage, one from after it", n)
		}
		ask("bob", 2)
		if n := server.told.Load(); n != 3 {
			t.Errorf("Redis was told of %d requests twice", n-3)
		}
	})
}

// A flood that makes Redis slow must not take the limits away that would end it.
func TestWhileRedisIsSilentTheProcessCountsAlone(t *testing.T) {
	t.Parallel()
	settings := servers.Defaults(t)
	settings.Redis.URL = "redis://127.0.0.1:1/0" // where nothing goes
	synctest.Test(t, func(t *testing.T) {
		server := &simulated{}
		server.silent.Store(true)
		rdb := servers.Redis(t, settings)
		rdb.AddHook(server)
		limiter := ratelimit.New(rdb, "ns", config.Limits{UserRate: 1, UserBurst: 5, ClientRate: 100, ClientBurst: 100, Budget: time.Millisecond}, nil)
		t.Cleanup(limiter.Close)
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
		if n := passed("alice", 50); n != 5 {
			t.Errorf("%d of 50 passed, want the burst", n)
		}
		if n := passed("bob", 50); n != 5 {
			t.Errorf("%d of another user's passed", n)
		}
		time.Sleep(2 * time.Second)
		if n := passed("alice", 50); n != 2 && n != 3 { // Redis is tried again meanwhile, which takes a moment
			t.Errorf("%d passed after two seconds", n)
		}
	})
}

func TestLimitsHoldAgainWhenRedisIsBack(t *testing.T) {
	t.Parallel()
	l, p := newLine(t, func(c *config.Limits) { c.Budget = 200 * time.Millisecond })
	limiter := p.limiter(t)
	asked := func() bool { return allow(t.Context(), limiter, "shop", "alice").Policy == "user" }
	servers.Eventually(t, "Redis is asked before the outage", asked)
	l.Die()
	for range 4 {
		if verdict := allow(t.Context(), limiter, "shop", "alice"); !verdict.Allowed || verdict.Policy != "" {
			t.Fatalf("in the outage: %+v", verdict)
		}
	}
	l.Live()
	servers.Eventually(t, "Redis is asked again", asked)
	servers.Eventually(t, "somebody is refused again", func() bool { return !allow(t.Context(), limiter, "shop", "alice").Allowed })
}

func TestARedisThatHasForgottenTheScriptIsNotAway(t *testing.T) {
	t.Parallel()
	p := newSpace(t, func(c *config.Limits) { c.UserBurst = 19 })
	asked := &counter{}
	p.rdb.AddHook(asked)
	limiter := p.limiter(t)
	for i := range 10 { // more in a row than the breaker stands
		if err := p.rdb.ScriptFlush(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		if verdict := allow(t.Context(), limiter, "shop", "alice"); verdict.Policy != "user" {
			t.Fatalf("after %d times: %+v", i+1, verdict)
		}
	}
	if asked.alone.Load() != 0 {
		t.Errorf("%d scripts were sent alone", asked.alone.Load())
	}
}

// forgetful makes Redis forget its scripts before every second pipeline.
type forgetful struct {
	rdb       *redis.Client // another one
	pipelines atomic.Int64
}

func (*forgetful) DialHook(next redis.DialHook) redis.DialHook { return next }

func (*forgetful) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (f *forgetful) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if f.pipelines.Add(1)%2 == 0 {
			if err := f.rdb.ScriptFlush(ctx).Err(); err != nil {
				return err
			}
		}
		return next(ctx, cmds)
	}
}

func TestForgettingTheScriptInTheMiddleLetsNobodyThrough(t *testing.T) {
	t.Parallel()
	p := newSpace(t)
	p.rdb.AddHook(&forgetful{rdb: p.clock.rdb})
	limiter := p.limiter(t)
	var passed atomic.Int64
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() {
			for range 20 {
				if allow(t.Context(), limiter, "shop", "alice").Allowed {
					passed.Add(1)
				}
			}
		})
	}
	all.Wait()
	if n := passed.Load(); n != 5 {
		t.Errorf("%d requests passed", n)
	}
	if got := p.outcomes(t); got["away"] != 0 {
		t.Errorf("counted %v", got)
	}
}
