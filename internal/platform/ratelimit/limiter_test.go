package ratelimit_test

import (
	"context"
	"maps"
	"slices"
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
	rdb       *redis.Client
	clock     *clock
	namespace string
	limits    config.Limits
	registry  *prometheus.Registry
}

// newSpace has one limit: one request in a second for each user, and a burst of
// five. The budget does not end before a busy machine has answered.
func newSpace(t *testing.T, change ...func(*config.Limits)) *space {
	t.Helper()
	settings := servers.RedisSettings(t)
	limits := config.Limits{UserRate: 1, UserBurst: 5, ClientBurst: 5, Budget: servers.Patience}
	for _, c := range change {
		c(&limits)
	}
	p := &space{rdb: servers.Redis(t, settings), namespace: settings.Redis.Namespace, limits: limits}
	p.clock = newClock(t, servers.Redis(t, settings), p.namespace)
	p.rdb.AddHook(p.clock)
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
	families, err := p.registry.Gather()
	if err != nil || len(families) != 1 || families[0].GetName() != "triprize_rate_limits_total" {
		t.Fatal(families, err)
	}
	counts := make(map[string]float64)
	for _, metric := range families[0].GetMetric() {
		counts[metric.GetLabel()[0].GetValue()] = metric.GetCounter().GetValue()
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

// counter counts pipelines, and commands that went alone.
type counter struct{ together, alone atomic.Int64 }

func (*counter) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c *counter) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if strings.HasPrefix(cmd.Name(), "eval") {
			c.alone.Add(1)
		}
		return next(ctx, cmd)
	}
}

func (c *counter) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if cmds[0].Name() == "evalsha" { // tests beside this one make Redis forget the script, and then it is sent whole
			c.together.Add(1)
		}
		return next(ctx, cmds)
	}
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

func TestTheClockOfRedisCounts(t *testing.T) {
	t.Parallel()
	settings := servers.RedisSettings(t)
	limiter := ratelimit.New(servers.Redis(t, settings), settings.Redis.Namespace,
		config.Limits{UserRate: 1, UserBurst: 5, ClientBurst: 5, Budget: servers.Patience}, nil)
	t.Cleanup(limiter.Close)
	if verdict := allow(t.Context(), limiter, "shop", "alice"); !verdict.Allowed || verdict.Remaining != 4 {
		t.Errorf("the first: %+v", verdict)
	}
	servers.Eventually(t, "somebody is refused", func() bool { return !allow(t.Context(), limiter, "shop", "alice").Allowed })
	servers.Eventually(t, "one came back", func() bool { return allow(t.Context(), limiter, "shop", "alice").Allowed })
}

func TestUsersAreIndependentAndBelongToTheirClient(t *testing.T) {
	t.Parallel()
	limiter := newSpace(t).limiter(t)
	drain(t, limiter, "shop", "alice", 5)
	drain(t, limiter, "shop", "bob", 5)
	drain(t, limiter, "other", "alice", 5)
}

func TestNamespacesAreIndependentAndProcessesShareOne(t *testing.T) {
	t.Parallel()
	p := newSpace(t)
	drain(t, p.limiter(t), "shop", "alice", 5)
	drain(t, p.limiter(t), "shop", "alice", 0)
	p.namespace += "-other"
	drain(t, p.limiter(t), "shop", "alice", 5)
}

func TestAClientHasALimitForAllItsUsers(t *testing.T) {
	t.Parallel()
	limiter := newSpace(t, func(l *config.Limits) { l.ClientRate, l.UserBurst = 1, 100 }).limiter(t)
	for _, user := range []string{"alice", "bob", "", "carol"} {
		if verdict := allow(t.Context(), limiter, "shop", user); !verdict.Allowed || verdict.Policy != "client" || verdict.Limit != 5 {
			t.Errorf("%q: %+v", user, verdict) // the client's has the least left
		}
	}
	if refusal := drain(t, limiter, "shop", "dave", 1); refusal.Policy != "client" || refusal.RetryAfterSeconds() != 1 {
		t.Errorf("%+v", refusal)
	}
	drain(t, limiter, "other", "", 5)
}

func TestTheVerdictIsOfTheLimitWithTheLeastLeft(t *testing.T) {
	t.Parallel()
	limiter := newSpace(t, func(l *config.Limits) { l.ClientRate, l.ClientBurst = 1, 100 }).limiter(t)
	if verdict := allow(t.Context(), limiter, "shop", "alice"); verdict.Policy != "user" || verdict.Remaining != 4 {
		t.Errorf("%+v", verdict)
	}
}

