package stripe

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/sony/gobreaker/v2"
	"golang.org/x/time/rate"

	"triprize/internal/domain/payprovider"
	"triprize/internal/platform/config"
)

// call names a kind of call: in errors, metrics, and for Stripe's limit per endpoint.
type call string

const (
	callCreate  call = "create"
	callConfirm call = "confirm"
	callCapture call = "capture"
	callCancel  call = "cancel"
	callFetch   call = "fetch" // one object
	callRefund  call = "refund"
	callList    call = "list" // a page
)

var calls = []call{callCreate, callConfirm, callCapture, callCancel, callFetch, callRefund, callList}

// The parts of Stripe, each with its own breaker: failing refunds or lists do not block payments.
const (
	payments = "payments"
	refunds  = "refunds"
	lists    = "lists" // of the scheduler and the reconciliation
)

// request describes a call.
type request struct {
	call  call
	what  string // for the log: the id of an object, or what is listed
	key   string // our idempotency key, of a write
	write bool
	part  string
}

const (
	maxTries     = 3 // requests of one call
	firstBackoff = 200 * time.Millisecond
	maxKey       = 255 // bytes; Stripe's own bound
)

// do runs a call: send makes one request, check validates the answer (nil: any is valid). It ends within
// the timeout of the settings and of ctx. No request begins in the second half of that time, so that each
// has time to be answered.
//
// A mismatch comes with the object, which may have to be canceled.
func do[T any](ctx context.Context, c *Client, q request, send func(ctx context.Context) (T, error), check func(T) *callError) (T, error) {
	result, failure := retry(ctx, c, q, send, check)
	switch {
	case q.call != callCreate:
	case failure == nil:
		c.refused.Store(0)
	case failure.Kind == payprovider.KindForbidden:
		c.refused.Store(time.Now().Unix())
	}
	if failure == nil {
		c.metrics.calls.WithLabelValues(string(q.call), ok).Inc()
		return result, nil
	}
	c.metrics.calls.WithLabelValues(string(q.call), string(failure.Kind)).Inc()
	failure.Call = string(q.call)
	switch {
	case failure.Kind == payprovider.KindMismatch:
		c.logger.Error("Stripe's answer is not what was asked for", "call", failure.Call, "object", q.what, "reason", failure.Message,
			"request_id", failure.RequestID)
	case failure.Kind == payprovider.KindForbidden:
		c.logRefusal.Do(func() { // waiting payments repeat the call
			c.logger.Error("Stripe refuses our key", "call", failure.Call, "reason", failure.Message, "request_id", failure.RequestID)
		})
	}
	return result, &failure.public
}

// retry makes the requests of a call until one has a definite outcome.
func retry[T any](ctx context.Context, c *Client, q request, send func(ctx context.Context) (T, error), check func(T) *callError) (T, *callError) {
	var result T
	if e := q.validate(); e != nil {
		return result, e
	}
	whole, cancel := context.WithTimeout(ctx, c.settings.Timeout)
	defer cancel()
	pauses := backoff.NewExponentialBackOff() // of between 0.1 s and 0.3 s before the second request, and twice that before the third
	pauses.InitialInterval, pauses.Multiplier, pauses.RandomizationFactor = firstBackoff, 2, 0.5
	var unknown, last *callError // unknown: a request that may have been carried out
	_, _ = backoff.Retry(whole, func() (struct{}, error) {
		result, last = try(whole, ctx, c, q, send)
		if last == nil && check != nil {
			if last = check(result); last != nil && last.Kind == payprovider.KindUnknown && !q.write {
				last.Kind = payprovider.KindUnavailable // a read has no effect
			}
		}
		if last == nil {
			return struct{}{}, nil
		}
		if last.Kind == payprovider.KindUnknown {
			unknown = last
		}
		if !isRetryable(last) {
			return struct{}{}, backoff.Permanent(last)
		}
		return struct{}{}, last
	}, backoff.WithBackOff(pauses), backoff.WithMaxTries(maxTries), backoff.WithMaxElapsedTime(c.settings.Timeout/2))
	if unknown != nil && last != nil && hadNoEffect[last.Kind] {
		unknown.RetryAt = last.RetryAt
		last = unknown
	}
	return result, last
}

// hadNoEffect are the kinds of requests without effect. An earlier request of the call may have had one.
var hadNoEffect = map[payprovider.ErrorKind]bool{payprovider.KindUnavailable: true, payprovider.KindLimited: true, payprovider.KindForbidden: true}

// try makes one request within the rate limit. caller is the context of the call without the timeout of
// the settings.
func try[T any](ctx, caller context.Context, c *Client, q request, send func(ctx context.Context) (T, error)) (result T, failure *callError) {
	breaker := c.breakers[q.part]
	if breaker.State() == gobreaker.StateOpen {
		return result, breaker.refusal(gobreaker.ErrOpenState)
	}
	if e := c.limiter.wait(ctx, q.call); e != nil {
		return result, e
	}
	if !c.slots.TryAcquire(1) {
		return result, &callError{public: public{Kind: payprovider.KindLimited, Message: "too many requests of this process are in flight", RetryAt: time.Now().Add(time.Second)}}
	}
	defer c.slots.Release(1)
	_, err := breaker.Execute(func() (struct{}, error) {
		began := time.Now()
		x := &exchange{}
		answer, err := send(context.WithValue(ctx, exchangeKey{}, x))
		c.metrics.requests.WithLabelValues(string(q.call)).Observe(time.Since(began).Seconds())
		if err != nil {
			return struct{}{}, c.classify(caller, q, x, err)
		}
		result = answer
		return struct{}{}, nil
	})
	if err == nil {
		return result, nil
	}
	if e := breaker.refusal(err); e != nil {
		return result, e
	}
	if !errors.As(err, &failure) {
		failure = &callError{public: public{Kind: payprovider.KindUnknown, Err: err}}
	}
	return result, failure
}

