package idempotency_test

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"triprize/internal/platform/idempotency"
	"triprize/internal/testkit/fixture"
)

// newLine returns a store behind a line to Redis that can go dead.
func newLine(t *testing.T) (*fixture.Line, store) {
	t.Helper()
	s := newStore(t)
	var l *fixture.Line
	l, s.rdb = fixture.OnLine(t, s.rdb)
	return l, s
}

// with returns the store's Requests with a budget.
func (s store) with(t *testing.T, budget time.Duration) *idempotency.Requests {
	settings := s.settings
	settings.Budget = budget
	requests := idempotency.NewRequests(s.rdb, s.namespace, settings, nil)
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

func TestALookUpWaitsForASilentRedisNoLongerThanItsBudget(t *testing.T) {
	t.Parallel()
	l, s := newLine(t)
	l.Die()
	const budget = 50 * time.Millisecond
	began := time.Now()
	if got, ok := s.with(t, budget).Find(t.Context(), request); ok {
		t.Errorf("found %+v", got)
	}
	took := time.Since(began)
	if took < budget/2 {
		t.Errorf("it took %s: nothing was silent, the test does not test", took)
	}
	if took > 10*time.Second { // the client's own timeouts are a minute
		t.Errorf("it took %s", took)
	}
}

func TestAfterAFewFailuresASilentRedisIsNotAskedForAWhile(t *testing.T) {
	t.Parallel()
	l, s := newLine(t)
	asked := &counter{}
	s.rdb.AddHook(asked)
	l.Die()
	requests := s.with(t, 50*time.Millisecond)
	for range 3 {
		requests.Find(t.Context(), request)
	}
	if n := asked.sent.Load(); n != 3 {
		t.Fatalf("%d of 3 look-ups asked", n)
	}
	tripped := time.Now()
	for range 200 {
		requests.Find(t.Context(), request)
	}
	// One look-up in a second tries whether Redis is back, and one may have begun
	// before the third failure was counted.
	if n, most := asked.sent.Load()-3, 1+int64(time.Since(tripped)/time.Second); n > most {
		t.Errorf("%d of 200 look-ups asked within %s", n, time.Since(tripped))
	}
}

func TestRedisIsAskedAgainWhenItIsBack(t *testing.T) {
	t.Parallel()
	l, s := newLine(t)
	s.remember(t, request, idempotency.Record{State: idempotency.InProgress, Job: uuid.New()})
	requests := s.with(t, 200*time.Millisecond)
	eventually(t, "Redis is asked before the outage", func() bool { _, ok := requests.Find(t.Context(), request); return ok })
	l.Die()
	for range 5 {
		if got, ok := requests.Find(t.Context(), request); ok {
			t.Fatalf("in the outage: %+v", got)
		}
	}
	l.Live()
	eventually(t, "Redis is asked again", func() bool { _, ok := requests.Find(t.Context(), request); return ok })
}

func TestAMissIsNoFailure(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	asked := &counter{}
	s.rdb.AddHook(asked)
	for range 20 {
		if _, ok := s.requests.Find(t.Context(), request); ok {
			t.Fatal("found what nobody has written")
		}
	}
	if n := asked.sent.Load(); n != 20 {
		t.Errorf("%d of 20 look-ups asked", n)
	}
}

func TestWithoutRedisNothingIsRememberedOrClaimed(t *testing.T) {
	t.Parallel()
	l, s := newLine(t)
	l.Die()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	requests := s.with(t, time.Second)
	if err := requests.Remember(ctx, map[idempotency.Request]idempotency.Record{request: {State: idempotency.InProgress, Job: uuid.New()}}); err == nil {
		t.Error("remembered")
	}
	if busy, err := s.claims.Claim(ctx, "worker", []uuid.UUID{uuid.New()}); err == nil {
		t.Errorf("claimed but for %v", busy)
	}
	if err := s.claims.Refresh(ctx, []uuid.UUID{uuid.New()}); err == nil {
		t.Error("refreshed")
	}
}

func TestLookUpsThatComeTogetherShareRoundTrips(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	asked := &counter{}
	s.rdb.AddHook(asked)
	const many = 400
	records := make(map[idempotency.Request]idempotency.Record)
	for i := range many {
		if i%2 == 0 {
			records[idempotency.Request{Client: "shop", Key: strconv.Itoa(i)}] = idempotency.Record{State: idempotency.InProgress, Job: uuid.New()}
		}
	}
	if err := s.requests.Remember(t.Context(), records); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	gate := make(chan struct{})
	for i := range many {
		all.Go(func() {
			<-gate
			mine := idempotency.Request{Client: "shop", Key: strconv.Itoa(i)}
			got, ok := s.requests.Find(t.Context(), mine)
			if want, remembered := records[mine]; ok != remembered || got.Job != want.Job {
				t.Errorf("%d: got %+v, %v", i, got, ok)
			}
		})
	}
	close(gate)
	all.Wait()
	if n := asked.sent.Load(); n == 0 || n > many/2 {
		t.Errorf("%d round trips for %d look-ups", n, many)
	}
}
