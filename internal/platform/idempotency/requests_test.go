package idempotency_test

import (
	"errors"
	"strings"
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
	rdb       *redis.Client
	namespace string
	settings  config.Idempotency
	requests  *idempotency.Requests
}

// newStore opens a store with the default settings, but for the budget: it must
// not end before a busy machine has answered.
func newStore(t *testing.T, change ...func(*config.Idempotency)) store {
	t.Helper()
	settings := servers.RedisSettings(t)
	settings.Idempotency.Budget = servers.Patience
	for _, c := range change {
		c(&settings.Idempotency)
	}
	rdb, namespace := servers.Redis(t, settings), settings.Redis.Namespace
	s := store{rdb: rdb, namespace: namespace, settings: settings.Idempotency}
	s.requests = s.with(t, s.settings.Budget)
	return s
}

func (s store) remember(t *testing.T, request idempotency.Request, record idempotency.Record) {
	t.Helper()
	if err := s.requests.Remember(t.Context(), map[idempotency.Request]idempotency.Record{request: record}); err != nil {
		t.Fatal(err)
	}
}

func TestWhatIsRememberedIsFound(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	records := map[idempotency.Request]idempotency.Record{
		{Client: "shop", Key: "1"}:  {State: idempotency.Success, Hash: [32]byte{1}, Job: uuid.New(), Answer: []byte(`{"c": 1}`)},
		{Client: "shop", Key: "2"}:  {State: idempotency.Success, Hash: [32]byte{2}, Job: uuid.New(), Answer: []byte(`{"a": "b c"}`)},
		{Client: "other", Key: "1"}: {State: idempotency.Failed, Hash: [32]byte{3}, Job: uuid.New(), Answer: []byte(`{}`)},
	}
	if err := s.requests.Remember(t.Context(), records); err != nil {
		t.Fatal(err)
	}
	for request, want := range records {
		got, ok := s.requests.Find(request)
		if !ok || got.State != want.State || got.Hash != want.Hash || got.Job != want.Job || string(got.Answer) != string(want.Answer) {
			t.Errorf("%+v: got %+v, %v", request, got, ok)
		}
	}
	if got, ok := s.requests.Find(idempotency.Request{Client: "other", Key: "2"}); ok {
		t.Errorf("a request that never came has %+v", got)
	}
	other := idempotency.NewRequests(s.rdb, s.namespace+"-other", "a secret", s.settings, nil)
	t.Cleanup(other.Close)
	if got, ok := other.Find(idempotency.Request{Client: "shop", Key: "1"}); ok {
		t.Errorf("another namespace has %+v", got)
	}
}

func TestARecordRunsOut(t *testing.T) {
	t.Parallel()
	s := newStore(t, func(c *config.Idempotency) { c.RequestTTL = 300 * time.Millisecond })
	request := idempotency.Request{Client: "shop", Key: "k"}
	s.remember(t, request, idempotency.Record{State: idempotency.Success, Job: uuid.New(), Answer: []byte("{}")})
	servers.Eventually(t, "the record is gone", func() bool {
		_, ok := s.requests.Find(request)
		return !ok
	})
}

func TestAnOverLongAnswerIsNotRemembered(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	const longest = 8 << 10
	short, long := idempotency.Request{Client: "shop", Key: "short"}, idempotency.Request{Client: "shop", Key: "long"}
	err := s.requests.Remember(t.Context(), map[idempotency.Request]idempotency.Record{
		short: {State: idempotency.Success, Job: uuid.New(), Answer: []byte(strings.Repeat("x", longest))},
		long:  {State: idempotency.Success, Job: uuid.New(), Answer: []byte(strings.Repeat("x", longest+1))},
	})
	if err != nil {
		t.Fatal(err)
	}
	if got, ok := s.requests.Find(short); !ok || len(got.Answer) != longest {
		t.Errorf("an answer of %d bytes: %d, %v", longest, len(got.Answer), ok)
	}
	if _, ok := s.requests.Find(long); ok {
		t.Error("an answer that is longer was kept")
	}
	if err := s.requests.Remember(t.Context(), nil); err != nil {
		t.Errorf("remembering nothing: %v", err)
	}
}

func TestGarbageInRedisIsAMiss(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	request := idempotency.Request{Client: "shop", Key: "k"}
	s.remember(t, request, idempotency.Record{State: idempotency.Success, Job: uuid.New(), Answer: []byte("{}")})
	key := s.keys(t)[0]
	for what, spoil := range map[string]func() error{
		"another text": func() error { return s.rdb.Set(t.Context(), key, "hello", 0).Err() },
		"another type": func() error {
			return errors.Join(s.rdb.Del(t.Context(), key).Err(), s.rdb.LPush(t.Context(), key, "hello").Err())
		},
	} {
		if err := spoil(); err != nil {
			t.Fatal(err)
		}
		if got, ok := s.requests.Find(request); ok {
			t.Errorf("%s: found %+v", what, got)
		}
	}
}

