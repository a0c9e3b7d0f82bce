package stripe_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"triprize/internal/domain/payprovider"
)

// pace runs a test in simulated time with a client of these rates: nothing but the pace slows its calls down.
func pace(t *testing.T, timeout time.Duration, rate, endpoint int, out *wire, test func(t *testing.T, c client)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		with := settings("http://stripe.test")
		with.Timeout, with.Rate, with.EndpointRate = timeout, rate, endpoint
		c := connect(t, with)
		c.Through(out)
		test(t, c)
	})
}

func confirm(t *testing.T, c client) error {
	_, err := c.ConfirmIntent(t.Context(), "pi_1", "k", "", "")
	return err
}

func always(a answer) func(int, *http.Request) (answer, error) {
	return func(int, *http.Request) (answer, error) { return a, nil }
}

func TestAProcessStaysBelowItsRates(t *testing.T) {
	t.Parallel()
	const rate, endpoint, burst, allBurst = 80, 20, 2, 8 // the defaults
	out := &wire{say: always(answer{200, intent(), nil})}
	pace(t, time.Hour, rate, endpoint, out, func(t *testing.T, client client) {
		var all sync.WaitGroup
		confirm := func() error { return confirm(t, client) }
		for _, call := range []func() error{confirm, confirm, // these go on when the others are done
			func() error { _, err := client.CreateIntent(t.Context(), wanted); return err },
			func() error { _, err := client.CaptureIntent(t.Context(), "pi_1", "k", 1000); return err },
			func() error { _, err := client.CancelIntent(t.Context(), "pi_1", "k"); return err },
			func() error { _, err := client.Intent(t.Context(), "pi_1"); return err },
		} {
			for range 100 {
				all.Go(func() {
					if err := call(); err != nil {
						t.Error(err)
					}
				})
			}
		}
		all.Wait()
		if n := out.requests(); n != 600 {
			t.Fatalf("%d requests", n)
		}
		if n := out.busiest(""); n > rate+allBurst {
			t.Errorf("%d requests in a second", n)
		}
		if n := out.busiest("/v1/payment_intents/pi_1/confirm"); n > endpoint+burst+1 {
			t.Errorf("%d confirmations in a second", n)
		}
		if took := out.at[599].Sub(out.at[0]); took > 600*time.Second/rate*3/2 { // simulated time
			t.Errorf("the rate was not used: 600 requests took %s", took)
		}
	})
}

// A line of confirmations does not hold up captures: 20 of 80 turns are all it may use.
func TestALineOfOneKindHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	pace(t, time.Hour, 80, 20, &wire{say: always(answer{200, intent(), nil})}, func(t *testing.T, client client) {
		var all sync.WaitGroup
		for range 500 {
			all.Go(func() { _ = confirm(t, client) })
		}
		synctest.Wait()
		began := time.Now()
		if _, err := client.CaptureIntent(t.Context(), "pi_1", "k", 1000); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > time.Second { // simulated time
			t.Errorf("it waited for %s", took)
		}
		all.Wait()
	})
}

func TestACallWithoutATurnInTimeIsToldWhenToComeBack(t *testing.T) {
	t.Parallel()
	out := &wire{say: always(answer{200, intent(), nil})}
	pace(t, 10*time.Second, 10, 2, out, func(t *testing.T, client client) {
		var all sync.WaitGroup
		var served, limited atomic.Int64
		began := time.Now()
		for range 100 {
			all.Go(func() {
				err := confirm(t, client)
				if err == nil {
					served.Add(1)
					return
				}
				limited.Add(1)
				if e := fault(t, err); e.Kind != payprovider.KindLimited || !e.RetryAt.After(time.Now()) || e.Status != 0 {
					t.Errorf("got %v, retry at %s", e, e.RetryAt)
				}
			})
		}
		synctest.Wait()
		if n := limited.Load(); n < 80 {
			t.Errorf("%d of 100 were told at once", n)
		}
		all.Wait()
		// Half of a call's time is for waiting: 5 s at 2 a second.
		if s, l := served.Load(), limited.Load(); s+l != 100 || s < 9 || s > 11 || int(s) != out.requests() || time.Since(began) > 5*time.Second {
			t.Errorf("%d were served and %d not, in %s, with %d requests", s, l, time.Since(began), out.requests())
		}
		if client.counted(t, "triprize_stripe_breaker_state", "payments") != 0 {
			t.Error("the breaker opened for our own pace")
		}
	})
}

