package stripesim

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stripe/stripe-go/v85"
	"github.com/stripe/stripe-go/v85/webhook"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	testKey    = "sk_test_0123456789abcdef"
	testSecret = "whsec_test"
)

// shop is a sandbox, a client of it, and a receiver of its webhooks.
type shop struct {
	t      *testing.T
	server *Server
	url    string
	sc     *stripe.Client
	http   *http.Client

	mu     sync.Mutex
	got    []stripe.Event
	status int // of the receiver's answers; 0: 200
	came   chan struct{}
	broken bool // closing fails
}

// open starts a sandbox whose clock and delays are the test's. Webhooks are received
// when the settings do not name another receiver.
func open(t *testing.T, settings Settings) *shop {
	t.Helper()
	if _, err := stripeContract(); err != nil { // it takes a while, once
		t.Fatal(err)
	}
	s := &shop{t: t, came: make(chan struct{}, 10_000)}
	receiver := httptest.NewServer(http.HandlerFunc(s.receive))
	t.Cleanup(receiver.Close)
	if settings.WebhookURL == "" {
		settings.WebhookURL, settings.WebhookSecret = receiver.URL, testSecret
	}
	s.start(settings)
	return s
}

func (s *shop) start(settings Settings) {
	t := s.t
	settings.Key = testKey
	if settings.Rate == 0 {
		settings.Rate, settings.EndpointRate = -1, -1
	}
	for _, d := range []*time.Duration{&settings.Later, &settings.Late, &settings.Reverse, &settings.Retry} {
		if *d == 0 {
			*d = time.Hour // the test moves the clock
		}
	}
	if settings.Slow == 0 {
		settings.Slow = time.Millisecond
	}
	var err error
	if s.server, err = New(settings); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(s.server)
	s.url = server.URL
	// Go's client sends a request with an idempotency key again by itself when a connection
	// that was used before is closed. The tests want to see what was answered.
	s.http = &http.Client{Transport: conforming{t, &http.Transport{DisableKeepAlives: true}}}
	t.Cleanup(func() {
		s.server.Release()
		s.http.CloseIdleConnections()
		server.Close()
		if err := s.server.Close(); (err != nil) != s.broken {
			t.Error(err)
		}
	})
	s.sc = stripe.NewClient(testKey, stripe.WithBackends(&stripe.Backends{API: stripe.GetBackendWithConfig(stripe.APIBackend, &stripe.BackendConfig{
		URL: stripe.String(server.URL), HTTPClient: s.http, MaxNetworkRetries: stripe.Int64(0), EnableTelemetry: stripe.Bool(false),
		LeveledLogger: &stripe.LeveledLogger{Level: stripe.LevelNull},
	})}))
}

func (s *shop) receive(w http.ResponseWriter, r *http.Request) {
	payload, err := io.ReadAll(r.Body)
	if err != nil {
		s.t.Error(err)
	}
	event, err := webhook.ConstructEvent(payload, r.Header.Get("Stripe-Signature"), testSecret)
	if err != nil {
		s.t.Error(err)
	}
	if c, err := stripeContract(); err != nil {
		s.t.Error(err)
	} else if err := c.webhook(payload); err != nil {
		s.t.Errorf("against Stripe's contract: %v\n%s", err, payload)
	}
	s.mu.Lock()
	s.got = append(s.got, event)
	status := s.status
	s.mu.Unlock()
	if status != 0 {
		w.WriteHeader(status)
	}
	s.came <- struct{}{}
}

// answer chooses how webhooks are answered from now on.
func (s *shop) answer(status int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status = status
}

// types waits for n webhooks and returns the types of all so far, in their order.
func (s *shop) types(n int) []string {
	s.t.Helper()
	for range n {
		select {
		case <-s.came:
		case <-time.After(time.Minute):
			s.t.Fatalf("a webhook did not come; so far %q", s.have())
		}
	}
	return s.have()
}

func (s *shop) have() (types []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.got {
		types = append(types, string(e.Type))
	}
	return types
}

func sorted(list []string) []string {
	list = slices.Clone(list)
	slices.Sort(list)
	return list
}

// inside shows what the sandbox keeps, under its lock: its watch writes at any time.
func (s *shop) inside(look func(*state)) {
	s.server.mu.Lock()
	defer s.server.mu.Unlock()
	look(s.server.state)
}

