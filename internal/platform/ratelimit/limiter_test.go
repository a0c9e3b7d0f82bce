package ratelimit_test

import (
	"context"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"triprize/internal/platform/config"
	"triprize/internal/platform/ratelimit"
	"triprize/internal/testkit/fixture"
)

func TestMain(m *testing.M) { fixture.Main(m) }

// place is a namespace of its own on Redis, with the limits that hold there.
type place struct {
	rdb       *redis.Client
	namespace string
	limits    config.Limits
	registry  *prometheus.Registry
}

// newPlace has one limit: one request in a second for each user, and a burst of
// five. The budget must not end before a busy machine has answered.
func newPlace(t *testing.T, change ...func(*config.Limits)) *place {
	t.Helper()
	settings := fixture.Settings(t)
	limits := config.Limits{UserRate: 1, UserBurst: 5, ClientBurst: 5, Budget: 20 * time.Second}
	for _, c := range change {
		c(&limits)
	}
	return &place{rdb: fixture.Redis(t, settings), namespace: settings.Redis.Namespace, limits: limits}
}

// limiter returns a Limiter of the place, as another process would have it.
func (p *place) limiter(t *testing.T) *ratelimit.Limiter {
	p.registry = prometheus.NewRegistry()
	limiter := ratelimit.New(p.rdb, p.namespace, p.limits, p.registry)
	t.Cleanup(limiter.Close)
	return limiter
}

// outcomes returns what the last limiter has counted.
func (p *place) outcomes(t *testing.T) map[string]float64 {
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

// drain asks until it is refused. What passed must be the burst, what came back
// at one in a second meanwhile, and perhaps one that was nearly back before.
func drain(t *testing.T, limiter *ratelimit.Limiter, client, user string, burst int) (passed int, refusal ratelimit.Verdict) {
	t.Helper()
	began := time.Now()
	for {
		verdict := limiter.Allow(t.Context(), client, user)
		if verdict.Policy == "" {
			t.Fatalf("nothing was asked: %+v", verdict)
		}
		if !verdict.Allowed {
			refusal = verdict
			break
		}
		passed++
		if most := burst + 1 + int(time.Since(began)/time.Second); passed > most {
			t.Fatalf("%d requests passed within %s", passed, time.Since(began))
		}
	}
	if passed < burst {
		t.Errorf("%d requests passed within %s", passed, time.Since(began))
	}
	return passed, refusal
}

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
		if strings.HasPrefix(cmds[0].Name(), "eval") {
			c.together.Add(1)
		}
		return next(ctx, cmds)
	}
}

func TestABurstPassesAndWhoWaitsAsToldMayAskAgain(t *testing.T) {
	t.Parallel()
	limiter := newPlace(t).limiter(t)
	first := limiter.Allow(t.Context(), "shop", "alice")
	if !first.Allowed || first.Policy != "user" || first.Limit != 5 || first.Remaining != 4 || first.RetryAfter != 0 || first.RetryAfterSeconds() != 0 ||
		first.Reset <= 0 || first.Reset > time.Second {
		t.Errorf("the first: %+v", first)
	}
	_, refusal := drain(t, limiter, "shop", "bob", 5)
	if refusal.Limit != 5 || refusal.Remaining != 0 || refusal.RetryAfter <= 0 || refusal.RetryAfter > time.Second || refusal.RetryAfterSeconds() != 1 ||
		refusal.Reset <= 4*time.Second-time.Millisecond || refusal.Reset > 5*time.Second {
		t.Errorf("the refusal: %+v", refusal)
	}
	time.Sleep(refusal.RetryAfter + 10*time.Millisecond)
	if verdict := limiter.Allow(t.Context(), "shop", "bob"); !verdict.Allowed {
		t.Errorf("after %s: %+v", refusal.RetryAfter, verdict)
	}
	drain(t, limiter, "shop", "bob", 0) // one came back, not all
}

func TestUsersAreIndependentAndBelongToTheirClient(t *testing.T) {
	t.Parallel()
	limiter := newPlace(t).limiter(t)
	drain(t, limiter, "shop", "alice", 5)
	drain(t, limiter, "shop", "bob", 5)
	drain(t, limiter, "other", "alice", 5)
}