// Who can write to Redis, and knows how a record is made but not the secret, makes none.
func TestARecordThatNoAPIHasWrittenIsAMiss(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	mine, other := idempotency.Request{Client: "shop", Key: "k"}, idempotency.Request{Client: "shop", Key: "other"}
	record := idempotency.Record{State: idempotency.Success, Hash: [32]byte{1}, Job: uuid.New(), Answer: []byte(`{"state":"succeeded"}`)}
	s.remember(t, mine, record)
	key := s.keys(t)[0]
	whole, err := s.rdb.Get(t.Context(), key).Result()
	if err != nil {
		t.Fatal(err)
	}
	forger := idempotency.NewRequests(s.rdb, s.namespace, "another secret", s.settings, nil)
	t.Cleanup(forger.Close)
	put := func(value string) error { return s.rdb.Set(t.Context(), key, value, 0).Err() }
	for what, forge := range map[string]func() error{
		"with another secret": func() error {
			return forger.Remember(t.Context(), map[idempotency.Request]idempotency.Record{mine: record})
		},
		"without a mark":      func() error { return put(whole[32:]) },
		"with another answer": func() error { return put(strings.Replace(whole, "succeeded", "failed   ", 1)) },
		"with another state":  func() error { return put(whole[:32] + strings.Replace(whole[32:], "SUCCESS", "FAILED", 1)) },
		"of another key": func() error {
			s.remember(t, other, record)
			for _, k := range s.keys(t) {
				if k != key {
					return s.rdb.Copy(t.Context(), k, key, s.rdb.Options().DB, true).Err()
				}
			}
			return errors.New("the other record is not there")
		},
	} {
		if err := forge(); err != nil {
			t.Fatal(err)
		}
		if got, ok := s.requests.Find(mine); ok {
			t.Errorf("%s: found %+v", what, got)
		}
	}
	if err := put(whole); err != nil {
		t.Fatal(err)
	}
	if got, ok := s.requests.Find(mine); !ok || got.Job != record.Job {
		t.Errorf("the true one: %+v, %v", got, ok)
	}
}

// keys returns the keys of a store.
func (s store) keys(t *testing.T) []string {
	t.Helper()
	keys, err := s.rdb.Keys(t.Context(), s.namespace+":*").Result()
	if err != nil || len(keys) == 0 {
		t.Fatal(keys, err)
	}
	return keys
}

func TestRedisKeysDoNotRepeatWhatClientsChoose(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	request := idempotency.Request{Client: "a-telling-client", Key: "a telling key: card 4242"}
	s.remember(t, request, idempotency.Record{State: idempotency.Success, Job: uuid.New(), Answer: []byte("{}")})
	for _, key := range s.keys(t) {
		value, err := s.rdb.Get(t.Context(), key).Result()
		if err != nil {
			t.Fatal(err)
		}
		for _, telling := range []string{request.Client, request.Key, "telling", "4242"} {
			if strings.Contains(key, telling) || strings.Contains(value, telling) {
				t.Errorf("%q is in %q = %q", telling, key, value)
			}
		}
	}
}

func TestLookUpsAreCountedByOutcome(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	registry := prometheus.NewRegistry()
	s.requests = idempotency.NewRequests(s.rdb, s.namespace, "a secret", s.settings, registry)
	t.Cleanup(s.requests.Close)
	known := idempotency.Request{Client: "shop", Key: "known"}
	s.remember(t, known, idempotency.Record{State: idempotency.Success, Job: uuid.New(), Answer: []byte("{}")})
	s.requests.Find(known)
	s.requests.Find(known)
	s.requests.Find(idempotency.Request{Client: "shop", Key: "unknown"})
	s.requests.Close()
	s.requests.Find(known)
	families, err := registry.Gather()
	if err != nil || len(families) != 1 {
		t.Fatal(families, err)
	}
	got := make(map[string]float64)
	for _, metric := range families[0].GetMetric() {
		got[metric.GetLabel()[0].GetValue()] = metric.GetCounter().GetValue()
	}
	if families[0].GetName() != "triprize_idempotency_lookups_total" || got["hit"] != 2 || got["miss"] != 1 || got["away"] != 1 || len(got) != 3 {
		t.Errorf("%s: %v", families[0].GetName(), got)
	}
}
