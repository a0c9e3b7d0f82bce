// Package stripe calls Stripe: payment intents, refunds, events. It uses no tables and makes no decisions
// about purchases.
//
// A call is one method of [Client]. It ends within the timeout of the settings, with Stripe's object or with
// an Error whose Kind says whether the call may have had an effect. In between:
//
//	breaker ── open: unavailable ──▶ the caller
//	   │ closed, or a probe
//	limiter ── no slot in time: limited ──▶ the caller
//	   │ our own rate limit
//	request ── one HTTP exchange, classified by status, code and how far it came
//	   │
//	retry ──── at most twice, with backoff: reads, and writes whose idempotency key
//	   │       makes it safe; never after a decline, a refusal or a stored 500
//	checks ─── livemode, id, amount, currency, metadata: else a mismatch, logged as an error
//
// Rules that callers rely on:
//
//   - A request that may have reached Stripe and got no valid answer is unknown. It stays unknown if a
//     retry does not reach Stripe at all.
//   - An idempotency key is valid for 24 hours. Later it would repeat the effect: fetch by id instead.
//   - A failed read is unavailable, never unknown: it has no effect.
//   - No error and no log line has API keys, client secrets or card numbers.
package stripe

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	stripego "github.com/stripe/stripe-go/v85"
	"golang.org/x/sync/semaphore"
	"golang.org/x/time/rate"

	"triprize/internal/domain/payprovider"
	"triprize/internal/platform/config"
	"triprize/internal/platform/tracing"
)

// APIVersion is the version of Stripe's API that we use. The library sends it with every request; the
// webhook endpoint should use it too.
const APIVersion = stripego.APIVersion

// inFlight bounds the concurrent requests of a process, and so its connections to Stripe.
const inFlight = 256

// Client calls Stripe. Close it.
type Client struct {
	Reader
	api        *stripego.Client
	http       *http.Client
	settings   config.Stripe
	secrets    []string // of webhooks
	scrub      scrubber
	limiter    *limiter
	breakers   map[string]*breaker // by part
	slots      *semaphore.Weighted // of requests
	metrics    *metrics
	logger     *slog.Logger
	logRefusal rate.Sometimes // of the key, in the log
	refused    atomic.Int64   // Unix time at which the key was refused for the last new payment; 0: it was not
}

// New returns a client for the key of the settings. registry may be nil.
func New(settings config.Stripe, logger *slog.Logger, registry prometheus.Registerer) *Client {
	m := newMetrics(registry)
	settings.Timeout = cmp.Or(settings.Timeout, payprovider.CallTimeout)
	c := &Client{
		Reader:     NewReader(settings.Live()),
		http:       newHTTPClient(),
		settings:   settings,
		secrets:    settings.WebhookSecrets(),
		scrub:      newScrubber(append(settings.WebhookSecrets(), settings.Key)),
		limiter:    newLimiter(settings, m),
		breakers:   make(map[string]*breaker),
		slots:      semaphore.NewWeighted(inFlight),
		metrics:    m,
		logger:     logger,
		logRefusal: rate.Sometimes{First: 1, Interval: time.Minute},
	}
	for _, part := range []string{payments, refunds, lists} {
		c.breakers[part] = newBreaker(part, logger, registry)
	}
	backend := &stripego.BackendConfig{
		HTTPClient:        c.http,
		MaxNetworkRetries: stripego.Int64(0), // retries follow our rules: see retry
		EnableTelemetry:   stripego.Bool(false),
		LeveledLogger:     &stripego.LeveledLogger{Level: stripego.LevelNull}, // it would log bodies
	}
	if settings.URL != "" {
		backend.URL = stripego.String(settings.URL)
	}
	c.api = stripego.NewClient(settings.Key, stripego.WithBackends(stripego.NewBackendsWithConfig(backend)))
	return c
}