func TestNamespacesAreIndependentAndProcessesShareOne(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	drain(t, p.limiter(t), "shop", "alice", 5)
	drain(t, p.limiter(t), "shop", "alice", 0)
	p.namespace += "-other"
	drain(t, p.limiter(t), "shop", "alice", 5)
}

func TestAClientHasALimitForAllItsUsers(t *testing.T) {
	t.Parallel()
	limiter := newPlace(t, func(l *config.Limits) { l.ClientRate, l.UserBurst = 1, 100 }).limiter(t)
	for _, user := range []string{"alice", "bob", "", "carol"} {
		if verdict := limiter.Allow(t.Context(), "shop", user); !verdict.Allowed || verdict.Policy != "client" || verdict.Limit != 5 {
			t.Errorf("%q: %+v", user, verdict) // the client's has the least left
		}
	}
	if _, refusal := drain(t, limiter, "shop", "dave", 1); refusal.Policy != "client" || refusal.RetryAfterSeconds() != 1 {
		t.Errorf("%+v", refusal)
	}
	drain(t, limiter, "other", "", 5)
}

func TestTheVerdictIsOfTheLimitWithTheLeastLeft(t *testing.T) {
	t.Parallel()
	limiter := newPlace(t, func(l *config.Limits) { l.ClientRate, l.ClientBurst = 1, 100 }).limiter(t)
	if verdict := limiter.Allow(t.Context(), "shop", "alice"); verdict.Policy != "user" || verdict.Remaining != 4 {
		t.Errorf("%+v", verdict)
	}
}

func TestWhatTheUsersLimitRefusesCostsTheClientNothing(t *testing.T) {
	t.Parallel()
	limiter := newPlace(t, func(l *config.Limits) { l.ClientRate, l.ClientBurst = 1, 50 }).limiter(t)
	passed, _ := drain(t, limiter, "shop", "alice", 5)
	for range 100 {
		if limiter.Allow(t.Context(), "shop", "alice").Allowed {
			passed++
		}
	}
	if verdict := limiter.Allow(t.Context(), "shop", ""); !verdict.Allowed || verdict.Remaining < 50-passed-2 {
		t.Errorf("after %d that passed: %+v", passed, verdict)
	}
}

func TestALimitThatIsOffIsNotAskedFor(t *testing.T) {
	t.Parallel()
	p := newPlace(t, func(l *config.Limits) { l.UserRate = 0 })
	asked := &counter{}
	p.rdb.AddHook(asked)
	limiter := p.limiter(t)
	for range 50 {
		if verdict := limiter.Allow(t.Context(), "shop", "alice"); !verdict.Allowed || len(headers(verdict)) != 0 {
			t.Fatalf("%+v", verdict)
		}
	}
	if got := p.outcomes(t); got["passed"] != 0 {
		t.Errorf("counted %v", got)
	}
	p.limits.UserRate = 1
	if verdict := p.limiter(t).Allow(t.Context(), "shop", ""); !verdict.Allowed || verdict.Policy != "" {
		t.Errorf("for no user: %+v", verdict)
	}
	if n := asked.together.Load() + asked.alone.Load(); n != 0 {
		t.Errorf("Redis was asked %d times", n)
	}
	p.limits.UserRate, p.limits.ClientRate = 0, 1
	if _, refusal := drain(t, p.limiter(t), "shop", "alice", 5); refusal.Policy != "client" {
		t.Errorf("%+v", refusal)
	}
}

func TestAThousandAtOncePassNoMoreThanTheBurst(t *testing.T) {
	t.Parallel()
	p := newPlace(t, func(l *config.Limits) { l.UserBurst = 20 })
	asked := &counter{}
	p.rdb.AddHook(asked)
	limiters := []*ratelimit.Limiter{p.limiter(t), p.limiter(t)} // two processes
	const many = 1000
	var passed atomic.Int64
	var all sync.WaitGroup
	gate := make(chan struct{})
	for i := range many {
		all.Go(func() {
			<-gate
			verdict := limiters[i%2].Allow(t.Context(), "shop", "alice")
			if verdict.Policy == "" {
				t.Errorf("nothing was asked: %+v", verdict)
			}
			if verdict.Allowed {
				passed.Add(1)
			}
		})
	}
	began := time.Now()
	close(gate)
	all.Wait()
	if n, most := passed.Load(), 20+int64(time.Since(began)/time.Second); n < 20 || n > most {
		t.Errorf("%d requests passed within %s", n, time.Since(began))
	}
	if together, alone := asked.together.Load(), asked.alone.Load(); alone != 0 || together == 0 || together > many/4 {
		t.Errorf("%d pipelines and %d single commands for %d checks", together, alone, many)
	}
}

