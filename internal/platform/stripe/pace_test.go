package stripe_test

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"triprize/internal/domain/payprovider"
	"triprize/internal/platform/stripe"
	"triprize/internal/testkit/servers"
)

// paced has the rates of the defaults.
func paced() (with struct{ rate, endpoint, burst, allBurst int }) {
	with.rate, with.endpoint, with.burst, with.allBurst = 80, 20, 2, 8
	return with
}

func always(a answer) func(int, *http.Request) (answer, error) {
	return func(int, *http.Request) (answer, error) { return a, nil }
}

// A provider of 0 ms is the worst for a limit: nothing but the pace slows calls down.
func TestAllProcessesTogetherStayBelowTheLimitsOfTheAccount(t *testing.T) {
	t.Parallel()
	limits := paced()
	synctest.Test(t, func(t *testing.T) {
		with := settings("http://stripe.test")
		with.Timeout, with.Rate, with.EndpointRate = time.Hour, limits.rate, limits.endpoint
		shared, out := newSimulatedRedis(), &wire{say: always(answer{200, intent(), nil})}
		var all sync.WaitGroup
		var served atomic.Int64
		for range 4 {
			client := offline(t, with, shared)
			client.Through(out)
			for range 50 {
				all.Go(func() {
					for _, call := range []func() error{
						func() error { _, err := client.CreateIntent(t.Context(), wanted); return err },
						func() error { _, err := client.ConfirmIntent(t.Context(), "pi_1", "k", "", ""); return err },
						func() error { _, err := client.CaptureIntent(t.Context(), "pi_1", "k", 1000); return err },
						func() error { _, err := client.CancelIntent(t.Context(), "pi_1", "k"); return err },
						func() error { _, err := client.Intent(t.Context(), "pi_1"); return err },
					} {
						if err := call(); err != nil {
							t.Error(err)
						}
						served.Add(1)
					}
				})
			}
		}
		all.Wait()
		if n := served.Load(); n != 1000 || out.requests() != 1000 {
			t.Errorf("%d calls, %d requests", n, out.requests())
		}
		if n := out.busiest(""); n > limits.rate+limits.allBurst {
			t.Errorf("%d requests in a second", n)
		}
		if n := out.busiest("/v1/payment_intents/pi_1/confirm"); n > limits.endpoint+limits.burst {
			t.Errorf("%d confirmations in a second", n)
		}
		if took := out.at[999].Sub(out.at[0]); took > 1000*time.Second/time.Duration(limits.rate)*3/2 { // simulated time
			t.Errorf("the rate was not used: 1000 requests took %s", took)
		}
	})
}

// Redis tells with the last turn when the next one comes. A line that asks before that
// would ask twice for most turns.
func TestALineAsksRedisForTurnsThatThereAre(t *testing.T) {
	t.Parallel()
	const many = 100
	synctest.Test(t, func(t *testing.T) {
		with := settings("http://stripe.test")
		with.Timeout, with.Rate, with.EndpointRate = time.Hour, 80, 20
		shared := newSimulatedRedis()
		client := offline(t, with, shared)
		client.Through(&wire{say: always(answer{200, intent(), nil})})
		began := time.Now()
		var all sync.WaitGroup
		for range many {
			all.Go(func() {
				if _, err := client.ConfirmIntent(t.Context(), "pi_1", "k", "", ""); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if n := shared.asked.Load(); n > 2*many+many/10 { // a turn of the kind and one of all
			t.Errorf("%d calls asked %d times", many, n)
		}
		if took := time.Since(began); took > many*time.Second/20 { // simulated time
			t.Errorf("the rate was not used: %d calls took %s", many, took)
		}
	})
}

func TestALineIsServedInTheOrderOfArrival(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		with := settings("http://stripe.test")
		with.Timeout, with.Rate, with.EndpointRate = time.Hour, 10, 2
		out := &wire{say: func(_ int, r *http.Request) (answer, error) {
			return answer{200, named(strings.TrimPrefix(r.URL.Path, "/v1/payment_intents/")), nil}, nil
		}}
		client := offline(t, with, newSimulatedRedis())
		client.Through(out)
		var all sync.WaitGroup
		want := []string{"pi_a", "pi_b", "pi_c", "pi_d", "pi_e"}
		for _, id := range want {
			all.Go(func() {
				if _, err := client.Intent(t.Context(), id); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		all.Wait()
		for i, id := range want {
			if out.path[i] != "/v1/payment_intents/"+id {
				t.Errorf("got %v", out.path)
			}
		}
	})
}

// A line of confirmations does not hold up captures: 20 of 80 turns are all it may use.
func TestALineOfOneKindHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		with := settings("http://stripe.test")
		with.Timeout, with.Rate, with.EndpointRate = time.Hour, 80, 20
		client := offline(t, with, newSimulatedRedis())
		client.Through(&wire{say: always(answer{200, intent(), nil})})
		var all sync.WaitGroup
		for range 500 {
			all.Go(func() { _, _ = client.ConfirmIntent(t.Context(), "pi_1", "k", "", "") })
		}
		synctest.Wait()
		began := time.Now()
		if _, err := client.CaptureIntent(t.Context(), "pi_1", "k", 1000); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > time.Second { // simulated time
			t.Errorf("it waited for %s", took)
		}
		all.Wait()
	})
}

func TestACallWithoutATurnInTimeIsToldWhenToComeBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		with := settings("http://stripe.test")
		with.Timeout, with.Rate, with.EndpointRate = 10*time.Second, 10, 2
		out := &wire{say: always(answer{200, intent(), nil})}
		client := offline(t, with, newSimulatedRedis())
		client.Through(out)
		var all sync.WaitGroup
		var served, limited atomic.Int64
		began := time.Now()
		for range 100 {
			all.Go(func() {
				_, err := client.ConfirmIntent(t.Context(), "pi_1", "k", "", "")
				if err == nil {
					served.Add(1)
					return
				}
				limited.Add(1)
				if e := fault(t, err); e.Kind != payprovider.KindLimited || !e.RetryAt.After(time.Now()) || e.Status != 0 {
					t.Errorf("got %v, retry at %s", e, e.RetryAt)
				}
			})
		}
		synctest.Wait()
		if n := limited.Load(); n < 80 {
			t.Errorf("%d of 100 were told at once", n)
		}
		all.Wait()
		// Half of a call's time is for waiting: 5 s at 2 a second.
		if s, l := served.Load(), limited.Load(); s+l != 100 || s < 9 || s > 11 || int(s) != out.requests() || time.Since(began) > 5*time.Second {
			t.Errorf("%d were served and %d not, in %s, with %d requests", s, l, time.Since(began), out.requests())
		}
		if client.counted(t, "triprize_stripe_breaker_state", "payments") != 0 {
			t.Error("the breaker opened for our own pace")
		}
	})
}

