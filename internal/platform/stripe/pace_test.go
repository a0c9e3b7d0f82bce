package stripe_test

import (
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
