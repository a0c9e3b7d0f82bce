package stripe

import (
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sony/gobreaker/v2"

	"triprize/internal/domain/payprovider"
)

const (
	failuresToOpen = 5               // requests in a row
	openTime       = 5 * time.Second // after it one request probes
	probeTime      = time.Second     // how soon to ask again while a probe is under way
)

// breaker leaves a part of Stripe alone after failures in a row. Then one request at a
// time probes. Declines and refusals, of our key too, are answers, so they count as health;
// 429 and what the caller has cut off count as nothing.
type breaker struct {
	*gobreaker.CircuitBreaker[struct{}]
	reopens atomic.Pointer[time.Time] // when the last opening ends
}

func newBreakers(logger *slog.Logger, registry prometheus.Registerer) []*breaker {
	all := make([]*breaker, len(parts))
	for p, name := range parts {
		all[p] = newBreaker(name, logger, registry)
	}
	return all
}

func newBreaker(name string, logger *slog.Logger, registry prometheus.Registerer) *breaker {
	b := &breaker{}
	b.reopens.Store(&time.Time{})
	b.CircuitBreaker = gobreaker.NewCircuitBreaker[struct{}](gobreaker.Settings{
		Name:         name,
		MaxRequests:  1,
		Timeout:      openTime,
		ReadyToTrip:  func(c gobreaker.Counts) bool { return c.ConsecutiveFailures >= failuresToOpen },
		IsSuccessful: func(err error) bool { return !failed(err) },
		IsExcluded:   excluded,
		OnStateChange: func(_ string, from, to gobreaker.State) {
			if to == gobreaker.StateOpen {
				end := later(openTime)
				b.reopens.Store(&end)
			}
			logger.Warn("the breaker of Stripe changed", "calls", name, "from", from.String(), "to", to.String())
		},
	})
	state := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name:        "triprize_stripe_breaker_state",
		Help:        "State of the breakers before Stripe, by calls (payments, refunds, lists): 0 closed (they pass), 1 half open (one probes), 2 open (none passes).",
		ConstLabels: prometheus.Labels{"calls": name},
	}, func() float64 { return float64(b.State()) })
	if registry != nil {
		registry.MustRegister(state)
	}
	return b
}

// refusal returns the error of a call that the breaker does not let through, or nil.
func (b *breaker) refusal(err error) *callError {
	switch {
	case errors.Is(err, gobreaker.ErrOpenState):
		return &callError{public: public{Kind: payprovider.KindUnavailable, Message: "left alone after failures in a row", RetryAt: *b.reopens.Load(), Err: err}}
	case errors.Is(err, gobreaker.ErrTooManyRequests):
		return &callError{public: public{Kind: payprovider.KindUnavailable, Message: "another call probes whether Stripe is well again", RetryAt: later(probeTime), Err: err}}
	}
	return nil
}

// open returns the error of a call while the breaker is open, or nil.
func (b *breaker) open() *callError {
	if b.State() != gobreaker.StateOpen {
		return nil
	}
	return b.refusal(gobreaker.ErrOpenState)
}

// failed tells whether a request failed because Stripe is away or ill.
func failed(err error) bool {
	var e *callError
	return errors.As(err, &e) && (e.Kind == payprovider.KindUnavailable || e.Kind == payprovider.KindUnknown)
}

// excluded tells whether a request says nothing about Stripe's health.
func excluded(err error) bool {
	var e *callError
	return errors.As(err, &e) && (e.Kind == payprovider.KindLimited || e.excluded)
}