func TestWithoutRedisEachProcessGoesAloneAtAShare(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		with := settings("http://stripe.test")
		with.Timeout, with.Rate, with.EndpointRate = time.Hour, 80, 20
		shared, out := newSimulatedRedis(), &wire{say: always(answer{200, intent(), nil})}
		shared.silent.Store(true)
		var all sync.WaitGroup
		for range 4 {
			client := offline(t, with, shared)
			client.Through(out)
			for range 50 {
				all.Go(func() {
					if _, err := client.ConfirmIntent(t.Context(), "pi_1", "k", "", ""); err != nil {
						t.Error(err)
					}
				})
			}
			t.Cleanup(func() {
				if client.counted(t, "triprize_stripe_turns_alone_total", "") == 0 {
					t.Error("not counted")
				}
			})
		}
		all.Wait()
		if n := out.busiest(""); n > 24 || n < 15 || out.requests() != 200 {
			t.Errorf("%d requests in a second, %d in all", n, out.requests())
		}
		if n := shared.asked.Load(); n > 200 { // it is left alone for a second when it was silent three times
			t.Errorf("a silent Redis was asked %d times", n)
		}
	})
}

// frozen stops the clock of redis_rate's script, so that no turn ever comes back, and
// counts how often it is asked.
type frozen struct{ asked atomic.Int64 }

func (*frozen) DialHook(next redis.DialHook) redis.DialHook { return next }

func (*frozen) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (f *frozen) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		args := cmd.Args()
		switch cmd.Name() {
		case "evalsha": // the digest of the script as it was: Redis must not know it
			args[1] = strings.Repeat("0", 40)
		case "eval":
			f.asked.Add(1)
			args[1] = strings.ReplaceAll(strings.ReplaceAll(args[1].(string), `redis.call("TIME")`, `{"1767225600", "0"}`), `"EX", `, `"EX", 3600 + `)
		}
		return next(ctx, cmd)
	}
}

// On a real Redis: what one process takes, another has not.
func TestProcessesOfANamespaceShareTheirTurns(t *testing.T) {
	t.Parallel()
	all := servers.RedisSettings(t)
	server := serve(t, answer{200, intent(), nil})
	with := settings(server.url)
	with.Rate, with.EndpointRate = 100, 10 // a burst of 1
	clock := &frozen{}
	process := func(namespace string) *stripe.Client {
		rdb := servers.Redis(t, all)
		rdb.AddHook(clock)
		c := stripe.New(with, rdb, namespace, quiet, nil)
		c.AskPatiently(servers.Patience)
		t.Cleanup(c.Close)
		return c
	}
	if _, err := process(all.Redis.Namespace).Intent(t.Context(), "pi_1"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	before := clock.asked.Load()
	go func() {
		servers.Eventually(t, "the second process asks again and again", func() bool { return clock.asked.Load() >= before+3 })
		cancel()
	}()
	if _, err := process(all.Redis.Namespace).Intent(ctx, "pi_1"); fault(t, err).Kind != payprovider.KindLimited || len(server.requests()) != 1 {
		t.Errorf("got %v after %d requests", err, len(server.requests()))
	}
	if _, err := process(all.Redis.Namespace+":other").Intent(t.Context(), "pi_1"); err != nil {
		t.Error(err)
	}
	keys, err := servers.Redis(t, all).Keys(t.Context(), all.Redis.Namespace+":rate:stripe:*").Result()
	if err != nil || len(keys) != 2 {
		t.Errorf("keys %v, %v", keys, err)
	}
}