// KeyRefused reports whether Stripe has refused the key for the last new payment of this process, in the last ten minutes:
// another process may have made the next one.
func (c *Client) KeyRefused() bool {
	return time.Since(time.Unix(c.refused.Load(), 0)) < 10*time.Minute
}

// Close closes idle connections. Running calls continue.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// CheckAccount checks the account of the key. Another account than in the settings is KindMismatch. A
// restricted key may lack the permission; then set no account and do not call this.
func (c *Client) CheckAccount(ctx context.Context) error {
	_, err := do(ctx, c, request{call: callFetch, what: "account", part: payments}, func(ctx context.Context) (*stripego.Account, error) {
		return c.api.V1Accounts.Retrieve(ctx, &stripego.AccountRetrieveParams{})
	}, func(account *stripego.Account) *callError {
		switch {
		case account.ID == "":
			return invalidAnswer()
		case c.settings.Account != "" && account.ID != c.settings.Account:
			return mismatch("the key belongs to account %s, not to %s", account.ID, c.settings.Account)
		}
		return nil
	})
	return err
}

const (
	maxAnswerBytes = 8 << 20  // a page of 100 events is about 1 MB
	maxHeaderBytes = 64 << 10 // of an answer
	idleConns      = 32
	idleTime       = 60 * time.Second
	dialTime       = 5 * time.Second
)

// newHTTPClient returns a client with bounded connections. Contexts bound the time of calls. It uses
// HTTP/1.1, so that each request has its own connection and a hanging one delays no other.
func newHTTPClient() *http.Client {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	return &http.Client{
		Transport: transport{tracing.Transport(&http.Transport{
			Proxy:                  http.ProxyFromEnvironment,
			DialContext:            (&net.Dialer{Timeout: dialTime, KeepAlive: 15 * time.Second}).DialContext,
			TLSHandshakeTimeout:    dialTime,
			MaxConnsPerHost:        inFlight,
			MaxIdleConns:           idleConns,
			MaxIdleConnsPerHost:    idleConns,
			IdleConnTimeout:        idleTime,
			MaxResponseHeaderBytes: maxHeaderBytes,
			Protocols:              protocols,
		})},
		// Stripe sends no redirects, and the key must not follow one.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// exchange is the state of one HTTP exchange.
type exchange struct {
	reached atomic.Bool // connected: part of the request may have been sent
	status  int         // 0: no answer
	header  http.Header
}

type exchangeKey struct{}

// transport records the progress of a request in the exchange of its context. It bounds the answer and
// removes headers about this machine.
type transport struct{ base http.RoundTripper }

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	x, ok := r.Context().Value(exchangeKey{}).(*exchange)
	if !ok {
		x = &exchange{}
	}
	trace := &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { x.reached.Store(true) }}
	r = r.Clone(httptrace.WithClientTrace(r.Context(), trace))
	r.Header.Del("X-Stripe-Client-User-Agent")
	r.Header.Set("User-Agent", "Stripe/v1 GoBindings/"+stripego.ClientVersion)
	response, err := t.base.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	x.status, x.header = response.StatusCode, response.Header
	response.Body = http.MaxBytesReader(nil, response.Body, maxAnswerBytes)
	return response, nil
}

// CloseIdleConnections is called by http.Client.
func (t transport) CloseIdleConnections() {
	if base, found := t.base.(interface{ CloseIdleConnections() }); found {
		base.CloseIdleConnections()
	}
}

// Ids of objects that do not exist. Stripe checks the key before the object, so a call with one of them
// changes nothing and shows whether the key has the permission.
const (
	noIntent  = "pi_triprize_probe"
	noEvent   = "evt_triprize_probe"
	noMove    = "txn_triprize_probe"
	noDispute = "du_triprize_probe"
)