// The client is charged before its request is read, and so before its user is known.
func TestWhatTheUsersLimitRefusesIsChargedToTheClientToo(t *testing.T) {
	t.Parallel()
	limiter := newSpace(t, func(l *config.Limits) { l.ClientRate, l.ClientBurst = 1, 50 }).limiter(t)
	drain(t, limiter, "shop", "alice", 5)
	for range 20 {
		if verdict := allow(t.Context(), limiter, "shop", "alice"); verdict.Allowed || verdict.Policy != "user" {
			t.Errorf("%+v", verdict)
		}
	}
	if verdict := limiter.Client(t.Context(), "shop"); !verdict.Allowed || verdict.Remaining != 50-6-20-1 {
		t.Errorf("after 5 that passed and 21 that did not: %+v", verdict)
	}
}

func TestALimitThatIsOffIsNotAskedFor(t *testing.T) {
	t.Parallel()
	p := newSpace(t, func(l *config.Limits) { l.UserRate = 0 })
	asked := &counter{}
	p.rdb.AddHook(asked)
	limiter := p.limiter(t)
	for range 50 {
		if verdict := allow(t.Context(), limiter, "shop", "alice"); !verdict.Allowed || len(headers(verdict)) != 0 {
			t.Fatalf("%+v", verdict)
		}
	}
	if got := p.outcomes(t); got["passed"] != 0 {
		t.Errorf("counted %v", got)
	}
	p.limits.UserRate = 1
	if verdict := allow(t.Context(), p.limiter(t), "shop", ""); !verdict.Allowed || verdict.Policy != "" {
		t.Errorf("for no user: %+v", verdict)
	}
	if n := asked.together.Load() + asked.alone.Load(); n != 0 {
		t.Errorf("Redis was asked %d times", n)
	}
	p.limits.UserRate, p.limits.ClientRate = 0, 1
	if refusal := drain(t, p.limiter(t), "shop", "alice", 5); refusal.Policy != "client" {
		t.Errorf("%+v", refusal)
	}
}

// A burst of 59 has a slack of 2, one of 19 has none.
func TestRedisIsToldOfTheSlackAtOnceAndOneProcessIsExact(t *testing.T) {
	t.Parallel()
	for burst, most := range map[int]int64{19: 19 + 1, 59: 59/3 + 1 + 1} {
		p := newSpace(t, func(l *config.Limits) { l.UserBurst = burst })
		limiter, asked := p.limiter(t), &counter{}
		p.rdb.AddHook(asked)
		limiter.User(t.Context(), "shop", "other") // Redis has the script now, or nobody was asked
		before := asked.together.Load()
		drain(t, limiter, "shop", "alice", burst)
		if n := asked.together.Load() - before; n > most+1 {
			t.Errorf("burst %d: Redis was asked %d times", burst, n)
		}
		p.clock.move(time.Duration(burst) * time.Second)
		drain(t, limiter, "shop", "alice", burst)
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
			if slack := burst / 20; passed < 98-slack || passed > 101+slack {
				t.Errorf("burst %d, a request every %s: %d of 100 passed", burst, gap, passed)
			}
		}
	}
}

func TestUsersOfOneRequestCostRedisNothing(t *testing.T) {
	t.Parallel()
	p := newSpace(t, func(l *config.Limits) { l.UserBurst = 20 })
	asked := &counter{}
	p.rdb.AddHook(asked)
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
	if n := asked.together.Load() + asked.alone.Load(); n != 0 {
		t.Errorf("Redis was asked %d times", n)
	}
	for i := range 100 { // other users
		limiter.User(t.Context(), "shop", "new-"+strconv.Itoa(i))
	}
	if n := limiter.Known(); n != 100 {
		t.Errorf("%d users are remembered, and 100 have less than their burst", n)
	}
}

