package idempotency_test

import (
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"triprize/internal/platform/config"
	"triprize/internal/platform/idempotency"
	"triprize/internal/testkit/servers"
)

func TestMain(m *testing.M) { servers.Main(m) }

// store is a namespace of its own on Redis.
type store struct {
	rdb       redis.UniversalClient
	namespace string
	settings  config.Idempotency
	registry  *prometheus.Registry
	requests  *idempotency.Requests
}

// newStore opens a store with the default settings, but for the budget: it must
// not end before a busy machine has answered.
func newStore(t *testing.T) store {
	t.Helper()
	settings := servers.Patient(servers.RedisSettings(t))
	settings.Idempotency.Budget = servers.Patience
	s := store{rdb: servers.Redis(t, settings), namespace: settings.Redis.Namespace, settings: settings.Idempotency, registry: prometheus.NewRegistry()}
	s.requests = s.with(t, s.namespace, "a secret")
	return s
}

// with returns Requests in another namespace or with another secret.
func (s store) with(t *testing.T, namespace, secret string) *idempotency.Requests {
	t.Helper()
	registry := s.registry
	if s.requests != nil {
		registry = prometheus.NewRegistry()
	}
	requests := idempotency.NewRequests(s.rdb, namespace, secret, s.settings, registry)
	t.Cleanup(requests.Close)
	return requests
}

func (s store) remember(t *testing.T, records map[idempotency.Request]idempotency.Record) {
	t.Helper()
	servers.NoError(t, s.requests.Remember(t.Context(), records))
}

// keys returns the keys of a store and their values.
func (s store) keys(t *testing.T) map[string]string {
	t.Helper()
	keys := servers.Keys(t, s.rdb, s.namespace+":*")
	if len(keys) == 0 {
		t.Fatal("there are none")
	}
	values := make(map[string]string)
	for _, key := range keys {
		values[key] = s.rdb.Get(t.Context(), key).Val()
	}
	return values
}

// Keys and values do not repeat what clients choose. A record ends by itself.
func TestWhatIsRememberedIsFoundUnlessItIsTooLong(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	const longest = 8 << 10
	records := map[idempotency.Request]idempotency.Record{
		{Client: "telling", Key: "1"}:        {Hash: [32]byte{1}, Job: uuid.New(), Answer: []byte(`{"c": 1}`)},
		{Client: "telling", Key: "4242 a b"}: {Hash: [32]byte{2}, Job: uuid.New(), Answer: []byte(`{"a": "b c"}`)},
		{Client: "other", Key: "1"}:          {Hash: [32]byte{3}, Job: uuid.New(), Answer: []byte(`{}`)},
		{Client: "other", Key: "longest"}:    {Job: uuid.New(), Answer: []byte(strings.Repeat("x", longest))},
		{Client: "other", Key: "too long"}:   {Job: uuid.New(), Answer: []byte(strings.Repeat("x", longest+1))},
		{Client: "other", Key: "no answer"}:  {Job: uuid.New()},
		{Client: "tell", Key: "ing1"}:        {Hash: [32]byte{4}, Job: uuid.New(), Answer: []byte(`{}`)},
	}
	s.remember(t, records)
	s.remember(t, nil)
	var all sync.WaitGroup // those that come together share round trips
	for request, want := range records {
		all.Go(func() {
			got, ok := s.requests.Find(request)
			if len(want.Answer) > longest || len(want.Answer) == 0 {
				want = idempotency.Record{}
			}
			if ok != (want.Answer != nil) || !reflect.DeepEqual(got, want) {
				t.Errorf("%+v: got %+v, %v", request, got, ok)
			}
		})
	}
	all.Wait()
	if got, ok := s.requests.Find(idempotency.Request{Client: "other", Key: "2"}); ok {
		t.Errorf("a request that never came has %+v", got)
	}
	if got, ok := s.with(t, s.namespace+"-other", "a secret").Find(idempotency.Request{Client: "other", Key: "1"}); ok {
		t.Errorf("another namespace has %+v", got)
	}
	for key, value := range s.keys(t) {
		if strings.Contains(key+value, "telling") || strings.Contains(key+value, "4242") {
			t.Errorf("a name is in %q = %q", key, value)
		}
		if rest := s.rdb.PTTL(t.Context(), key).Val(); rest <= 0 || rest > 5*time.Minute {
			t.Errorf("it ends after %s", rest)
		}
	}
	s.requests.Close()
	s.requests.Find(idempotency.Request{Client: "other", Key: "1"})
	for outcome, want := range map[string]float64{"hit": 5, "miss": 3, "unavailable": 1} {
		if got := servers.Counted(t, s.registry, "triprize_idempotency_lookups_total", outcome); got != want {
			t.Errorf("%v look-ups were a %s, want %v", got, outcome, want)
		}
	}
}

// Who can write to Redis, and knows how a record is made but not the secret, makes none.
func TestWhatNoAPIHasWrittenIsAMiss(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	mine, other := idempotency.Request{Client: "shop", Key: "k"}, idempotency.Request{Client: "shop", Key: "other"}
	record := idempotency.Record{Hash: [32]byte{1}, Job: uuid.New(), Answer: []byte(`{"state":"succeeded"}`)}
	s.remember(t, map[idempotency.Request]idempotency.Record{mine: record})
	var key string
	for only := range s.keys(t) {
		key = only
	}
	whole := s.keys(t)[key]
	s.remember(t, map[idempotency.Request]idempotency.Record{other: record})
	forger := s.with(t, s.namespace, "another secret")
	put := func(value string) error { return s.rdb.Set(t.Context(), key, value, 0).Err() }
	for what, forge := range map[string]func() error{
		"another text": func() error { return put("hello") },
		"another type": func() error {
			if err := s.rdb.Del(t.Context(), key).Err(); err != nil {
				return err
			}
			return s.rdb.LPush(t.Context(), key, "hello").Err()
		},
		"with another secret": func() error {
			return forger.Remember(t.Context(), map[idempotency.Request]idempotency.Record{mine: record})
		},
		"without a mark":      func() error { return put(whole[32:]) },
		"with another answer": func() error { return put(strings.Replace(whole, "succeeded", "failed   ", 1)) },
		"cut short":           func() error { return put(whole[:31]) },
		"of another key": func() error {
			for k, value := range s.keys(t) {
				if k != key {
					return put(value)
				}
			}
			return redis.Nil
		},
	} {
		if err := forge(); err != nil {
			t.Fatal(what, err)
		}
		if got, ok := s.requests.Find(mine); ok {
			t.Errorf("%s: found %+v", what, got)
		}
	}
	servers.NoError(t, put(whole))
	if got, ok := s.requests.Find(mine); !ok || got.Job != record.Job {
		t.Errorf("the true one: %+v, %v", got, ok)
	}
}