// counted is how many payments and charges the sandbox keeps.
func (s *shop) counted() (intents, charges int) {
	s.inside(func(kept *state) { intents, charges = len(kept.intents.list), len(kept.charges.list) })
	return intents, charges
}

type create = stripe.PaymentIntentCreateParams

// held is an intent that a card holds until it is captured.
func held(method string) *create {
	return &create{
		Amount: stripe.Int64(500), Currency: stripe.String("jpy"), PaymentMethod: stripe.String(method), PaymentMethodTypes: stripe.StringSlice([]string{"card", "konbini"}),
		PaymentMethodOptions: &stripe.PaymentIntentCreatePaymentMethodOptionsParams{
			Card: &stripe.PaymentIntentCreatePaymentMethodOptionsCardParams{CaptureMethod: stripe.String("manual")},
		},
	}
}

func (s *shop) create(p *create) *stripe.PaymentIntent {
	s.t.Helper()
	i, err := s.sc.V1PaymentIntents.Create(s.t.Context(), p)
	if err != nil {
		s.t.Fatal(err)
	}
	return i
}

func (s *shop) confirm(id string, key string) (*stripe.PaymentIntent, error) {
	p := &stripe.PaymentIntentConfirmParams{ReturnURL: stripe.String("https://shop.example/back?order=1")}
	if key != "" {
		p.SetIdempotencyKey(key)
	}
	return s.sc.V1PaymentIntents.Confirm(s.t.Context(), id, p)
}

// confirmed confirms an intent with success.
func (s *shop) confirmed(id string) *stripe.PaymentIntent {
	s.t.Helper()
	i, err := s.confirm(id, "")
	if err != nil {
		s.t.Fatal(err)
	}
	return i
}

func (s *shop) intent(id string) *stripe.PaymentIntent {
	s.t.Helper()
	p := &stripe.PaymentIntentRetrieveParams{}
	p.AddExpand("latest_charge")
	i, err := s.sc.V1PaymentIntents.Retrieve(s.t.Context(), id, p)
	if err != nil {
		s.t.Fatal(err)
	}
	return i
}

func (s *shop) capture(id string) *stripe.PaymentIntent {
	s.t.Helper()
	i, err := s.sc.V1PaymentIntents.Capture(s.t.Context(), id, &stripe.PaymentIntentCaptureParams{})
	if err != nil {
		s.t.Fatal(err)
	}
	return i
}

// paid is an intent whose money is captured.
func (s *shop) paid(method string) *stripe.PaymentIntent {
	s.t.Helper()
	i := s.create(held(method))
	s.confirmed(i.ID)
	return s.capture(i.ID)
}

func (s *shop) refund(intent string, amount int64) (*stripe.Refund, error) {
	p := &stripe.RefundCreateParams{PaymentIntent: stripe.String(intent)}
	if amount != 0 {
		p.Amount = stripe.Int64(amount)
	}
	return s.sc.V1Refunds.Create(s.t.Context(), p)
}

func (s *shop) advance(d time.Duration) {
	s.t.Helper()
	if err := s.server.Advance(d); err != nil {
		s.t.Fatal(err)
	}
}

// problem is the error of Stripe, with its status and code.
func problem(t *testing.T, err error, status int, code string) stripe.Error {
	t.Helper()
	var e *stripe.Error
	if !errors.As(err, &e) {
		t.Fatalf("%v is no error of Stripe", err)
	}
	if e.HTTPStatusCode != status || string(e.Code) != code {
		t.Errorf("status %d, code %q, want %d, %q: %v", e.HTTPStatusCode, e.Code, status, code, err)
	}
	return *e
}

// raw sends a form and returns the answer.
func (s *shop) raw(method, path, form string, header ...string) (status int, head http.Header, body map[string]any) {
	s.t.Helper()
	request, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, strings.NewReader(form))
	if err != nil {
		s.t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+testKey)
	if method == http.MethodPost && !strings.HasPrefix(path, "/sandbox/") {
		request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for i := 0; i < len(header); i += 2 {
		request.Header.Set(header[i], header[i+1])
	}
	response, err := s.http.Do(request)
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	if err := json.NewDecoder(response.Body).Decode(&body); err != nil {
		s.t.Fatal(err)
	}
	return response.StatusCode, response.Header, body
}

// until waits for something that happens elsewhere.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for !is() {
		select {
		case <-ctx.Done():
			t.Fatalf("not within a minute: %s", what)
		case <-time.After(2 * time.Millisecond):
		}
	}
}