func TestEachProcessPassesAtMostItsSlackTooMany(t *testing.T) {
	t.Parallel()
	p := newSpace(t, func(l *config.Limits) { l.UserBurst = 59 }) // a slack of 2
	limiters := []*ratelimit.Limiter{p.limiter(t), p.limiter(t), p.limiter(t), p.limiter(t)}
	passed := 0
	for range 59 { // one request at each, again and again: the worst case
		for _, limiter := range limiters {
			if limiter.User(t.Context(), "shop", "alice").Allowed {
				passed++
			}
		}
	}
	if most := 59 + len(limiters)*2; passed < 59 || passed > most {
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
	if most := 59 + 200 + len(limiters)*2; passed > most {
		t.Errorf("%d requests passed in 200 seconds, want at most %d", passed, most)
	}
}

// between does something between the first and the second check that Redis is asked for.
type between struct {
	checks atomic.Int64
	do     func()
}

func (*between) DialHook(next redis.DialHook) redis.DialHook { return next }

func (*between) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (b *between) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if cmds[0].Name() == "evalsha" && b.checks.Add(1) == 2 {
			b.do()
		}
		return next(ctx, cmds)
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
	rdb := redis.NewClient(p.rdb.Options())
	t.Cleanup(func() { _ = rdb.Close() })
	rdb.AddHook(&between{do: func() { ask(other, "bob", 1, 1, 1) }})
	p.rdb = rdb
	rdb.AddHook(p.clock)
	ask(p.limiter(t), "bob", 4, 0, 2) // another process was faster: nothing is charged
}

// gate holds pipelines back until it is opened, and counts the checks in them.
type gate struct {
	open            chan struct{}
	arrived, checks atomic.Int64
}

func (*gate) DialHook(next redis.DialHook) redis.DialHook { return next }

func (*gate) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (g *gate) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if cmds[0].Name() == "evalsha" {
			g.checks.Add(int64(len(cmds)))
			g.arrived.Add(1)
		}
		<-g.open
		return next(ctx, cmds)
	}
}

// A burst of 59 has a slack of 2, one of 19 has none. Slack is for a process once: while it asks
// Redis, nothing passes ahead of the answer.
func TestChecksThatComeTogetherSharePipelinesAndPassNoMoreThanTheBurst(t *testing.T) {
	t.Parallel()
	for _, burst := range []int{19, 59} {
		t.Run(strconv.Itoa(burst), func(t *testing.T) {
			t.Parallel()
			checksTogether(t, burst, 2*(burst/20))
		})
	}
}

