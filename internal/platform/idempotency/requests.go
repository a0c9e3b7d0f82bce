// Package idempotency caches answers to repeated requests in Redis, in front of the jobs table. The
// idempotency keys of tasks are in package queue.
//
// The jobs table decides. A hit saves work; after a miss, or without Redis, Postgres is read. No request is
// rejected because of a record here.
//
//	ns:request:<digest of client and key>  <MAC, 32 bytes><SUCCESS or FAILED> <request hash> <job> <answer>
//
// The MAC (HMAC-SHA256) covers the name of the key and the rest of the value. Its key is derived from
// draw.secret_key: a record that no api has written is a miss.
//
// The api ([Requests]) writes the final answer of a request on its first repetition, because most requests
// are never repeated.
package idempotency

import (
	"bytes"
	"cmp"
	"context"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
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
	sealer    sealer
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
		rdb: rdb, namespace: namespace, sealer: newSealer(secret), ttl: cmp.Or(settings.RequestTTL, requestTTL),
		breaker: gobreaker.NewCircuitBreaker[[][]byte](gobreaker.Settings{
			Name:        "idempotency",
			Timeout:     time.Second, // then one look-up probes
			ReadyToTrip: func(c gobreaker.Counts) bool { return c.ConsecutiveFailures >= 3 },
		}),
		lookups: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "triprize_idempotency_lookups_total",
			Help: "Look-ups of idempotency keys in Redis by outcome: hit, miss, or unavailable.",
		}, []string{"outcome"}),
	}
	for _, result := range []string{"hit", "miss", "unavailable"} {
		r.lookups.WithLabelValues(result)
	}
	if registry != nil {
		registry.MustRegister(r.lookups)
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
	switch {
	case err != nil:
		s.lookups.WithLabelValues("unavailable").Inc()
		return Record{}, false
	case value == nil:
		s.lookups.WithLabelValues("miss").Inc()
		return Record{}, false
	}
	record, ok := s.sealer.open(requestKey(s.namespace, request), value)
	outcome := "hit"
	if !ok {
		outcome = "miss"
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
			if value, err := command.Bytes(); err == nil {
				values[i] = value
			}
		}
		return values, nil
	})
}

// Remember writes records in one round trip. Call it after the commit of their jobs. A failure is harmless.
func (s *Requests) Remember(ctx context.Context, records map[Request]Record) error {
	_, err := s.rdb.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for request, record := range records {
			if len(record.Answer) <= maxAnswer {
				key, value := requestKey(s.namespace, request), record.encode()
				pipe.Set(ctx, key, append(s.sealer.mac(key, value), value...), s.ttl)
			}
		}
		return nil
	})
	return err
}

// State is the state of a job.
type State string

// The states, as stored in Redis.
const (
	Success State = "SUCCESS"
	Failed  State = "FAILED"
)

// Request is an idempotency key with its scope.
type Request struct {
	Client string
	Key    string
}

// Record is the cached answer to a request whose job is final.
type Record struct {
	State  State             // Success or Failed
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

// encode writes "<state> <hash> <job> <answer>".
func (r Record) encode() []byte {
	out := fmt.Appendf(make([]byte, 0, 128+len(r.Answer)), "%s %s %s ", r.State, base64.RawURLEncoding.EncodeToString(r.Hash[:]), r.Job)
	return append(out, r.Answer...)
}

// decode parses what encode wrote; it returns false for anything else.
func decode(value []byte) (Record, bool) {
	parts := bytes.SplitN(value, []byte{' '}, 4)
	if len(parts) < 4 || len(parts[3]) == 0 {
		return Record{}, false
	}
	record := Record{State: State(parts[0]), Answer: parts[3]}
	if record.State != Success && record.State != Failed {
		return Record{}, false
	}
	hash, err := base64.RawURLEncoding.DecodeString(string(parts[1]))
	if err != nil || len(hash) != sha256.Size {
		return Record{}, false
	}
	record.Hash = [sha256.Size]byte(hash)
	record.Job, err = uuid.ParseBytes(parts[2])
	return record, err == nil
}

// sealer authenticates records: write access to Redis alone is not enough to forge one.
type sealer struct{ key []byte }

func newSealer(secret string) sealer {
	key, err := hkdf.Key(sha256.New, []byte(secret), nil, "triprize: records of requests in Redis", sha256.Size)
	if err != nil { // not with this length
		panic(err)
	}
	return sealer{key}
}

// mac returns the MAC of a value at a Redis key.
func (s sealer) mac(key string, value []byte) []byte {
	mac := hmac.New(sha256.New, s.key)
	mac.Write([]byte(key)) // constant length
	mac.Write(value)
	return mac.Sum(nil)
}

// open parses a sealed record; it returns false for anything else.
func (s sealer) open(key string, sealed []byte) (Record, bool) {
	if len(sealed) < sha256.Size || !hmac.Equal(sealed[:sha256.Size], s.mac(key, sealed[sha256.Size:])) {
		return Record{}, false
	}
	return decode(sealed[sha256.Size:])
}
