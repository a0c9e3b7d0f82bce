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

// part is a part of Stripe with a breaker of its own: refunds that fail hold up no payment,
// and lists neither.
type part int

const (
	partPayments part = iota
	partRefunds
	partLists // of the scheduler and the comparison
)

var parts = []string{partPayments: "payments", partRefunds: "refunds", partLists: "lists"}

// request is what a call is about.
type request struct {
	call  call
	what  string // what is asked for, for the log: an id, or what is listed
	key   string // our idempotency key, of a write
	write bool
	part  part
}

const (
	maxTries     = 3 // requests of one call
	firstBackoff = 200 * time.Millisecond
	maxKey       = 255 // bytes; Stripe's own bound
)

// do runs a call: send is one request of it, check judges what comes back (nil: anything
// goes). It ends within the timeout of the settings, and of ctx. No request begins in the
// second half of that time, so that each has time to be answered.
//
// With a mismatch the object is returned too: it may have to be cancelled.
func do[T any](ctx context.Context, c *Client, q request, send func(ctx context.Context) (T, error), check func(T) *callError) (T, error) {
	result, failure := repeat(ctx, c, q, send, check)
	c.metrics.ended(q.call, failure)
	if failure == nil {
		return result, nil
	}
	failure.Call = string(q.call)
	switch {
	case failure.Kind == payprovider.KindMismatch:
		c.logger.Error("Stripe's answer is not what was asked for", "call", failure.Call, "object", q.what, "reason", failure.Message,
			"request_id", failure.RequestID)
	case failure.Kind == payprovider.KindForbidden:
		c.refusals.Do(func() { // all that waits asks again and again
			c.logger.Error("Stripe refuses our key", "call", failure.Call, "reason", failure.Message, "request_id", failure.RequestID)
		})
	}
	return result, &failure.public
}

// repeat makes the requests of a call until one has an outcome to believe in.
func repeat[T any](ctx context.Context, c *Client, q request, send func(ctx context.Context) (T, error), check func(T) *callError) (T, *callError) {
	var result T
	if e := q.fault(); e != nil {
		return result, e
	}
	whole, cancel := context.WithTimeout(ctx, c.settings.Timeout)
	defer cancel()
	var unknown, last *callError // unknown: a request that may have been carried out
	_, _ = backoff.Retry(whole, func() (struct{}, error) {
		result, last = try(whole, ctx, c, q, send)
		if last == nil && check != nil {
			last = q.checked(check(result))
		}
		if last == nil {
			return struct{}{}, nil
		}
		if last.Kind == payprovider.KindUnknown {
			unknown = last
		}
		if !again(last) {
			return struct{}{}, backoff.Permanent(last)
		}
		return struct{}{}, last
	}, backoff.WithBackOff(pauses()), backoff.WithMaxTries(maxTries), backoff.WithMaxElapsedTime(c.settings.Timeout/2))
	if unknown != nil && last != nil && nothingDone[last.Kind] {
		unknown.RetryAt = last.RetryAt
		last = unknown
	}
	return result, last
}

// nothingDone are the kinds of a request that has done nothing. An earlier one may have.
var nothingDone = map[payprovider.ErrorKind]bool{payprovider.KindUnavailable: true, payprovider.KindLimited: true, payprovider.KindForbidden: true}

// pauses are between 0.1 s and 0.3 s before the second request, and twice that before the third.
func pauses() *backoff.ExponentialBackOff {
	b := backoff.NewExponentialBackOff()
	b.InitialInterval, b.Multiplier, b.RandomizationFactor = firstBackoff, 2, 0.5
	return b
}

// try makes one request, when it is its turn. caller is the context of the call, without
// the bound of the settings.
func try[T any](ctx, caller context.Context, c *Client, q request, send func(ctx context.Context) (T, error)) (result T, failure *callError) {
	breaker := c.breakers[q.part]
	if e := breaker.open(); e != nil {
		return result, e
	}
	if e := c.pace.wait(ctx, q.call); e != nil {
		return result, e
	}
	if !c.slots.TryAcquire(1) {
		return result, &callError{public: public{Kind: payprovider.KindLimited, Message: "too many requests of this process are on their way", RetryAt: later(time.Second)}}
	}
	defer c.slots.Release(1)
	_, err := breaker.Execute(func() (struct{}, error) {
		began := time.Now()
		noting, x := noted(ctx)
		answer, err := send(noting)
		c.metrics.exchanged(q.call, began)
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

// fault refuses what Stripe would misread: a write without a key of ours would get one
// of the library's, and an empty id would be a list.
func (q request) fault() *callError {
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

// checked gives an answer that cannot be read the kind of an answer that was lost.
func (q request) checked(e *callError) *callError {
	if e != nil && e.Kind == payprovider.KindUnknown && !q.write {
		e.Kind = payprovider.KindUnavailable
	}
	return e
}

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

// burstPart of a second's rate may go at once.
const burstPart = 10

// pace lets requests of a process go one by one, below a rate for all and one for each
// kind. Requests of one kind wait in a line, in the order of their arrival. A caller that
// cannot have a turn in time is told at once, and when to come back.
//
// Stripe counts requests of each second. With a rate of 20 a second and a burst of 2, no
// second has more than 23; the rest up to Stripe's 25 is for requests that are late on
// their way and arrive together with others.
type pace struct {
	all     *rate.Limiter
	lines   map[call]*line
	metrics *metrics
}

// line is where requests of one kind wait.
type line struct {
	limit   *rate.Limiter
	first   chan struct{} // has one place: the first of the line, so that no line takes turns of all in advance
	waiting atomic.Int64
}

func newPace(settings config.Stripe, m *metrics) *pace {
	limit := func(perSecond int) *rate.Limiter {
		return rate.NewLimiter(rate.Limit(perSecond), max(1, perSecond/burstPart))
	}
	p := &pace{all: limit(settings.Rate), lines: make(map[call]*line), metrics: m}
	for _, name := range calls {
		p.lines[name] = &line{limit: limit(cmp.Or(settings.EndpointRate, max(settings.Rate/4, 1))), first: make(chan struct{}, 1)}
	}
	return p
}

// wait returns nil when it is the request's turn, else an error of KindLimited. Of the
// time that ctx has left, half is for waiting.
func (p *pace) wait(ctx context.Context, name call) *callError {
	began := time.Now()
	if deadline, bounded := ctx.Deadline(); bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, began.Add(deadline.Sub(began)/2))
		defer cancel()
	}
	l := p.lines[name]
	defer l.waiting.Add(-1)
	ahead := time.Duration(float64(l.waiting.Add(1)-1) / float64(l.limit.Limit()) * float64(time.Second))
	until, bounded := ctx.Deadline()
	if bounded && began.Add(ahead).After(until) {
		return late(ahead) // those before it alone take longer
	}
	select {
	case l.first <- struct{}{}:
		defer func() { <-l.first }()
	case <-ctx.Done():
		return late(ahead)
	}
	if l.limit.Wait(ctx) != nil || p.all.Wait(ctx) != nil { // refused at once when it would take too long
		return late(ahead)
	}
	p.metrics.waited(name, began)
	return nil
}

// late is the error of a request that had no turn in time: nothing was done.
func late(after time.Duration) *callError {
	return &callError{public: public{Kind: payprovider.KindLimited, Message: "no turn in time: our own pace", RetryAt: later(max(after, time.Second))}}
}
