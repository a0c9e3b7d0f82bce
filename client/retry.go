package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// RetryPolicy bounds how often a request is sent.
type RetryPolicy struct {
	Attempts int           // at most, including the first; 1: no retries; default 8
	Elapsed  time.Duration // no attempt begins later than this after the first one; default 2 min
	First    time.Duration // about how long to wait before the second attempt, then longer; default 200 ms
	Longest  time.Duration // longest wait before an attempt, unless Retry-After is longer; default 10 s
}

var defaultRetry = RetryPolicy{Attempts: 8, Elapsed: 2 * time.Minute, First: 200 * time.Millisecond, Longest: 10 * time.Second}

func (p RetryPolicy) check() error {
	if p.Attempts < 1 || p.Elapsed < 0 || p.First < 0 || p.Longest < p.First {
		return fmt.Errorf("client: impossible retry policy %+v", p)
	}
	return nil
}

func (p RetryPolicy) backOff() *backoff.ExponentialBackOff {
	b := backoff.NewExponentialBackOff()
	b.InitialInterval, b.MaxInterval, b.Multiplier = p.First, p.Longest, 2
	b.Reset()
	return b
}

// retried returns the outcome of the last attempt. When ctx has ended the retries,
// the error wraps the cause of that too.
func retried[T any](ctx context.Context, p RetryPolicy, r request, attempt func() (T, error)) (T, error) {
	var last error
	result, err := backoff.Retry(ctx, func() (T, error) {
		var result T
		if result, last = attempt(); last == nil || r.again(last) {
			return result, later(last)
		}
		return result, backoff.Permanent(last)
	}, backoff.WithBackOff(p.backOff()), backoff.WithMaxTries(uint(p.Attempts)), backoff.WithMaxElapsedTime(p.Elapsed))
	if err == nil {
		return result, nil
	}
	if ended := context.Cause(ctx); ended != nil && !errors.Is(last, ended) {
		return result, fmt.Errorf("%w, after: %w", ended, last)
	}
	return result, last
}

// again tells whether a request that failed with err may be sent again.
func (r request) again(err error) bool {
	if unsent, ok := asType[*net.OpError](err); ok && unsent.Op == "dial" {
		return true
	}
	if r.method != http.MethodGet && r.method != http.MethodDelete && r.key == "" {
		return false
	}
	if refused, ok := asType[*Error](err); ok {
		return slices.Contains([]int{http.StatusRequestTimeout, http.StatusTooManyRequests, http.StatusInternalServerError,
			http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout}, refused.Status)
	}
	if _, waits := asType[*ApprovalRequested](err); waits || errors.Is(err, ErrNotModified) {
		return false
	}
	_, malformed := asType[*malformedError](err)
	_, untrusted := asType[*tls.CertificateVerificationError](err)
	return !malformed && !untrusted
}

// later adds to an error how long the server wants the client to wait, plus up to a
// quarter: many clients get the same time, and must not all come back at once.
func later(err error) error {
	refused, ok := asType[*Error](err)
	if !ok || refused.RetryAfter <= 0 {
		return err
	}
	return errors.Join(err, &backoff.RetryAfterError{Duration: refused.RetryAfter + rand.N(refused.RetryAfter/4+1)}) //nolint:gosec // a jitter is no secret
}

// maxRetryAfter bounds Retry-After, so that a wrong header cannot overflow.
const maxRetryAfter = 24 * time.Hour

// retryAfter reads the header: seconds, or a date.
func retryAfter(h http.Header) time.Duration {
	text := h.Get("Retry-After")
	if seconds, err := strconv.ParseUint(text, 10, 31); err == nil {
		return min(time.Duration(seconds)*time.Second, maxRetryAfter)
	}
	at, err := http.ParseTime(text)
	if err != nil {
		return 0
	}
	return min(max(time.Until(at), 0), maxRetryAfter)
}

// sleep waits for d, or returns the cause when ctx ends first.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}
