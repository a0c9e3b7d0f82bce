package idempotency

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"github.com/sony/gobreaker/v2"

	"triprize/internal/config"
)

// maxAnswer bounds what is kept of an answer; a longer one is read from Postgres each time.
const maxAnswer = 8 << 10

// Requests is the api's side.
type Requests struct {
	rdb       redis.UniversalClient
	namespace string
	budget    time.Duration
	ttl       time.Duration
	breaker   *gobreaker.CircuitBreaker[[]byte]
	lookups   *prometheus.CounterVec
}

// NewRequests returns a Requests whose look-ups are counted in registry, if there is one.
func NewRequests(rdb redis.UniversalClient, namespace string, settings config.Idempotency, registry prometheus.Registerer) *Requests {
	r := &Requests{
		rdb: rdb, namespace: namespace, budget: settings.Budget, ttl: settings.RequestTTL,
		breaker: gobreaker.NewCircuitBreaker[[]byte](gobreaker.Settings{
			Name:         "idempotency",
			Timeout:      time.Second, // then one request tries again
			ReadyToTrip:  func(c gobreaker.Counts) bool { return c.ConsecutiveFailures >= 3 },
			IsSuccessful: func(err error) bool { return err == nil || errors.Is(err, redis.Nil) },
		}),
		lookups: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "triprize_idempotency_lookups_total",
			Help: "Look-ups of idempotency keys in Redis by outcome: hit, miss, or away.",
		}, []string{"outcome"}),
	}
	if registry != nil {
		registry.MustRegister(r.lookups)
	}
	return r
}

// Find returns the record of a request, if Redis has it and answers in time.
func (s *Requests) Find(ctx context.Context, request Request) (Record, bool) {
	value, err := s.breaker.Execute(func() ([]byte, error) {
		ctx, cancel := context.WithTimeout(ctx, s.budget)
		defer cancel()
		return s.rdb.Get(ctx, requestKey(s.namespace, request)).Bytes()
	})
	if err != nil {
		outcome := "away"
		if errors.Is(err, redis.Nil) {
			outcome = "miss"
		}
		s.lookups.WithLabelValues(outcome).Inc()
		return Record{}, false
	}
	s.lookups.WithLabelValues("hit").Inc()
	return decode(value)
}

// Remember writes records, in one round trip. Call it only after the commit
// that made their jobs. Records that cannot be written are simply not there.
func (s *Requests) Remember(ctx context.Context, records map[Request]Record) error {
	_, err := s.rdb.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for request, record := range records {
			if len(record.Answer) <= maxAnswer {
				pipe.Set(ctx, requestKey(s.namespace, request), record.encode(), s.ttl)
			}
		}
		return nil
	})
	return err
}