// CheckPermissions makes one call for each permission that we need, named as Stripe does, about an object
// that does not exist: Stripe answers not found, or forbids the call. Permissions to write include reading.
func (c *Client) CheckPermissions(ctx context.Context) (map[string]bool, error) {
	read := func(send func(ctx context.Context) error) func() error {
		return func() error {
			_, err := do(ctx, c, request{call: callFetch, what: "a probe", part: lists}, func(ctx context.Context) (struct{}, error) { return struct{}{}, send(ctx) }, nil)
			return err
		}
	}
	has := make(map[string]bool)
	var failures []error
	for permission, probe := range map[string]func() error{
		"payment_intent_write": func() error {
			_, err := c.CancelIntent(ctx, noIntent, "probe:"+uuid.NewString())
			return err
		},
		"charge_write": func() error { // Stripe's name for charges and refunds
			_, err := c.CreateRefund(ctx, payprovider.NewRefund{Key: "probe:" + uuid.NewString(), IntentID: noIntent, Amount: 1})
			return err
		},
		"event_read": read(func(ctx context.Context) error {
			_, err := c.api.V1Events.Retrieve(ctx, noEvent, &stripego.EventRetrieveParams{})
			return err
		}),
		"balance_transaction_source_read": read(func(ctx context.Context) error { // the reconciliation lists them with their sources
			_, err := c.api.V1BalanceTransactions.Retrieve(ctx, noMove, &stripego.BalanceTransactionRetrieveParams{})
			return err
		}),
		"dispute_read": read(func(ctx context.Context) error {
			_, err := c.api.V1Disputes.Retrieve(ctx, noDispute, &stripego.DisputeRetrieveParams{})
			return err
		}),
	} {
		err := probe()
		e, ok := errors.AsType[*payprovider.Error](err)
		switch {
		case err == nil, ok && e.Code == string(stripego.ErrorCodeResourceMissing):
			has[permission] = true
		case ok && e.Kind == payprovider.KindForbidden:
			has[permission] = false
		default: // unknown
			failures = append(failures, err)
		}
	}
	for permission, allowed := range has {
		value := 1.0
		if allowed {
			value = 0
		}
		c.metrics.forbidden.WithLabelValues(permission).Set(value)
	}
	return has, errors.Join(failures...)
}

// ok is the outcome of a call that succeeded; others are kinds of errors.
const ok = "ok"

type metrics struct {
	calls    *prometheus.CounterVec
	requests *prometheus.HistogramVec
	waits    *prometheus.HistogramVec

	forbidden *prometheus.GaugeVec
}

func newMetrics(registry prometheus.Registerer) *metrics {
	m := &metrics{
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "triprize_stripe_calls_total",
			Help: "Calls of Stripe by call and outcome: ok, or the kind of the error. A page of a list is a call; a retry is not.",
		}, []string{"call", "outcome"}),
		requests: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "triprize_stripe_request_duration_seconds",
			Help:    "Time of one HTTP exchange with Stripe, whatever its outcome. A retried call has several.",
			Buckets: []float64{.01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
		}, []string{"call"}),
		waits: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "triprize_stripe_quota_wait_seconds",
			Help:    "Time that a request waited for our own rate limit, which keeps Stripe's. Those that could not start in time are counted as limited.",
			Buckets: []float64{.001, .005, .01, .05, .1, .25, .5, 1, 2.5, 5, 10},
		}, []string{"call"}),
		forbidden: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "triprize_stripe_permission_missing",
			Help: "1 when the key lacks a permission that we need, or is refused, as the sweep missing-permissions of this process last found; 0 when it has it.",
		}, []string{"permission"}),
	}
	for _, name := range calls {
		m.requests.WithLabelValues(string(name))
		m.waits.WithLabelValues(string(name))
		m.calls.WithLabelValues(string(name), ok)
		for _, kind := range payprovider.ErrorKinds {
			m.calls.WithLabelValues(string(name), string(kind))
		}
	}
	if registry != nil {
		registry.MustRegister(m.calls, m.requests, m.waits, m.forbidden)
	}
	return m
}
