package idempotency_test

import (
	"context"
	"io"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"triprize/internal/idempotency"
)

// line is a connection to Redis that can go dead: while it is, a listener takes
// the connections and never answers.
type line struct {
	silent net.Listener

	mu   sync.Mutex
	dead bool
	open []net.Conn
}

// newLine returns a client that goes through a line, with timeouts so long that
// only the caller's budget can end a wait.
func newLine(t *testing.T) (*line, store) {
	t.Helper()
	l := &line{}
	var err error
	if l.silent, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.silent.Close() })
	go func() {
		for {
			conn, err := l.silent.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(io.Discard, conn)
				_ = conn.Close()
			}()
		}
	}()
	s := newStore(t)
	options := *s.rdb.Options()
	options.Dialer = l.dial
	options.ReadTimeout, options.WriteTimeout, options.DialTimeout = time.Minute, time.Minute, time.Minute
	s.rdb = redis.NewClient(&options)
	t.Cleanup(func() { _ = s.rdb.Close() })
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

func (l *line) dial(ctx context.Context, network, address string) (net.Conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dead {
		address = l.silent.Addr().String()
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err == nil {
		l.open = append(l.open, conn)
	}
	return conn, err
}

// die ends every connection; new ones get no answer until live is called.
func (l *line) die() { l.change(true) }

func (l *line) live() { l.change(false) }

func (l *line) change(dead bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dead = dead
	for _, conn := range l.open {
		_ = conn.Close()
	}
	l.open = nil
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
	l.die()
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
	l.die()
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
	l.die()
	for range 5 {
		if got, ok := requests.Find(t.Context(), request); ok {
			t.Fatalf("in the outage: %+v", got)
		}
	}
	l.live()
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
	l.die()
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
