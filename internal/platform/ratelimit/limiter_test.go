package ratelimit_test

import (
	"context"
	"maps"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"triprize/internal/platform/config"
	"triprize/internal/platform/ratelimit"
	"triprize/internal/testkit/servers"
)

func TestMain(m *testing.M) { servers.Main(m) }

// space is a namespace of its own on Redis, with the limits that hold there. No time
// passes there but by its clock.
type space struct {
	rdb       redis.UniversalClient
	clock     *clock
	settings  config.Settings
	namespace string
	limits    config.Limits
	registry  *prometheus.Registry
}

// newSpace has one limit: one request in a second for each user, and a burst of
// five. The budget does not end before a busy machine has answered.
func newSpace(t *testing.T, change ...func(*config.Limits)) *space {
	t.Helper()
	settings := servers.Patient(servers.RedisSettings(t))
	limits := config.Limits{UserRate: 1, UserBurst: 5, ClientBurst: 5, Budget: servers.Patience}
	for _, c := range change {
		c(&limits)
	}
	p := &space{rdb: servers.Redis(t, settings), settings: settings, namespace: settings.Redis.Namespace, limits: limits}
	p.clock = newClock(t)
	p.rdb.AddHook(servers.Before(p.clock.change))
	return p
}

// limiter returns a Limiter of the space, as another process would have it.
func (p *space) limiter(t *testing.T) *ratelimit.Limiter {
	p.registry = prometheus.NewRegistry()
	limiter := ratelimit.New(p.rdb, p.namespace, p.limits, p.registry)
	limiter.UseClock(p.clock.time)
	t.Cleanup(limiter.Close)
	return limiter
}

// outcomes returns what the last limiter has counted.
func (p *space) outcomes(t *testing.T) map[string]float64 {
	t.Helper()
	counts := make(map[string]float64)
	for _, outcome := range []string{"passed", "limited", "unavailable"} {
		counts[outcome] = servers.Counted(t, p.registry, "triprize_rate_limits_total", outcome)
	}
	return counts
}

// allow charges a request as the door does: first to the client, then to the user that
// it is for.
func allow(ctx context.Context, limiter *ratelimit.Limiter, client, user string) ratelimit.Verdict {
	verdict := limiter.Client(ctx, client)
	if user == "" || !verdict.Allowed {
		return verdict
	}
	return limiter.User(ctx, client, user).Stricter(verdict)
}

// drain asks until it is refused: just a burst must pass.
func drain(t *testing.T, limiter *ratelimit.Limiter, client, user string, burst int) (refusal ratelimit.Verdict) {
	t.Helper()
	for passed := 0; ; passed++ {
		verdict := allow(t.Context(), limiter, client, user)
		if verdict.Policy == "" {
			t.Fatalf("nothing was asked: %+v", verdict)
		}
		if !verdict.Allowed {
			if passed != burst {
				t.Errorf("%d requests passed, want %d", passed, burst)
			}
			return verdict
		}
		if passed == burst {
			t.Fatalf("request %d passed", passed+1)
		}
	}
}

// near compares times that went through the floating point numbers of Redis.
func near(a, b time.Duration) bool { return (a - b).Abs() < time.Millisecond }

func headers(verdict ratelimit.Verdict) map[string]string { return maps.Collect(verdict.Headers()) }

// watch counts the pipelines of checks that are sent to the Redis of the space, a check that goes alone as one. It may
// do something before each.
func (p *space) watch(before func(pipeline int64)) (pipelines *atomic.Int64) {
	pipelines = &atomic.Int64{}
	p.rdb.AddHook(servers.Hook(func(ctx context.Context, cmds []redis.Cmder, send redis.ProcessPipelineHook) error {
		if cmds[0].Name() == "evalsha" { // tests beside this one make Redis forget the script, and then it is sent whole
			if n := pipelines.Add(1); before != nil {
				before(n)
			}
		}
		return send(ctx, cmds)
	}))
	return pipelines
}

