package stripe_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"triprize/internal/platform/config"
	"triprize/internal/platform/redisx"
	"triprize/internal/platform/stripe"
	"triprize/internal/testkit/servers"
)

// simulatedRedis answers the script of redis_rate by the clock of the test, or is
// silent. Its processes share it.
type simulatedRedis struct {
	silent atomic.Bool
	asked  atomic.Int64
	mu     sync.Mutex
	tats   map[string]time.Time // GCRA's "theoretical arrival times"
}

func newSimulatedRedis() *simulatedRedis { return &simulatedRedis{tats: make(map[string]time.Time)} }

func (*simulatedRedis) DialHook(next redis.DialHook) redis.DialHook { return next }

func (*simulatedRedis) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (s *simulatedRedis) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		s.asked.Add(1)
		if s.silent.Load() {
			<-ctx.Done()
			cmd.SetErr(ctx.Err())
			return ctx.Err()
		}
		args := cmd.Args() // evalsha, digest, 1, key, burst, rate, period, cost
		after, reset := s.take(args[3].(string), args[4].(int), args[5].(int))
		allowed := int64(1)
		if after > 0 {
			allowed = 0
		}
		cmd.(*redis.Cmd).SetVal([]any{allowed, int64(0), seconds(after), seconds(reset)})
		return nil
	}
}

func seconds(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'f', -1, 64) }

// take returns how long to wait, or 0 for a turn, and when the bucket is full again.
func (s *simulatedRedis) take(key string, burst, perSecond int) (after, reset time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, gap := time.Now(), time.Second/time.Duration(perSecond)
	tat := s.tats[key]
	if tat.Before(now) {
		tat = now
	}
	if after := tat.Add(gap).Add(-gap * time.Duration(burst)).Sub(now); after > 0 {
		return after, tat.Sub(now)
	}
	s.tats[key] = tat.Add(gap)
	return 0, s.tats[key].Sub(now)
}

// offline is a client without a Redis or a server behind it.
func offline(t testing.TB, with config.Stripe, hooks ...redis.Hook) client {
	t.Helper()
	all := servers.Defaults(t)
	all.Redis.URL = "redis://127.0.0.1:1/0" // where nothing goes
	rdb, err := redisx.Open(all.Redis, "stripe")
	if err != nil {
		t.Fatal(err)
	}
	for _, hook := range hooks {
		rdb.AddHook(hook)
	}
	log, registry := &servers.Journal{}, prometheus.NewRegistry()
	c := client{stripe.New(with, rdb, "ns", slog.New(slog.NewTextHandler(log, nil)), registry), log, registry}
	t.Cleanup(func() { c.Close(); _ = rdb.Close() })
	return c
}

// wire stands in for the network and the server: it answers at once what a function
// says, and notes when.
type wire struct {
	say  func(n int, r *http.Request) (answer, error) // n counts from 1
	mu   sync.Mutex
	at   []time.Time
	path []string
}

func (w *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	w.mu.Lock()
	w.at, w.path = append(w.at, time.Now()), append(w.path, r.URL.Path)
	n := len(w.at)
	w.mu.Unlock()
	a, err := w.say(n, r)
	if err == nil || a.status > 0 { // with a status and an error: sent, and no answer
		httptrace.ContextClientTrace(r.Context()).GotConn(httptrace.GotConnInfo{})
	}
	if err != nil {
		return nil, err
	}
	header := http.Header{}
	for name, value := range a.header {
		header.Set(name, value)
	}
	return &http.Response{StatusCode: a.status, Header: header, Body: io.NopCloser(strings.NewReader(a.body)), Request: r}, nil
}

func (w *wire) requests() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.at)
}

// busiest returns the most requests that began in any second; of a path, if one is given.
func (w *wire) busiest(path string) (most int) {
	for i, from := range w.at {
		n := 0
		for j, at := range w.at {
			if (path == "" || w.path[j] == path) && (path == "" || w.path[i] == path) && !at.Before(from) && at.Before(from.Add(time.Second)) {
				n++
			}
		}
		most = max(most, n)
	}
	return most
}
