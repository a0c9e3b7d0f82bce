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

// APIVersion is the release of Stripe's API that is spoken here. The library sends it
// with every request; the webhook endpoint should be set to it too.
const APIVersion = stripego.APIVersion

// inFlight bounds the requests of a process that are on their way at once, and with
// them its connections to Stripe.
const inFlight = 256

// Client calls Stripe. Close it.
type Client struct {
	Reader
	api      *stripego.Client
	http     *http.Client
	settings config.Stripe
	secrets  []string // of webhooks
	scrub    scrubber
	pace     *pace
	breakers []*breaker          // by part
	slots    *semaphore.Weighted // of requests
	metrics  *metrics
	logger   *slog.Logger
	refusals rate.Sometimes // of the key, in the log
}

// New returns a client for the key of the settings. Metrics go to registry, if there is one.
func New(settings config.Stripe, logger *slog.Logger, registry prometheus.Registerer) *Client {
	m := newMetrics(registry)
	settings.Timeout = cmp.Or(settings.Timeout, payprovider.CallTimeout)
	c := &Client{
		Reader:   NewReader(settings.Live()),
		http:     newHTTPClient(),
		settings: settings,
		secrets:  settings.WebhookSecrets(),
		scrub:    newScrubber(append(settings.WebhookSecrets(), settings.Key)),
		pace:     newPace(settings, m),
		breakers: newBreakers(logger, registry),
		slots:    semaphore.NewWeighted(inFlight),
		metrics:  m,
		logger:   logger,
		refusals: rate.Sometimes{First: 1, Interval: time.Minute},
	}
	backend := &stripego.BackendConfig{
		HTTPClient:        c.http,
		MaxNetworkRetries: stripego.Int64(0), // repetitions follow our rules: see call
		EnableTelemetry:   stripego.Bool(false),
		LeveledLogger:     &stripego.LeveledLogger{Level: stripego.LevelNull}, // it would log bodies
	}
	if settings.URL != "" {
		backend.URL = stripego.String(settings.URL)
	}
	c.api = stripego.NewClient(settings.Key, stripego.WithBackends(stripego.NewBackendsWithConfig(backend)))
	return c
}

// Close closes idle connections. Calls that are under way end by themselves.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// CheckAccount asks whose the key is. Another account than that of the settings is
// KindMismatch. A restricted key may lack the permission to ask; then set no account, and
// do not call this.
func (c *Client) CheckAccount(ctx context.Context) error {
	_, err := do(ctx, c, request{call: callFetch, what: "account"}, func(ctx context.Context) (*stripego.Account, error) {
		return c.api.V1Accounts.Retrieve(ctx, &stripego.AccountRetrieveParams{})
	}, func(account *stripego.Account) *callError {
		switch {
		case account.ID == "":
			return unreadable()
		case c.settings.Account != "" && account.ID != c.settings.Account:
			return mismatch("the key is of account %s, and not of %s", account.ID, c.settings.Account)
		}
		return nil
	})
	return err
}

// later returns the moment after a time from now.
func later(d time.Duration) time.Time { return time.Now().Add(d) }

const (
	maxAnswerBytes = 8 << 20  // a page of 100 events is about 1 MB
	maxHeaderBytes = 64 << 10 // of an answer
	idleConns      = 32
	idleTime       = 60 * time.Second
	dialTime       = 5 * time.Second
)

// newHTTPClient returns a client of bounded connections. The time of a whole call is
// bounded by its context. It speaks HTTP/1.1: with one connection for each request, one
// that hangs delays no other.
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
		// Stripe sends no redirects, and a key must not go to where one leads.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// exchange is what is known of one HTTP exchange.
type exchange struct {
	reached atomic.Bool // there was a connection: some of the request may have been sent
	status  int         // 0: no answer
	header  http.Header
}

type exchangeKey struct{}