// validate rejects what Stripe would misread: for a write without a key the library would generate one, and
// an empty id would request a list.
func (q request) validate() *callError {
	switch {
	case q.what == "":
		return &callError{public: public{Kind: payprovider.KindRefused, Message: "the id is empty"}}
	case q.write && q.key == "":
		return &callError{public: public{Kind: payprovider.KindRefused, Message: "the idempotency key is empty"}}
	case len(q.key) > maxKey:
		return &callError{public: public{Kind: payprovider.KindRefused, Message: "the idempotency key is longer than 255 bytes"}}
	}
	return nil
}

const (
	maxFailures   = 5               // requests in a row
	openTime      = 5 * time.Second // then one request probes
	probeInterval = time.Second     // retry interval while a probe is running
)

// breaker stops requests to a part of Stripe after consecutive failures. Then one request at a time probes.
// Declines and refusals, also of our key, count as successes; 429 and requests that the caller canceled
// count as neither.
type breaker struct {
	*gobreaker.CircuitBreaker[struct{}]
	reopens atomic.Pointer[time.Time] // when the last opening ends
}

func newBreaker(name string, logger *slog.Logger, registry prometheus.Registerer) *breaker {
	b := &breaker{}
	b.reopens.Store(&time.Time{})
	b.CircuitBreaker = gobreaker.NewCircuitBreaker[struct{}](gobreaker.Settings{
		Name:        name,
		MaxRequests: 1,
		Timeout:     openTime,
		ReadyToTrip: func(c gobreaker.Counts) bool { return c.ConsecutiveFailures >= maxFailures },
		IsSuccessful: func(err error) bool { // unless Stripe is down or broken
			e, ok := errors.AsType[*callError](err)
			return !ok || e.Kind != payprovider.KindUnavailable && e.Kind != payprovider.KindUnknown
		},
		IsExcluded: func(err error) bool { // it says nothing about Stripe's health
			e, ok := errors.AsType[*callError](err)
			return ok && (e.Kind == payprovider.KindLimited || e.excluded)
		},
		OnStateChange: func(_ string, from, to gobreaker.State) {
			if to == gobreaker.StateOpen {
				end := time.Now().Add(openTime)
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

// refusal returns the error of a call that the breaker rejects, or nil.
func (b *breaker) refusal(err error) *callError {
	switch {
	case errors.Is(err, gobreaker.ErrOpenState):
		return &callError{public: public{Kind: payprovider.KindUnavailable, Message: "the breaker is open after consecutive failures", RetryAt: *b.reopens.Load(), Err: err}}
	case errors.Is(err, gobreaker.ErrTooManyRequests):
		return &callError{public: public{Kind: payprovider.KindUnavailable, Message: "another call probes whether Stripe has recovered", RetryAt: time.Now().Add(probeInterval), Err: err}}
	}
	return nil
}

// burstPart is the divisor of the rate that gives the burst.
const burstPart = 10

// limiter limits the rate of requests of a process: in all, and of each kind. Requests of one kind are
// queued in order of arrival. One that cannot start in time fails at once, with the time of a retry.
//
// Stripe counts requests per second. With a rate of 20 per second and a burst of 2, no second has more
// than 23; the rest up to Stripe's 25 is for delayed requests that arrive together with others.
type limiter struct {
	all     *rate.Limiter
	queues  map[call]*endpointQueue
	metrics *metrics
}

// endpointQueue queues requests of one kind.
type endpointQueue struct {
	limit   *rate.Limiter
	first   chan struct{} // held by the first request, so that no queue reserves slots of the common limit in advance
	waiting atomic.Int64
}

func newLimiter(settings config.Stripe, m *metrics) *limiter {
	limit := func(perSecond int) *rate.Limiter {
		return rate.NewLimiter(rate.Limit(perSecond), max(1, perSecond/burstPart))
	}
	p := &limiter{all: limit(settings.Rate), queues: make(map[call]*endpointQueue), metrics: m}
	for _, name := range calls {
		p.queues[name] = &endpointQueue{limit: limit(cmp.Or(settings.EndpointRate, max(settings.Rate/4, 1))), first: make(chan struct{}, 1)}
	}
	return p
}

// wait returns nil when the request may start, or an error of KindLimited. It waits for at most half of the
// time that ctx has left.
func (p *limiter) wait(ctx context.Context, name call) *callError {
	began := time.Now()
	if deadline, bounded := ctx.Deadline(); bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, began.Add(deadline.Sub(began)/2))
		defer cancel()
	}
	l := p.queues[name]
	defer l.waiting.Add(-1)
	ahead := time.Duration(float64(l.waiting.Add(1)-1) / float64(l.limit.Limit()) * float64(time.Second))
	until, bounded := ctx.Deadline()
	if bounded && began.Add(ahead).After(until) {
		return noSlot(ahead) // the requests before it take longer
	}
	select {
	case l.first <- struct{}{}:
		defer func() { <-l.first }()
	case <-ctx.Done():
		return noSlot(ahead)
	}
	if l.limit.Wait(ctx) != nil || p.all.Wait(ctx) != nil { // fails at once if it would take too long
		return noSlot(ahead)
	}
	p.metrics.waits.WithLabelValues(string(name)).Observe(time.Since(began).Seconds())
	return nil
}

// noSlot is the error of a request that could not start in time: nothing was done.
func noSlot(after time.Duration) *callError {
	return &callError{public: public{Kind: payprovider.KindLimited, Message: "not started in time: our own rate limit", RetryAt: time.Now().Add(max(after, time.Second))}}
}