// checksTogether wants just a burst to pass of many checks, and at most so many beside it: those
// that pass before Redis has answered.
func checksTogether(t *testing.T, burst, ahead int) {
	t.Helper()
	p := newSpace(t, func(l *config.Limits) { l.UserBurst = burst })
	asked, held := &counter{}, &gate{open: make(chan struct{})}
	p.rdb.AddHook(held)
	p.rdb.AddHook(asked)
	limiters := []*ratelimit.Limiter{p.limiter(t), p.limiter(t)} // two processes
	const many = 400
	var passed atomic.Int64
	var all sync.WaitGroup
	for i := range many {
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
	servers.Eventually(t, "all checks wait or have passed", func() bool {
		return passed.Load()+held.checks.Load()+int64(limiters[0].Waiting()+limiters[1].Waiting()) == many
	})
	if n := passed.Load(); n > int64(ahead) {
		t.Errorf("%d requests passed before Redis has answered", n)
	}
	close(held.open)
	all.Wait()
	if n := passed.Load(); n < int64(burst) || n > int64(burst+ahead) {
		t.Errorf("%d requests passed", n)
	}
	// Of each process two pipelines had begun, and one takes all that waited then.
	if pipelines, alone := held.arrived.Load(), asked.alone.Load(); alone != 0 || pipelines > 2*(2+2) {
		t.Errorf("%d pipelines and %d single commands for %d checks", pipelines, alone, many)
	}
}

func TestAnswersOfOnePipelineAreNotMixedUp(t *testing.T) {
	t.Parallel()
	limiter := newSpace(t).limiter(t)
	drain(t, limiter, "shop", "alice", 5)
	var all sync.WaitGroup
	gate := make(chan struct{})
	for i := range 200 {
		all.Go(func() {
			<-gate
			if i%2 == 0 {
				if verdict := allow(t.Context(), limiter, "shop", "alice"); verdict.Allowed || verdict.Remaining != 0 {
					t.Errorf("%d: %+v", i, verdict)
				}
			} else if verdict := allow(t.Context(), limiter, "shop", "user-"+string(rune('a'+i))); !verdict.Allowed || verdict.Remaining != 4 {
				t.Errorf("%d: %+v", i, verdict)
			}
		})
	}
	close(gate)
	all.Wait()
}

func TestKeysHideWhatOthersChooseAndRunOut(t *testing.T) {
	t.Parallel()
	p := newSpace(t, func(l *config.Limits) { l.ClientRate = 1 })
	limiter := p.limiter(t)
	allow(t.Context(), limiter, "confectioner", "alice@example.org")
	keys, err := p.rdb.Keys(t.Context(), "*"+p.namespace+"*").Result()
	keys = slices.DeleteFunc(keys, func(key string) bool { return key == p.clock.key })
	if err != nil || len(keys) != 2 {
		t.Fatal(keys, err)
	}
	for _, key := range keys {
		if !strings.HasPrefix(key, p.namespace+":rate:") || strings.Contains(key, "alice") || strings.Contains(key, "confectioner") {
			t.Errorf("the key %s", key)
		}
		if ttl := p.rdb.TTL(t.Context(), key).Val(); ttl <= 0 || ttl > keep+time.Second {
			t.Errorf("the key %s lives for %s, and in a test for an hour more", key, ttl)
		}
	}
}

func TestOutcomesAreCounted(t *testing.T) {
	t.Parallel()
	p := newSpace(t, func(l *config.Limits) { l.ClientRate, l.ClientBurst = 1, 100 })
	limiter := p.limiter(t)
	if got := p.outcomes(t); len(got) != 3 || got["passed"]+got["limited"]+got["away"] != 0 {
		t.Errorf("before the first: %v", got)
	}
	drain(t, limiter, "shop", "alice", 5)
	ended, end := context.WithCancel(t.Context())
	end()
	limiter.User(ended, "shop", "bob")
	if got := p.outcomes(t); got["passed"] != 6+5 || got["limited"] != 1 || got["away"] != 1 {
		t.Errorf("the client passed 6 times and its user 5 times, one was limited, one gave up: %v", got)
	}
}

func TestAfterTheCloseTheProcessCountsAlone(t *testing.T) {
	t.Parallel()
	limiter := newSpace(t).limiter(t)
	drain(t, limiter, "shop", "alice", 5)
	limiter.Close()
	if verdict := allow(t.Context(), limiter, "shop", "alice"); verdict.Allowed {
		t.Errorf("the burst was used up before: %+v", verdict)
	}
	for i := range 6 {
		if verdict := allow(t.Context(), limiter, "shop", "bob"); verdict.Allowed != (i < 5) {
			t.Errorf("request %d: %+v", i+1, verdict)
		}
	}
}

func TestHeadersSayWhatIsLeft(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		limits                 config.Limits
		policy, first, refusal string
	}{
		"the defaults":   {config.Limits{UserRate: 10, UserBurst: 20, ClientBurst: 1}, `"user";q=20;w=2`, `"user";r=19;t=1`, `"user";r=0;t=1`},
		"a long burst":   {config.Limits{UserRate: 2, UserBurst: 7, ClientBurst: 1}, `"user";q=7;w=4`, `"user";r=6;t=1`, `"user";r=0;t=1`},
		"a short burst":  {config.Limits{UserRate: 10, UserBurst: 3, ClientBurst: 1}, `"user";q=3;w=1`, `"user";r=2;t=1`, `"user";r=0;t=1`},
		"of the client":  {config.Limits{UserBurst: 1, ClientRate: 3, ClientBurst: 10}, `"client";q=10;w=4`, `"client";r=9;t=1`, `"client";r=0;t=1`},
		"the less of it": {config.Limits{UserRate: 1, UserBurst: 9, ClientRate: 1, ClientBurst: 3}, `"client";q=3;w=3`, `"client";r=2;t=1`, `"client";r=0;t=1`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.limits.Budget = servers.Patience
			p := newSpace(t, func(l *config.Limits) { *l = c.limits })
			limiter := p.limiter(t)
			got := headers(allow(t.Context(), limiter, "shop", "alice"))
			if len(got) != 2 || got["RateLimit-Policy"] != c.policy || got["RateLimit"] != c.first {
				t.Errorf("the first: %v", got)
			}
			burst := max(c.limits.UserBurst, c.limits.ClientBurst)
			if c.limits.UserRate > 0 && c.limits.ClientRate > 0 {
				burst = min(c.limits.UserBurst, c.limits.ClientBurst)
			}
			p.clock.move(10 * time.Millisecond) // redis_rate rounds: without any time one less may pass
			verdict := drain(t, limiter, "shop", "alice", burst-1)
			got = headers(verdict)
			if len(got) != 2 || got["RateLimit-Policy"] != c.policy || got["RateLimit"] != c.refusal || verdict.RetryAfterSeconds() != 1 {
				t.Errorf("the refusal: %v, Retry-After %d", got, verdict.RetryAfterSeconds())
			}
		})
	}
}