// transport notes in the exchange of the context how far a request came. It bounds the
// answer, and does not tell Stripe about the machine that asks.
type transport struct{ base http.RoundTripper }

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	x, ok := r.Context().Value(exchangeKey{}).(*exchange)
	if !ok {
		x = &exchange{} // of nobody
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

// CloseIdleConnections is called by the method of http.Client.
func (t transport) CloseIdleConnections() {
	if base, found := t.base.(interface{ CloseIdleConnections() }); found {
		base.CloseIdleConnections()
	}
}

// noted returns a context whose request notes how far it came.
func noted(ctx context.Context) (context.Context, *exchange) {
	x := &exchange{}
	return context.WithValue(ctx, exchangeKey{}, x), x
}

// Ids of nothing. Stripe looks at the key before it looks for the object, so a call with
// one of them changes nothing, and tells whether the key may make it.
const (
	noIntent  = "pi_triprize_probe"
	noEvent   = "evt_triprize_probe"
	noMove    = "txn_triprize_probe"
	noDispute = "du_triprize_probe"
)

// CheckPermissions makes one call for each permission that we need, in Stripe's words, about
// an object that there is not: Stripe does not find it, or forbids the call. A permission to
// write is one to read, too.
func (c *Client) CheckPermissions(ctx context.Context) (map[string]bool, error) {
	has := make(map[string]bool)
	var failures []error
	for permission, probe := range map[string]func() error{
		"payment_intent_write": func() error {
			_, err := c.CancelIntent(ctx, noIntent, "probe:"+uuid.NewString())
			return err
		},
		"charge_write": func() error { // Stripe's name of charges and refunds
			_, err := c.CreateRefund(ctx, payprovider.NewRefund{Key: "probe:" + uuid.NewString(), IntentID: noIntent, Amount: 1})
			return err
		},
		"event_read": func() error {
			_, err := do(ctx, c, request{call: callFetch, what: noEvent, part: partLists}, func(ctx context.Context) (*stripego.Event, error) {
				return c.api.V1Events.Retrieve(ctx, noEvent, &stripego.EventRetrieveParams{})
			}, nil)
			return err
		},
		// The reconciliation lists the balance with what has moved it.
		"balance_transaction_source_read": func() error {
			_, err := do(ctx, c, request{call: callFetch, what: noMove, part: partLists}, func(ctx context.Context) (*stripego.BalanceTransaction, error) {
				return c.api.V1BalanceTransactions.Retrieve(ctx, noMove, &stripego.BalanceTransactionRetrieveParams{})
			}, nil)
			return err
		},
		"dispute_read": func() error {
			_, err := do(ctx, c, request{call: callFetch, what: noDispute, part: partLists}, func(ctx context.Context) (*stripego.Dispute, error) {
				return c.api.V1Disputes.Retrieve(ctx, noDispute, &stripego.DisputeRetrieveParams{})
			}, nil)
			return err
		},
	} {
		err := probe()
		e, ok := errors.AsType[*payprovider.Error](err)
		switch {
		case err == nil, ok && e.Code == string(stripego.ErrorCodeResourceMissing):
			has[permission] = true
		case ok && e.Kind == payprovider.KindForbidden:
			has[permission] = false
		default: // Stripe has not said
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
	turns    *prometheus.HistogramVec

	forbidden *prometheus.GaugeVec
}

func newMetrics(registry prometheus.Registerer) *metrics {
	m := &metrics{
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "triprize_stripe_calls_total",
			Help: "Calls of Stripe by call and outcome: ok, or the kind of the error. A page of a list is a call; repetitions are not.",
		}, []string{"call", "outcome"}),
		requests: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "triprize_stripe_request_duration_seconds",
			Help:    "Time of one HTTP exchange with Stripe, whatever its outcome. A call that is repeated has several.",
			Buckets: []float64{.01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
		}, []string{"call"}),
		turns: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "triprize_stripe_turn_wait_seconds",
			Help:    "Time that a request waited for its turn, so that Stripe's rate limits hold. Those without a turn in time are counted as limited.",
			Buckets: []float64{.001, .005, .01, .05, .1, .25, .5, 1, 2.5, 5, 10},
		}, []string{"call"}),
		forbidden: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "triprize_stripe_permission_missing",
			Help: "1 when the key lacks a permission that we need, or is refused, as the sweep missing-permissions of this process has found last; 0 when it has it.",
		}, []string{"permission"}),
	}
	for _, name := range []call{callCreate, callConfirm, callCapture, callCancel, callFetch, callRefund, callList} {
		m.requests.WithLabelValues(string(name))
		m.turns.WithLabelValues(string(name))
		m.calls.WithLabelValues(string(name), ok)
		for _, kind := range payprovider.ErrorKinds {
			m.calls.WithLabelValues(string(name), string(kind))
		}
	}
	if registry != nil {
		registry.MustRegister(m.calls, m.requests, m.turns, m.forbidden)
	}
	return m
}

// ended counts a call.
func (m *metrics) ended(name call, e *callError) {
	outcome := ok
	if e != nil {
		outcome = string(e.Kind)
	}
	m.calls.WithLabelValues(string(name), outcome).Inc()
}

func (m *metrics) exchanged(name call, began time.Time) {
	m.requests.WithLabelValues(string(name)).Observe(time.Since(began).Seconds())
}

func (m *metrics) waited(name call, began time.Time) {
	m.turns.WithLabelValues(string(name)).Observe(time.Since(began).Seconds())
}
