package stripe

import (
	"context"
	"errors"
	"time"

	"github.com/cenkalti/backoff/v5"

	"triprize/internal/domain/payprovider"
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
