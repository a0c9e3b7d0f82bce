package stripesim

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stripe/stripe-go/v85"
	"github.com/stripe/stripe-go/v85/webhook"
	"go.uber.org/goleak"

	"triprize/internal/testkit/servers"
)

func TestMain(m *testing.M) {
	webhookTimeout = servers.Patience // else a slow receiver has taken a webhook that is sent again
	goleak.VerifyTestMain(m)
}

const (
	testKey    = "sk_test_0123456789abcdef"
	testSecret = "whsec_test"
)

// shop is a sandbox, and a receiver of its webhooks. A story is about the payment, refund and dispute that were made last.
type shop struct {
	t      *testing.T
	server *Server
	url    string
	http   *http.Client

	mu     sync.Mutex
	got    []stripe.Event
	status int // of the receiver's answers; 0: 200
	came   chan struct{}

	pi, re, du string
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
	s.http = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	sandbox := s.server
	t.Cleanup(func() {
		sandbox.Release()
		s.http.CloseIdleConnections()
		server.Close()
		if err := sandbox.Close(); err != nil {
			t.Error(err)
		}
	})
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
		case <-time.After(servers.Patience):
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

// counted is how many payments and charges the sandbox keeps.
func (s *shop) counted() (intents, charges int) {
	s.server.mu.Lock()
	defer s.server.mu.Unlock()
	return len(s.server.state.lists["payment_intent"]), len(s.server.state.lists["charge"])
}

// raw sends a form and returns the answer: none, when the connection is lost.
func (s *shop) raw(method, path, form string, header ...string) (status int, head http.Header, body map[string]any) {
	s.t.Helper()
	request, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, strings.NewReader(form))
	servers.NoError(s.t, err)
	request.Header.Set("Authorization", "Bearer "+testKey)
	if method == http.MethodPost {
		request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for i := 0; i < len(header); i += 2 {
		if request.Header.Set(header[i], header[i+1]); header[i+1] == "" {
			request.Header.Del(header[i])
		}
	}
	response, err := s.http.Do(request)
	if err != nil {
		return 0, nil, nil
	}
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(response.Body)
	if err != nil || json.Unmarshal(answer, &body) != nil {
		return 0, nil, nil
	}
	if c, err := stripeContract(); err != nil {
		s.t.Error(err)
	} else if err := c.answer(method, path, response.StatusCode, answer); err != nil {
		s.t.Errorf("against Stripe's contract: %s %s: %d: %v\n%s", method, path, response.StatusCode, err, answer)
	}
	return response.StatusCode, response.Header, body
}
