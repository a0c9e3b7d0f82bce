package ratelimit_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"triprize/internal/platform/config"
	"triprize/internal/testkit/fixture"
)

// newLine returns a place behind a line to Redis that can go dead.
func newLine(t *testing.T, change ...func(*config.Limits)) (*fixture.Line, *place) {
	t.Helper()
	p := newPlace(t, change...)
	var l *fixture.Line
	l, p.rdb = fixture.OnLine(t, p.rdb)
	return l, p
}

// eventually waits until done, or fails the test.
func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !done(); {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func TestWhileRedisIsSilentRequestsPassWithinTheBudget(t *testing.T) {
	t.Parallel()
	const budget = 50 * time.Millisecond
	l, p := newLine(t, func(c *config.Limits) { c.ClientRate, c.Budget = 1, budget })
	l.Die()
	limiter := p.limiter(t)
	began := time.Now()
	verdict := limiter.Allow(t.Context(), "shop", "alice")
	took := time.Since(began)
	if !verdict.Allowed || len(headers(verdict)) != 0 || verdict.RetryAfterSeconds() != 0 {
		t.Errorf("%+v", verdict)
	}
	if took < budget/2 {
		t.Errorf("it took %s: nothing was silent, the test does not test", took)
	}
	if took > 10*time.Second { // the client's own timeouts are a minute
		t.Errorf("it took %s", took)
	}
	if got := p.outcomes(t); got["away"] != 1 || got["passed"] != 0 {
		t.Errorf("counted %v", got)
	}
}

func TestAfterAFewFailuresASilentRedisIsNotAskedForAWhile(t *testing.T) {
	t.Parallel()
	l, p := newLine(t, func(c *config.Limits) { c.Budget = 50 * time.Millisecond })
	asked := &counter{}
	p.rdb.AddHook(asked)
	l.Die()
	limiter := p.limiter(t)
	eventually(t, "three checks have failed", func() bool {
		limiter.Allow(t.Context(), "shop", "alice")
		return asked.together.Load() >= 3
	})
	before, tripped := asked.together.Load(), time.Now()
	for range 200 {
		if !limiter.Allow(t.Context(), "shop", "alice").Allowed {
			t.Fatal("refused")
		}
	}
	// One check in a second tries whether Redis is back, and one may have begun
	// before the third failure was counted.
	if n, most := asked.together.Load()-before, 1+int64(time.Since(tripped)/time.Second); n > most {
		t.Errorf("%d of 200 checks asked within %s", n, time.Since(tripped))
	}
}

func TestLimitsHoldAgainWhenRedisIsBack(t *testing.T) {
	t.Parallel()
	l, p := newLine(t, func(c *config.Limits) { c.UserBurst, c.Budget = 100, 200*time.Millisecond })
	limiter := p.limiter(t)
	asked := func() bool { return limiter.Allow(t.Context(), "shop", "alice").Policy == "user" }
	eventually(t, "Redis is asked before the outage", asked)
	l.Die()
	for range 5 {
		if verdict := limiter.Allow(t.Context(), "shop", "alice"); !verdict.Allowed || verdict.Policy != "" {
			t.Fatalf("in the outage: %+v", verdict)
		}
	}
	l.Live()
	eventually(t, "Redis is asked again", asked)
	eventually(t, "somebody is refused again", func() bool { return !limiter.Allow(t.Context(), "shop", "alice").Allowed })
}

func TestARedisThatHasForgottenTheScriptIsNotAway(t *testing.T) {
	t.Parallel()
	p := newPlace(t, func(c *config.Limits) { c.UserBurst = 1000 })
	asked := &counter{}
	p.rdb.AddHook(asked)
	limiter := p.limiter(t)
	for i := range 10 { // more in a row than the breaker stands
		if err := p.rdb.ScriptFlush(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		if verdict := limiter.Allow(t.Context(), "shop", "alice"); verdict.Policy != "user" {
			t.Fatalf("after %d times: %+v", i+1, verdict)
		}
	}
	if asked.alone.Load() != 0 {
		t.Errorf("%d scripts were sent alone", asked.alone.Load())
	}
}

func TestForgettingTheScriptInTheMiddleLetsNobodyThrough(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	limiter := p.limiter(t)
	var passed atomic.Int64
	var all sync.WaitGroup
	began := time.Now()
	for range 20 {
		all.Go(func() {
			for range 50 {
				if limiter.Allow(t.Context(), "shop", "alice").Allowed {
					passed.Add(1)
				}
			}
		})
	}
	all.Go(func() {
		for range 20 {
			_ = p.rdb.ScriptFlush(t.Context()).Err()
			time.Sleep(time.Millisecond)
		}
	})
	all.Wait()
	if n, most := passed.Load(), 5+int64(time.Since(began)/time.Second); n < 5 || n > most {
		t.Errorf("%d requests passed within %s", n, time.Since(began))
	}
	if got := p.outcomes(t); got["away"] != 0 {
		t.Errorf("counted %v", got)
	}
}

// FLUSHALL would take the keys of the tests beside this one too.
func TestARedisThatHasForgottenEverythingLimitsAnew(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	limiter := p.limiter(t)
	drain(t, limiter, "shop", "alice", 5)
	keys, err := p.rdb.Keys(t.Context(), p.namespace+":*").Result()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.rdb.Del(t.Context(), keys...).Err(); err != nil {
		t.Fatal(err)
	}
	if err := p.rdb.ScriptFlush(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	drain(t, limiter, "shop", "alice", 5)
}