// wire stands in for the network and the server: it answers at once what a function
// says, and notes when.
type wire struct {
	say  func(n int, r *http.Request) (answer, error) // n counts from 1
	mu   sync.Mutex
	at   []time.Time
	path []string
}

func (w *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	w.mu.Lock()
	w.at, w.path = append(w.at, time.Now()), append(w.path, r.URL.Path)
	n := len(w.at)
	w.mu.Unlock()
	a, err := w.say(n, r)
	if err == nil || a.status > 0 { // with a status and an error: sent, and no answer
		httptrace.ContextClientTrace(r.Context()).GotConn(httptrace.GotConnInfo{})
	}
	if err != nil {
		return nil, err
	}
	header := http.Header{}
	for name, value := range a.header {
		header.Set(name, value)
	}
	return &http.Response{StatusCode: a.status, Header: header, Body: io.NopCloser(strings.NewReader(a.body)), Request: r}, nil
}

func (w *wire) requests() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.at)
}

// busiest returns the most requests that began in any second; of a path, if one is given.
func (w *wire) busiest(path string) (most int) {
	for i, from := range w.at {
		n := 0
		for j, at := range w.at {
			if (path == "" || w.path[j] == path) && (path == "" || w.path[i] == path) && !at.Before(from) && at.Before(from.Add(time.Second)) {
				n++
			}
		}
		most = max(most, n)
	}
	return most
}

var errAway = errors.New("connection refused")

// simulate runs a test in simulated time with a client whose calls end in 10 s.
func simulate(t *testing.T, out *wire, test func(t *testing.T, c client, confirm func() error)) {
	t.Helper()
	pace(t, 10*time.Second, 10_000, 10_000, out, func(t *testing.T, c client) { test(t, c, func() error { return confirm(t, c) }) })
}

func TestACallEndsWithinItsTimeWhateverTheServerDoes(t *testing.T) {
	t.Parallel()
	out := &wire{say: func(_ int, r *http.Request) (answer, error) {
		<-r.Context().Done()
		return answer{status: 1}, r.Context().Err() // sent, and no answer
	}}
	simulate(t, out, func(t *testing.T, c client, confirm func() error) {
		began := time.Now()
		if e := fault(t, confirm()); e.Kind != payprovider.KindUnknown || !errors.Is(e, context.DeadlineExceeded) || time.Since(began) != 10*time.Second || out.requests() != 1 {
			t.Errorf("got %v after %s and %d requests", e, time.Since(began), out.requests())
		}
		began = time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		if _, err := c.Intent(ctx, "pi_1"); fault(t, err).Kind != payprovider.KindUnavailable || time.Since(began) != 3*time.Second {
			t.Errorf("got %v after %s", err, time.Since(began))
		}
	})
}

func TestNoRepetitionBeginsInTheSecondHalfOfACall(t *testing.T) {
	t.Parallel()
	for took, least := range map[time.Duration]int{4 * time.Second: 2, 5100 * time.Millisecond: 1} {
		out := &wire{say: func(int, *http.Request) (answer, error) {
			time.Sleep(took)
			return answer{503, "busy", nil}, nil
		}}
		simulate(t, out, func(t *testing.T, _ client, confirm func() error) {
			if e := fault(t, confirm()); e.Kind != payprovider.KindUnknown || out.requests() != least {
				t.Errorf("%s: got %v after %d requests", took, e, out.requests())
			}
		})
	}
}