func TestAnswersOfOnePipelineAreNotMixedUp(t *testing.T) {
	t.Parallel()
	limiter := newPlace(t).limiter(t)
	drain(t, limiter, "shop", "alice", 5)
	var all sync.WaitGroup
	gate := make(chan struct{})
	began := time.Now()
	var passed atomic.Int64
	for i := range 200 {
		all.Go(func() {
			<-gate
			if i%2 == 0 {
				if limiter.Allow(t.Context(), "shop", "alice").Allowed {
					passed.Add(1)
				}
			} else if verdict := limiter.Allow(t.Context(), "shop", "user-"+string(rune('a'+i))); !verdict.Allowed || verdict.Remaining != 4 {
				t.Errorf("%d: %+v", i, verdict)
			}
		})
	}
	close(gate)
	all.Wait()
	if n, most := passed.Load(), 1+int64(time.Since(began)/time.Second); n > most {
		t.Errorf("%d requests of the drained user passed within %s", n, time.Since(began))
	}
}

func TestKeysHideWhatOthersChooseAndRunOut(t *testing.T) {
	t.Parallel()
	p := newPlace(t, func(l *config.Limits) { l.ClientRate = 1 })
	limiter := p.limiter(t)
	limiter.Allow(t.Context(), "confectioner", "alice@example.org")
	keys, err := p.rdb.Keys(t.Context(), "*"+p.namespace+"*").Result()
	if err != nil || len(keys) != 2 {
		t.Fatal(keys, err)
	}
	for _, key := range keys {
		if !strings.HasPrefix(key, p.namespace+":rate:") || strings.Contains(key, "alice") || strings.Contains(key, "confectioner") {
			t.Errorf("the key %s", key)
		}
		if ttl := p.rdb.TTL(t.Context(), key).Val(); ttl <= 0 || ttl > 5*time.Second {
			t.Errorf("the key %s lives for %s", key, ttl)
		}
	}
}

func TestOutcomesAreCounted(t *testing.T) {
	t.Parallel()
	p := newPlace(t, func(l *config.Limits) { l.ClientRate, l.ClientBurst = 1, 100 })
	limiter := p.limiter(t)
	if got := p.outcomes(t); len(got) != 3 || got["passed"]+got["limited"]+got["away"] != 0 {
		t.Errorf("before the first: %v", got)
	}
	passed, _ := drain(t, limiter, "shop", "alice", 5)
	ended, end := context.WithCancel(t.Context())
	end()
	limiter.Allow(ended, "shop", "bob")
	if got := p.outcomes(t); got["passed"] != float64(passed) || got["limited"] != 1 || got["away"] != 1 {
		t.Errorf("%d passed, one was limited, one gave up: %v", passed, got)
	}
}

func TestAfterTheCloseRequestsPass(t *testing.T) {
	t.Parallel()
	limiter := newPlace(t).limiter(t)
	drain(t, limiter, "shop", "alice", 5)
	limiter.Close()
	if verdict := limiter.Allow(t.Context(), "shop", "alice"); !verdict.Allowed {
		t.Errorf("%+v", verdict)
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
			c.limits.Budget = 20 * time.Second
			limiter := newPlace(t, func(l *config.Limits) { *l = c.limits }).limiter(t)
			got := headers(limiter.Allow(t.Context(), "shop", "alice"))
			if len(got) != 2 || got["RateLimit-Policy"] != c.policy || got["RateLimit"] != c.first {
				t.Errorf("the first: %v", got)
			}
			verdict := limiter.Allow(t.Context(), "shop", "alice")
			for range 10_000 {
				if verdict = limiter.Allow(t.Context(), "shop", "alice"); !verdict.Allowed {
					break
				}
			}
			got = headers(verdict)
			if len(got) != 2 || got["RateLimit-Policy"] != c.policy || got["RateLimit"] != c.refusal || verdict.RetryAfterSeconds() != 1 {
				t.Errorf("the refusal: %v, Retry-After %d", got, verdict.RetryAfterSeconds())
			}
		})
	}
}