func TestABurstPassesAndWhoWaitsAsToldMayAskAgain(t *testing.T) {
	t.Parallel()
	p := newSpace(t)
	limiter := p.limiter(t)
	first := allow(t.Context(), limiter, "shop", "alice")
	if !first.Allowed || first.Policy != "user" || first.Limit != 5 || first.Remaining != 4 || first.RetryAfter != 0 || first.RetryAfterSeconds() != 0 || !near(first.Reset, time.Second) {
		t.Errorf("the first: %+v", first)
	}
	refusal := drain(t, limiter, "shop", "bob", 5)
	if refusal.Limit != 5 || refusal.Remaining != 0 || !near(refusal.RetryAfter, time.Second) || refusal.RetryAfterSeconds() != 1 || !near(refusal.Reset, 5*time.Second) {
		t.Errorf("the refusal: %+v", refusal)
	}
	p.clock.move(refusal.RetryAfter - 10*time.Millisecond)
	drain(t, limiter, "shop", "bob", 0)
	p.clock.move(20 * time.Millisecond)
	drain(t, limiter, "shop", "bob", 1) // one came back, not all
	p.clock.move(time.Minute)
	drain(t, limiter, "shop", "bob", 5)
}

// The limit of a client is for all its users, and that of a user belongs to its client. The client is charged
// before its request is read, so also for what the user's limit refuses. Keys hide what others choose.
func TestUsersClientsAndNamespacesAreIndependentAndProcessesShareThem(t *testing.T) {
	t.Parallel()
	p := newSpace(t)
	limiter := p.limiter(t)
	drain(t, limiter, "shop", "alice", 5)
	drain(t, limiter, "shop", "bob", 5)
	drain(t, limiter, "other", "alice", 5)
	drain(t, p.limiter(t), "shop", "alice", 0)
	p.namespace += "-other"
	drain(t, p.limiter(t), "shop", "alice", 5)

	p = newSpace(t, func(l *config.Limits) { l.ClientRate, l.ClientBurst, l.UserBurst = 1, 50, 100 })
	limiter = p.limiter(t)
	if verdict := allow(t.Context(), limiter, "shop", "alice@example.org"); !verdict.Allowed || verdict.Policy != "client" || verdict.Limit != 50 || verdict.Remaining != 49 {
		t.Errorf("%+v", verdict) // the client's has the least left
	}
	for _, user := range []string{"bob", "", "carol"} {
		allow(t.Context(), limiter, "shop", user)
	}
	if refusal := drain(t, limiter, "shop", "dave", 46); refusal.Policy != "client" || refusal.RetryAfterSeconds() != 1 {
		t.Errorf("%+v", refusal)
	}
	keys := servers.Keys(t, p.rdb, "*"+p.namespace+"*")
	if len(keys) < 2 {
		t.Fatal(keys)
	}
	for _, key := range keys {
		ttl := p.rdb.TTL(t.Context(), key).Val()
		if !strings.HasPrefix(key, p.namespace+":rate:") || strings.Contains(key, "alice") || strings.Contains(key, "shop") || ttl <= 0 || ttl > keep+time.Minute {
			t.Errorf("the key %s lives for %s, and in a test for an hour more", key, ttl)
		}
	}

	p = newSpace(t, func(l *config.Limits) { l.ClientRate, l.ClientBurst = 1, 50 })
	limiter = p.limiter(t)
	if verdict := allow(t.Context(), limiter, "shop", "alice"); verdict.Policy != "user" || verdict.Remaining != 4 {
		t.Errorf("%+v", verdict)
	}
	drain(t, limiter, "shop", "alice", 4)
	if verdict := limiter.Client(t.Context(), "shop"); !verdict.Allowed || verdict.Remaining != 50-6-1 {
		t.Errorf("after 5 that passed and one that did not: %+v", verdict)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	limiter.User(ended, "shop", "bob")
	if got := p.outcomes(t); !maps.Equal(got, map[string]float64{"passed": 7 + 5, "limited": 1, "unavailable": 1}) {
		t.Errorf("the client passed 7 times and its user 5 times, one was limited, one gave up: %v", got)
	}
}

func TestALimitThatIsOffIsNotAskedFor(t *testing.T) {
	t.Parallel()
	p := newSpace(t, func(l *config.Limits) { l.UserRate = 0 })
	asked := p.watch(nil)
	limiter := p.limiter(t)
	for range 50 {
		if verdict := allow(t.Context(), limiter, "shop", "alice"); !verdict.Allowed || len(headers(verdict)) != 0 {
			t.Fatalf("%+v", verdict)
		}
	}
	if got := p.outcomes(t); !maps.Equal(got, map[string]float64{"passed": 0, "limited": 0, "unavailable": 0}) {
		t.Errorf("counted %v", got)
	}
	p.limits.UserRate = 1
	if verdict := allow(t.Context(), p.limiter(t), "shop", ""); !verdict.Allowed || verdict.Policy != "" {
		t.Errorf("for no user: %+v", verdict)
	}
	if n := asked.Load(); n != 0 {
		t.Errorf("Redis was asked %d times", n)
	}
	p.limits.UserRate, p.limits.ClientRate = 0, 1
	if refusal := drain(t, p.limiter(t), "shop", "alice", 5); refusal.Policy != "client" {
		t.Errorf("%+v", refusal)
	}
}

// A burst of 59 has a slack of 4, one of 19 has none.
func TestRedisIsToldOfTheSlackAtOnceAndOneProcessIsExact(t *testing.T) {
	t.Parallel()
	for burst, most := range map[int]int64{19: 19 + 1, 59: 59/5 + 1 + 1} {
		p := newSpace(t, func(l *config.Limits) { l.UserBurst = burst })
		limiter, asked := p.limiter(t), p.watch(nil)
		limiter.User(t.Context(), "shop", "other") // Redis has the script now, or nobody was asked
		before := asked.Load()
		drain(t, limiter, "shop", "alice", burst)
		if n := asked.Load() - before; n > most+1 {
			t.Errorf("burst %d: Redis was asked %d times", burst, n)
		}
		p.clock.move(time.Duration(burst) * time.Second)
		drain(t, limiter, "shop", "alice", burst)
	}
}

func TestUsersOfOneRequestCostRedisNothing(t *testing.T) {
	t.Parallel()
	p := newSpace(t, func(l *config.Limits) { l.UserBurst = 20 })
	asked := p.watch(nil)
	limiter := p.limiter(t)
	for round := range 3 {
		for i := range 100 {
			verdict := limiter.User(t.Context(), "shop", strconv.Itoa(i))
			if !verdict.Allowed || verdict.Policy != "user" || verdict.Limit != 20 || verdict.Remaining != 19 || verdict.Reset != time.Second {
				t.Fatalf("round %d: %+v", round, verdict)
			}
		}
		p.clock.move(time.Minute) // nobody remembers them
	}
	if n := asked.Load(); n != 0 {
		t.Errorf("Redis was asked %d times", n)
	}
	for i := range 100 { // other users
		limiter.User(t.Context(), "shop", "new-"+strconv.Itoa(i))
	}
	if n := limiter.Known(); n != 100 {
		t.Errorf("%d users are remembered, and 100 have less than their burst", n)
	}
}

// The request that tells Redis of others is refused with them, but they are paid as far as the
// burst goes.
func TestWhatIsLeftPaysForRequestsThatHavePassed(t *testing.T) {
	t.Parallel()
	p := newSpace(t, func(l *config.Limits) { l.UserBurst = 59 })
	other := p.limiter(t)
	ask := func(limiter *ratelimit.Limiter, user string, n, charged, left int) {
		t.Helper()
		if a, b, err := limiter.Ask(t.Context(), "shop", user, n); err != nil || a != charged || b != left {
			t.Errorf("%d requests: %d are charged, and %d left: %v", n, a, b, err)
		}
	}
	ask(other, "alice", 57, 57, 2)
	ask(other, "alice", 4, 2, 0)
	ask(other, "alice", 4, 0, 0)
	ask(other, "bob", 57, 57, 2)
	p.rdb = servers.Redis(t, p.settings)
	p.watch(func(pipeline int64) {
		if pipeline == 2 {
			ask(other, "bob", 1, 1, 1)
		}
	})
	p.rdb.AddHook(servers.Before(p.clock.change))
	ask(p.limiter(t), "bob", 4, 0, 2) // another process was faster: nothing is charged
}

// slack returns how many requests of a burst a process may allow before it charges them.
func slack(burst int) int { return min(burst/20, 1) * max(burst/20, 4) }

// A burst of 59 has a slack of 4, one of 19 has none. Slack is for a process once: while it asks
// Redis, nothing passes ahead of the answer.
func TestChecksThatComeTogetherPassNoMoreThanTheBurst(t *testing.T) {
	t.Parallel()
	for _, burst := range []int{19, 59} {
		p := newSpace(t, func(l *config.Limits) { l.UserBurst = burst })
		limiters := []*ratelimit.Limiter{p.limiter(t), p.limiter(t)} // two processes
		var passed atomic.Int64
		var all sync.WaitGroup
		for i := range 400 {
			all.Go(func() {
				verdict := allow(t.Context(), limiters[i%2], "shop", "alice")
				if verdict.Policy == "" {
					t.Errorf("nothing was asked: %+v", verdict)
				}
				if verdict.Allowed {
					passed.Add(1)
				}
			})
		}
		all.Wait()
		if n := int(passed.Load()); n < burst || n > burst+2*slack(burst) {
			t.Errorf("burst %d: %d requests passed", burst, n)
		}
	}
}

func TestHeadersSayWhatIsLeft(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		limits                 config.Limits
		burst                  int
		policy, first, refusal string
	}{
		"the defaults":   {config.Limits{UserRate: 10, UserBurst: 20, ClientBurst: 1}, 20, `"user";q=20;w=2`, `"user";r=19;t=1`, `"user";r=0;t=1`},
		"a long burst":   {config.Limits{UserRate: 2, UserBurst: 7, ClientBurst: 1}, 7, `"user";q=7;w=4`, `"user";r=6;t=1`, `"user";r=0;t=1`},
		"a short burst":  {config.Limits{UserRate: 10, UserBurst: 3, ClientBurst: 1}, 3, `"user";q=3;w=1`, `"user";r=2;t=1`, `"user";r=0;t=1`},
		"of the client":  {config.Limits{UserBurst: 1, ClientRate: 3, ClientBurst: 10}, 10, `"client";q=10;w=4`, `"client";r=9;t=1`, `"client";r=0;t=1`},
		"the less of it": {config.Limits{UserRate: 1, UserBurst: 9, ClientRate: 1, ClientBurst: 3}, 3, `"client";q=3;w=3`, `"client";r=2;t=1`, `"client";r=0;t=1`},
	} {
		c.limits.Budget = servers.Patience
		p := newSpace(t, func(l *config.Limits) { *l = c.limits })
		limiter := p.limiter(t)
		first := headers(allow(t.Context(), limiter, "shop", "alice"))
		p.clock.move(10 * time.Millisecond) // redis_rate rounds: without any time one less may pass
		refusal := drain(t, limiter, "shop", "alice", c.burst-1)
		if want := map[string]string{"RateLimit-Policy": c.policy, "RateLimit": c.first}; !maps.Equal(first, want) {
			t.Errorf("%s: first %v", name, first)
		}
		if want := map[string]string{"RateLimit-Policy": c.policy, "RateLimit": c.refusal}; !maps.Equal(headers(refusal), want) || refusal.RetryAfterSeconds() != 1 {
			t.Errorf("%s: then %v, Retry-After %d", name, headers(refusal), refusal.RetryAfterSeconds())
		}
	}
}

