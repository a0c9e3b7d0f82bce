// Package idempotency caches answers to repeated requests in Redis, in front of the jobs table. The
// idempotency keys of tasks are in package queue.
//
// The jobs table decides. A hit saves work; after a miss, or without Redis, Postgres is read. No request is
// rejected because of a record here.
//
//	ns:request:<digest of client and key>  <MAC, 32 bytes><request hash, 32 bytes><job, 16 bytes><answer>
//
// The MAC (HMAC-SHA256) covers the name of the key and the rest of the value. Its key is derived from
// draw.secret_key: a record that no api has written is a miss.
//
// The api ([Requests]) writes the final answer of a request on its first repetition, because most requests
// are never repeated.
package idempotency

import (
	"cmp"
	"context"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/redis/go-redis/v9"
	"github.com/sony/gobreaker/v2"

	"triprize/internal/platform/batch"
	"triprize/internal/platform/config"
)

// maxAnswer bounds a cached answer; a longer one is read from Postgres each time.
const maxAnswer = 8 << 10

// Requests has the records of requests, by idempotency key.
type Requests struct {
	rdb       redis.UniversalClient
	namespace string
	mac       MAC
	ttl       time.Duration
	breaker   *gobreaker.CircuitBreaker[[][]byte]
	finds     *batch.Coalescer[Request, []byte]
	lookups   *prometheus.CounterVec
}

const (
	findBatch    = 256
	budget       = 50 * time.Millisecond // of a look-up in Redis; a request waits for at most three, then it reads Postgres
	requestTTL   = 5 * time.Minute       // TTL of an answer, at most 12h; with jobRemembered of the api less than any retention in Postgres
	findsPending = 2 * findBatch         // so that no request waits for more than three round trips; beyond it Postgres is read
)

// NewRequests returns a Requests; registry may be nil. Records are authenticated with a key derived from secret:
// those of another secret are misses. Close it.
func NewRequests(rdb redis.UniversalClient, namespace, secret string, settings config.Idempotency, registry prometheus.Registerer) *Requests {
	r := &Requests{
		rdb: rdb, namespace: namespace, mac: NewMAC(secret), ttl: cmp.Or(settings.RequestTTL, requestTTL),
		breaker: gobreaker.NewCircuitBreaker[[][]byte](gobreaker.Settings{
			Name:        "idempotency",
			Timeout:     time.Second, // then one look-up probes
			ReadyToTrip: func(c gobreaker.Counts) bool { return c.ConsecutiveFailures >= 3 },
		}),
		lookups: promauto.With(registry).NewCounterVec(prometheus.CounterOpts{
			Name: "triprize_idempotency_lookups_total",
			Help: "Look-ups of idempotency keys in Redis by outcome: hit, miss, or unavailable.",
		}, []string{"outcome"}),
	}
	for _, result := range []string{"hit", "miss", "unavailable"} {
		r.lookups.WithLabelValues(result)
	}
	r.finds = batch.New(batch.Options{Size: findBatch, InFlight: 1, Pending: findsPending, Timeout: cmp.Or(settings.Budget, budget),
		Whole: func(error) bool { return true }}, r.get)
	return r
}

// Close ends the look-ups.
func (s *Requests) Close() { s.finds.Close() }

// Find returns the record of a request, if Redis has it and answers in time. Concurrent look-ups share a round
// trip: one for each would cost more than all other work of a request. A look-up waits for at most three round
// trips; after three failures the breaker opens.
func (s *Requests) Find(request Request) (Record, bool) {
	value, err := s.finds.Do(context.Background(), request)
	record, ok := s.open(requestKey(s.namespace, request), value)
	outcome := "miss"
	switch {
	case err != nil:
		outcome = "unavailable"
	case ok:
		outcome = "hit"
	}
	s.lookups.WithLabelValues(outcome).Inc()
	return record, ok
}

// get looks up many requests; the value of a missing one is nil.
func (s *Requests) get(ctx context.Context, requests []Request) ([][]byte, error) {
	return s.breaker.Execute(func() ([][]byte, error) {
		commands := make([]*redis.StringCmd, len(requests))
		_, err := s.rdb.Pipelined(ctx, func(pipe redis.Pipeliner) error {
			for i, request := range requests {
				commands[i] = pipe.Get(ctx, requestKey(s.namespace, request))
			}
			return nil
		})
		if err != nil && !errors.Is(err, redis.Nil) && !redis.HasErrorPrefix(err, "WRONGTYPE") { // a key is missing, or has another type
			return nil, err
		}
		values := make([][]byte, len(requests))
		for i, command := range commands {
			values[i], _ = command.Bytes() // nil: missing
		}
		return values, nil
	})
}

// Remember writes records in one round trip. Call it after the commit of their jobs. A failure is harmless.
func (s *Requests) Remember(ctx context.Context, records map[Request]Record) error {
	_, err := s.rdb.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for request, record := range records {
			if len(record.Answer) <= maxAnswer {
				key := requestKey(s.namespace, request)
				pipe.Set(ctx, key, s.seal(key, record), s.ttl)
			}
		}
		return nil
	})
	return err
}

// Request is an idempotency key with its scope.
type Request struct {
	Client string
	Key    string
}

// Record is the cached answer to a request whose job is final.
type Record struct {
	Hash   [sha256.Size]byte // fingerprint of the request that used the key
	Job    uuid.UUID
	Answer []byte // the document of the job
}

// requestKey has a digest of client and key: clients choose both, so they may be long or contain anything.
func requestKey(namespace string, r Request) string {
	digest := sha256.New()
	digest.Write([]byte(r.Client))
	digest.Write([]byte{0})
	digest.Write([]byte(r.Key))
	return namespace + ":request:" + base64.RawURLEncoding.EncodeToString(digest.Sum(nil))
}

// MAC authenticates values in Redis: write access to Redis alone is not enough to forge one.
type MAC struct{ key []byte }

// NewMAC returns the MAC of a fleet with this draw.secret_key.
func NewMAC(secret string) MAC {
	key, err := hkdf.Key(sha256.New, []byte(secret), nil, "triprize: records of requests in Redis, 2", sha256.Size)
	if err != nil { // not with this length
		panic(err)
	}
	return MAC{key}
}

// sum is for a value at a Redis key; the names of keys of one kind have the same length.
func (m MAC) sum(key string, value []byte) []byte {
	mac := hmac.New(sha256.New, m.key)
	mac.Write([]byte(key))
	mac.Write(value)
	return mac.Sum(nil)
}

// Seal returns what to store at a key.
func (m MAC) Seal(key string, value []byte) []byte { return append(m.sum(key, value), value...) }

// Open reads what Seal returned for the same key; it returns false for anything else.
func (m MAC) Open(key string, sealed []byte) (value []byte, ok bool) {
	if len(sealed) < sha256.Size || !hmac.Equal(sealed[:sha256.Size], m.sum(key, sealed[sha256.Size:])) {
		return nil, false
	}
	return sealed[sha256.Size:], true
}

// seal writes a record.
func (s *Requests) seal(key string, r Record) []byte {
	return s.mac.Seal(key, slices.Concat(r.Hash[:], r.Job[:], r.Answer))
}

// head is what a record has before its answer.
const head = sha256.Size + len(uuid.UUID{})

// open reads what seal wrote; it returns false for anything else.
func (s *Requests) open(key string, sealed []byte) (Record, bool) {
	value, ok := s.mac.Open(key, sealed)
	if !ok || len(value) <= head {
		return Record{}, false
	}
	return Record{Hash: [sha256.Size]byte(value), Job: uuid.UUID(value[sha256.Size:head]), Answer: value[head:]}, true
}