func TestAfterFailuresInARowStripeIsLeftAloneAndThenProbedByOne(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	away := true
	out := &wire{}
	out.say = func(int, *http.Request) (answer, error) {
		time.Sleep(100 * time.Millisecond)
		mu.Lock()
		defer mu.Unlock()
		if away {
			return answer{}, errAway
		}
		return answer{200, intent(), nil}, nil
	}
	simulate(t, out, func(t *testing.T, c client, confirm func() error) {
		_, first, second := c, confirm(), confirm() // 3 requests each, but the breaker opens after 5
		if fault(t, first).Kind != payprovider.KindUnavailable || !fault(t, first).RetryAt.IsZero() || out.requests() != 5 {
			t.Fatalf("got %v, %v after %d requests", first, second, out.requests())
		}
		opened := time.Now()
		state := func() float64 { return c.counted(t, "triprize_stripe_breaker_state", "payments") }
		for range 100 {
			e := fault(t, confirm())
			if e.Kind != payprovider.KindUnavailable || e.RetryAt.Sub(opened) < 4*time.Second || e.RetryAt.Sub(opened) > 5*time.Second {
				t.Fatalf("got %v, retry at %s", e, e.RetryAt)
			}
		}
		if out.requests() != 5 || state() != 2 || time.Since(opened) != 0 {
			t.Errorf("%d requests while open, state %g, after %s", out.requests(), state(), time.Since(opened))
		}
		crowd := func() (served int) {
			var all sync.WaitGroup
			for range 20 {
				all.Go(func() {
					err := confirm()
					mu.Lock()
					defer mu.Unlock()
					if err == nil {
						served++
					} else if e := fault(t, err); e.Kind != payprovider.KindUnavailable || e.RetryAt.IsZero() && e.Err == nil {
						t.Errorf("got %v", err)
					}
				})
			}
			all.Wait()
			return served
		}
		time.Sleep(5*time.Second + time.Nanosecond)
		if n := crowd(); n != 0 || out.requests() != 6 || state() != 2 {
			t.Errorf("%d were served by a server that is away; %d requests, state %g", n, out.requests(), state())
		}
		mu.Lock()
		away = false
		mu.Unlock()
		time.Sleep(5*time.Second + time.Nanosecond)
		if n := crowd(); n != 1 || out.requests() != 7 || state() != 0 {
			t.Errorf("%d were served by the probe; %d requests, state %g", n, out.requests(), state())
		}
		if n := crowd(); n != 20 || out.requests() != 27 {
			t.Errorf("%d of 20 were served afterwards", n)
		}
		if n := strings.Count(c.log.String(), "the breaker of Stripe changed"); n != 5 { // open, half, open, half, closed
			t.Errorf("%d changes in the log: %s", n, c.log)
		}
	})
}

func TestAnswersAndFailuresThatAreNotInARowDoNotOpenTheBreaker(t *testing.T) {
	t.Parallel()
	declined := answer{402, problem("card_error", "card_declined", ""), nil}
	for name, a := range map[string]answer{
		"declined":      declined,
		"not in a row":  {500, problem("api_error", "", ""), nil},
		"refused":       {400, problem("invalid_request_error", "parameter_missing", ""), nil},
		"conflict":      {400, problem("invalid_request_error", "payment_intent_unexpected_state", ""), nil},
		"limited":       {429, problem("invalid_request_error", "rate_limit", ""), nil},
		"a stored 500":  {500, problem("api_error", "", ""), map[string]string{"Idempotent-Replayed": "true"}},
		"key in use":    {409, problem("idempotency_error", "idempotency_key_in_use", ""), nil},
		"a bad key":     {401, problem("invalid_request_error", "api_key_expired", ""), nil},
		"no permission": {403, problem("invalid_request_error", "", ""), nil},
		"mismatch":      {200, intent("livemode", "true"), nil},
	} {
		out := &wire{say: func(n int, _ *http.Request) (answer, error) {
			if n%5 == 0 && name == "not in a row" {
				return declined, nil
			}
			return a, nil
		}}
		simulate(t, out, func(t *testing.T, c client, confirm func() error) {
			for range 20 {
				_ = confirm()
			}
			if out.requests() < 20 || c.counted(t, "triprize_stripe_breaker_state", "payments") != 0 {
				t.Errorf("%s: %d requests", name, out.requests())
			}
		})
	}
}