// Nothing is lost between what Redis charges and what passes, also when parts of a request have
// come back.
func TestAUserThatAsksTooOftenGetsTheWholeRate(t *testing.T) {
	t.Parallel()
	for _, burst := range []int{19, 20, 100} {
		for _, gap := range []time.Duration{510 * time.Millisecond, 700 * time.Millisecond} {
			p := newSpace(t, func(l *config.Limits) { l.UserBurst = burst })
			limiter := p.limiter(t)
			drain(t, limiter, "shop", "alice", burst)
			passed := 0
			for at := time.Duration(0); at < 100*time.Second; at += gap {
				p.clock.move(gap)
				if limiter.User(t.Context(), "shop", "alice").Allowed {
					passed++
				}
			}
			if slack := slack(burst); passed < 98-slack || passed > 101+slack {
				t.Errorf("burst %d, a request every %s: %d of 100 passed", burst, gap, passed)
			}
		}
	}
}

func TestEachProcessPassesAtMostItsSlackTooMany(t *testing.T) {
	t.Parallel()
	p := newSpace(t, func(l *config.Limits) { l.UserBurst = 59 }) // a slack of 4
	limiters := []*ratelimit.Limiter{p.limiter(t), p.limiter(t), p.limiter(t), p.limiter(t)}
	passed := 0
	for range 59 { // one request at each, again and again: the worst case
		for _, limiter := range limiters {
			if limiter.User(t.Context(), "shop", "alice").Allowed {
				passed++
			}
		}
	}
	if most := 59 + len(limiters)*4; passed < 59 || passed > most {
		t.Errorf("%d requests passed, want 59 and at most %d", passed, most)
	}
	for _, limiter := range limiters {
		drain(t, limiter, "shop", "alice", 0)
	}
	passed = 0
	for range 200 { // a little after one more has come back, one at each
		p.clock.move(time.Second + time.Millisecond)
		for _, limiter := range limiters {
			if limiter.User(t.Context(), "shop", "bob").Allowed {
				passed++
			}
		}
	}
	if most := 59 + 200 + len(limiters)*4; passed > most {
		t.Errorf("%d requests passed in 200 seconds, want at most %d", passed, most)
	}
}
