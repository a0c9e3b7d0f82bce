package stripe_test

import (
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"triprize/internal/domain/payprovider"
	"triprize/internal/platform/config"
	"triprize/internal/platform/stripe"
	"triprize/internal/testkit/servers"
)

func TestMain(m *testing.M) { servers.Main(m) }

const (
	testKey    = "sk_test_hunter2hunter2"
	testSecret = "whsec_hunter2hunter2hunter2"
)

// settings let nothing end before a busy machine has answered.
func settings(url string) config.Stripe {
	return config.Stripe{Key: testKey, URL: url, WebhookSecret: testSecret, MethodTypes: "card",
		Timeout: 2 * servers.Patience, Rate: 10_000, EndpointRate: 10_000}
}

// answer is what a server says to a request. A negative status closes the connection
// instead.
type answer struct {
	status int
	body   string
	header map[string]string
}

// request is what a server was asked.
type request struct {
	method, path string
	form         url.Values // of the body or the query
	header       http.Header
}

// stripeServer says what a test wants: its answers in their order, the last one again and again.
type stripeServer struct {
	url     string
	mu      sync.Mutex
	answers []answer
	asked   []request
}

func serve(t *testing.T, answers ...answer) *stripeServer {
	s := &stripeServer{answers: answers}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	s.url = server.URL
	return s
}

func (s *stripeServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	form, _ := url.ParseQuery(string(body) + r.URL.RawQuery)
	s.mu.Lock()
	s.asked = append(s.asked, request{r.Method, r.URL.Path, form, r.Header})
	a := s.answers[0]
	if len(s.answers) > 1 {
		s.answers = s.answers[1:]
	}
	s.mu.Unlock()
	if a.status < 0 {
		panic(http.ErrAbortHandler)
	}
	w.Header().Set("Request-Id", "req_1")
	for name, value := range a.header {
		w.Header().Set(name, value)
	}
	w.WriteHeader(a.status)
	_, _ = io.WriteString(w, a.body)
}

func (s *stripeServer) requests() []request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.asked)
}

// client is a client of a server, with what it logs and counts.
type client struct {
	*stripe.Client
	log      *servers.Journal
	registry *prometheus.Registry
}

func connect(t testing.TB, settings config.Stripe) client {
	t.Helper()
	log, registry := &servers.Journal{}, prometheus.NewRegistry()
	c := client{stripe.New(settings, slog.New(slog.NewTextHandler(log, nil)), registry), log, registry}
	t.Cleanup(c.Close)
	return c
}

// counted returns the value of a counter or gauge with a label; an empty one is any.
func (c client) counted(t *testing.T, name, label string) float64 {
	t.Helper()
	return servers.Counted(t, c.registry, name, label)
}

// intent is the JSON of an intent of 1000 JPY, with some fields changed: name, value, …
// in JSON.
func intent(changes ...string) string {
	return object(map[string]string{
		"id": `"pi_1"`, "object": `"payment_intent"`, "amount": "1000", "amount_received": "0", "currency": `"jpy"`, "livemode": "false",
		"status": `"requires_confirmation"`, "created": "1700000000", "metadata": `{"purchase_id":"p1","campaign_id":"c1"}`,
		"client_secret": `"pi_1_secret_hunter2"`, "payment_method": `"pm_card_visa"`,
	}, changes)
}

func refund(changes ...string) string {
	return object(map[string]string{
		"id": `"re_1"`, "object": `"refund"`, "amount": "1000", "currency": `"jpy"`, "status": `"pending"`, "created": "1700000000",
		"payment_intent": `"pi_1"`, "metadata": `{"purchase_id":"p1"}`,
	}, changes)
}

func object(fields map[string]string, changes []string) string {
	for i := 0; i < len(changes); i += 2 {
		fields[changes[i]] = changes[i+1]
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		parts = append(parts, fmt.Sprintf("%q:%s", name, fields[name]))
	}
	return "{" + strings.Join(parts, ",") + "}"
}

// problem is the JSON of an error of Stripe.
func problem(kind, code, more string) string {
	return fmt.Sprintf(`{"error":{"type":%q,"code":%q,"message":"Key sk_test_hunter2hunter2 said no"%s}}`, kind, code, more)
}

// wanted is the intent that most tests create.
var wanted = payprovider.NewIntent{Key: "pi:p1:1", Amount: 1000, Currency: "JPY", PaymentMethod: "pm_card_visa",
	Metadata: map[string]string{"purchase_id": "p1", "campaign_id": "c1"}}