// Refunds that fail, or lists, hold up no payment.
func TestEachPartOfStripeHasABreakerOfItsOwn(t *testing.T) {
	t.Parallel()
	for part, c := range map[string]struct {
		path string
		call func(c client) error
	}{
		"refunds": {"/v1/refunds", func(c client) error {
			_, err := c.CreateRefund(context.Background(), payprovider.NewRefund{Key: "k", IntentID: "pi_1", Amount: 1000})
			_, fetched := c.Refund(context.Background(), "re_1")
			_, listed := c.RefundsOf(context.Background(), "pi_1")
			return errors.Join(err, fetched, listed)
		}},
		"lists": {"/v1/events", func(c client) error {
			return c.ListEvents(context.Background(), time.Now(), time.Now(), nil, func(payprovider.Event) error { return nil })
		}},
	} {
		out := &wire{say: func(_ int, r *http.Request) (answer, error) {
			if strings.HasPrefix(r.URL.Path, c.path) {
				return answer{}, errAway
			}
			return answer{200, intent(), nil}, nil
		}}
		simulate(t, out, func(t *testing.T, client client, confirm func() error) {
			for range 3 {
				if err := c.call(client); err == nil {
					t.Errorf("%s do not fail", part)
				}
			}
			for other, want := range map[string]float64{"payments": 0, "refunds": 0, "lists": 0, part: 2} {
				if state := client.counted(t, "triprize_stripe_breaker_state", other); state != want {
					t.Errorf("%s fail, and the breaker of %s is %g", part, other, state)
				}
			}
			if err := confirm(); err != nil {
				t.Errorf("%s fail, and so does a payment: %v", part, err)
			}
		})
	}
}

func TestCallersThatGiveUpDoNotOpenTheBreaker(t *testing.T) {
	t.Parallel()
	out := &wire{say: func(_ int, r *http.Request) (answer, error) {
		<-r.Context().Done()
		return answer{status: 1}, r.Context().Err()
	}}
	simulate(t, out, func(t *testing.T, c client, _ func() error) {
		for range 20 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			if _, err := c.CaptureIntent(ctx, "pi_1", "k", 1000); fault(t, err).Kind != payprovider.KindUnknown {
				t.Error(err)
			}
			cancel()
		}
		if out.requests() != 20 || c.counted(t, "triprize_stripe_breaker_state", "payments") != 0 {
			t.Errorf("%d requests", out.requests())
		}
	})
}

func TestTheRequestsOfAProcessOnTheirWayAreBounded(t *testing.T) {
	t.Parallel()
	out := &wire{say: func(int, *http.Request) (answer, error) {
		time.Sleep(5 * time.Second)
		return answer{200, intent(), nil}, nil
	}}
	simulate(t, out, func(t *testing.T, _ client, confirm func() error) {
		var all sync.WaitGroup
		var mu sync.Mutex
		limited := 0
		for range 300 {
			all.Go(func() {
				if err := confirm(); err != nil {
					if e := fault(t, err); e.Kind != payprovider.KindLimited || e.RetryAt.IsZero() {
						t.Error(err)
					}
					mu.Lock()
					limited++
					mu.Unlock()
				}
			})
		}
		all.Wait()
		if limited != 44 || out.requests() != 256 {
			t.Errorf("%d were limited, %d requests", limited, out.requests())
		}
	})
}
