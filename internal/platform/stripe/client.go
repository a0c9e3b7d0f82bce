package stripe

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	stripego "github.com/stripe/stripe-go/v85"
	"golang.org/x/sync/semaphore"
	"golang.org/x/time/rate"

	"triprize/internal/domain/payprovider"
	"triprize/internal/platform/config"
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
