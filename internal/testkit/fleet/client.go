package fleet

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/google/uuid"

	"triprize/internal/domain/shape"
	"triprize/internal/job"
	"triprize/internal/testkit/servers"
)

// Answer is what came back for one request.
type Answer struct {
	Status int         `json:"-"`
	Header http.Header `json:"-"`
	Body   []byte      `json:"-"`
	Err    error       `json:"-"`

	ID         uuid.UUID
	State      job.State
	Attempts   int
	PurchaseID uuid.UUID `json:"purchase_id"`
	NextAction *struct {
		Type      string
		URL       string
		Decline   *struct{ Code string }
		ExpiresAt time.Time `json:"expires_at"`
	} `json:"next_action"`
	Result struct {
		PurchaseID uuid.UUID `json:"purchase_id"`
		Positions  []shape.Position
		Amount     int64
		Board      int64 `json:"board_version"`
	}
	Problem *struct {
		Code        string
		Detail      string
		DeclineCode string `json:"decline_code"`
		Status      int
	}
	Code string // of a problem document
}

// Refusal is why a request or its job was refused.
func (a Answer) Refusal() string {
	if a.Problem != nil {
		return a.Problem.Code
	}
	return a.Code
}

func (a Answer) String() string {
	return fmt.Sprintf("status %d, state %s, code %s, error %v", a.Status, a.State, a.Refusal(), a.Err)
}

var contractOf = &conforming{next: &http.Transport{MaxIdleConnsPerHost: 1000}, breaches: make(map[string][]string)}

var crowdClient = &http.Client{Timeout: 5 * time.Minute, Transport: contractOf}

// Do sends one request with a key to the n-th api.
func (s *System) Do(n int, key, method, path string, header map[string]string, body any) Answer {
	var reader io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return Answer{Err: err}
		}
		reader = bytes.NewReader(data)
	}
	return s.send(crowdClient, n, key, method, path, header, reader)
}

func (s *System) send(client *http.Client, n int, key, method, path string, header map[string]string, body io.Reader) Answer {
	request, err := s.request(n, key, method, path, header, body)
	if err != nil { // nobody can ask for such a path
		return Answer{Err: err}
	}
	return receive(client, request)
}

// request returns a request to the n-th api, with the name of the test.
func (s *System) request(n int, key, method, path string, header map[string]string, body io.Reader) (*http.Request, error) {
	request, err := http.NewRequest(method, s.URLs[n%len(s.URLs)]+path, body)
	if err != nil {
		return nil, err
	}
	if key != "" {
		request.Header.Set("Authorization", "Bearer "+key)
	}
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	for name, value := range header {
		request.Header.Set(name, value)
	}
	return s.named(request), nil
}

// Send sends a request of the test and reads the answer.
func (s *System) Send(request *http.Request) Answer { return Send(s.named(request)) }

// sender is the key of the system that sends a request, among the values of its context.
type sender struct{}

// sent numbers the requests of all tests.
var sent atomic.Int64

// named gives a request the name of the test, unless it has an id.
func (s *System) named(request *http.Request) *http.Request {
	if _, has := request.Header["X-Request-Id"]; !has {
		request.Header.Set("X-Request-ID", fmt.Sprintf("%s:%d", s.name, sent.Add(1)))
	}
	return request.WithContext(context.WithValue(request.Context(), sender{}, s))
}

// Send sends a request and reads the answer.
func Send(request *http.Request) Answer { return receive(crowdClient, request) }

func receive(client *http.Client, request *http.Request) Answer {
	response, err := client.Do(request) //nolint:gosec // to the systems of tests only
	if err != nil {
		return Answer{Err: err}
	}
	defer func() { _ = response.Body.Close() }()
	data, err := io.ReadAll(response.Body)
	a := Answer{Status: response.StatusCode, Header: response.Header, Body: data, Err: err}
	_ = json.Unmarshal(data, &a) // what does not fit stays empty
	return a
}

// Dial opens a connection to an api and sends nothing.
func Dial(url string) (net.Conn, error) {
	return net.Dial("tcp", strings.TrimPrefix(url, "http://"))
}

// RawJSON is a body that is sent as it is.
type RawJSON string

// MarshalJSON implements json.Marshaler.
func (r RawJSON) MarshalJSON() ([]byte, error) { return []byte(r), nil }

// Order is one purchase request.
type Order struct {
	Campaign uuid.UUID
	User     string
	Key      string           // empty: a fresh one
	Layer    int              // 0: anywhere
	Quantity int              // 0: one
	Wait     bool             // until it is final
	ByWallet bool             // or the app has the money
	Card     string           // a payment method of the provider; empty: no card
	At       []shape.Position // instead of layer and quantity
	Hold     uuid.UUID        // instead of these
	API      int
}

// UntilFinal is the Prefer header of a request that waits for its job.
const UntilFinal = "wait=180"

// Buy sends an order.
func (s *System) Buy(o Order) Answer {
	if o.Key == "" {
		o.Key = uuid.NewString()
	}
	selection := map[string]any{"quantity": max(o.Quantity, 1)}
	if o.Layer > 0 {
		selection["layer"] = o.Layer
	}
	if len(o.At) > 0 {
		selection = map[string]any{"positions": o.At}
	}
	if o.Hold != uuid.Nil {
		selection = map[string]any{"hold_id": o.Hold}
	}
	payment := map[string]string{"method": "external", "reference": "ref-" + o.User}
	if o.ByWallet {
		payment = map[string]string{"method": "wallet"}
	}
	if o.Card != "" {
		payment = map[string]string{"method": "card", "payment_method": o.Card}
	}
	header := map[string]string{"Idempotency-Key": o.Key}
	if o.Wait {
		header["Prefer"] = UntilFinal
	}
	return s.Do(o.API, s.App, http.MethodPost, "/v1/campaigns/"+o.Campaign.String()+"/purchases", header, map[string]any{
		"user_id": o.User, "selection": selection, "payment": payment,
	})
}

// Crowd sends n orders at the same moment.
func (s *System) Crowd(n int, orderOf func(i int) Order) []Answer {
	return AtOnce(n, func(i int) Answer { return s.Buy(orderOf(i)) })
}

// Count counts answers by what became of them.
func Count(answers []Answer) map[string]int {
	counts := make(map[string]int)
	for _, a := range answers {
		switch {
		case a.Err != nil:
			counts["error"]++
		case a.Refusal() != "":
			counts[a.Refusal()]++
		default:
			counts[string(a.State)]++
		}
	}
	return counts
}

// Job reads a job as the app.
func (s *System) Job(id uuid.UUID) Answer {
	return s.Do(0, s.App, http.MethodGet, "/v1/jobs/"+id.String(), nil, nil)
}

// Post sends a command as the operator with a fresh key.
func (s *System) Post(path string, body any) Answer {
	return s.Do(0, s.Operator, http.MethodPost, path, map[string]string{"Idempotency-Key": uuid.NewString()}, body)
}

// AwaitJob waits at the n-th api until a job is final, also when the buyer has something to do before.
func (s *System) AwaitJob(n int, id uuid.UUID) Answer {
	return s.send(StreamClient, n, s.App, http.MethodGet, "/v1/jobs/"+id.String(), map[string]string{"Prefer": UntilFinal + "; until=final"}, nil)
}

// CheckProblem wants every error to be a whole problem document.
func CheckProblem(t *testing.T, a Answer) {
	t.Helper()
	var p struct {
		Type, Title, Detail, Instance, Code string
		Status                              int
		RequestID                           string `json:"request_id"`
	}
	if err := json.Unmarshal(a.Body, &p); err != nil {
		t.Fatalf("not a problem: %s", a.Body)
	}
	if a.Header.Get("Content-Type") != "application/problem+json" || p.Status != a.Status || p.Type != "/problems#"+p.Code ||
		p.Title == "" || p.Detail == "" || p.Instance == "" || p.RequestID == "" || p.RequestID != a.Header.Get("X-Request-ID") {
		t.Errorf("not a whole problem: %s, %v", a.Body, a.Header)
	}
}

// Contains tells whether a text is in the data.
func Contains(data []byte, text string) bool { return bytes.Contains(data, []byte(text)) }

// AtOnce calls do n times at the same moment.
func AtOnce[T any](n int, do func(i int) T) []T {
	answers := make([]T, n)
	gun := make(chan struct{})
	var all sync.WaitGroup
	for i := range answers {
		all.Go(func() {
			<-gun
			answers[i] = do(i)
		})
	}
	close(gun)
	all.Wait()
	return answers
}

// Together does n things at the same moment.
func Together(n int, do func(i int)) {
	AtOnce(n, func(i int) struct{} {
		do(i)
		return struct{}{}
	})
}

// Fields are a JSON object.
type Fields map[string]any

// WalletView is what the tests read of a wallet.
type WalletView struct {
	ID                       uuid.UUID
	OwnerID                  string `json:"owner_id"`
	Currency                 string
	Balance, Held, Available int64
	Version                  int64
}

// As reads the body of an answer.
func As[T any](t *testing.T, a Answer) (v T) {
	t.Helper()
	if err := json.Unmarshal(a.Body, &v); err != nil {
		t.Errorf("%v: %s: %v", a, a.Body, err)
	}
	return v
}

// Want ends the test unless an answer has a status.
func Want(t testing.TB, status int, a Answer) Answer {
	t.Helper()
	if a.Status != status {
		t.Fatalf("want the status %d: %v %s", status, a, a.Body)
	}
	return a
}

// WantSucceeded ends the test unless the job in an answer has succeeded.
func WantSucceeded(t testing.TB, a Answer) {
	t.Helper()
	if a.State != job.Succeeded {
		t.Fatalf("want a job that has succeeded: %v %s", a, a.Body)
	}
}

// Execute sends a command as the app, with headers in pairs and a fresh key unless one is among them.
func (s *System) Execute(path string, body any, header ...string) Answer {
	return s.ExecuteAt(0, path, body, header...)
}

// ExecuteAt is Execute at the n-th api.
func (s *System) ExecuteAt(api int, path string, body any, header ...string) Answer {
	named := map[string]string{"Idempotency-Key": uuid.NewString()}
	for pair := range slices.Chunk(header, 2) {
		named[pair[0]] = pair[1]
	}
	return s.Do(api, s.App, http.MethodPost, path, named, body)
}

// ExecuteUntilDone is ExecuteAt that repeats a command, with its key, as long as it
// is told to: a wallet may be busy for longer than commands wait.
func (s *System) ExecuteUntilDone(api int, path string, body any) Answer {
	for key := uuid.NewString(); ; {
		if a := s.ExecuteAt(api, path, body, "Idempotency-Key", key); a.Status != http.StatusServiceUnavailable {
			return a
		}
	}
}

// Read reads as the app.
func (s *System) Read(path string) Answer { return s.Do(0, s.App, http.MethodGet, path, nil, nil) }

// Wallet opens a wallet in JPY over HTTP and returns its path.
func (s *System) Wallet(owner string, balance int64) string {
	s.T.Helper()
	a := s.Execute("/v1/wallets", Fields{"owner_id": owner, "currency": "JPY", "initial_balance": balance})
	Want(s.T, http.StatusCreated, a)
	return "/v1/wallets/" + a.ID.String()
}

// ExpectWallet wants a wallet to have so much, of which so much is held.
func (s *System) ExpectWallet(path string, balance, held int64) (w WalletView) {
	s.T.Helper()
	a := s.Read(path)
	w = As[WalletView](s.T, a)
	if w.Balance != balance || w.Held != held || w.Available != balance-held || a.Header.Get("ETag") != fmt.Sprintf(`"%d"`, w.Version) {
		s.T.Errorf("%+v, ETag %s; want %d, held %d", w, a.Header.Get("ETag"), balance, held)
	}
	return w
}

// WalletID returns the identifier in a wallet's path.
func WalletID(path string) string { return strings.TrimPrefix(path, "/v1/wallets/") }

// The login service whose tokens a system trusts.
const (
	Issuer      = "https://login.example"
	Audience    = "triprize"
	TokenSecret = "a secret of the login service, not of ours"
)

// Trusting systems accept the tokens of that login service.
var Trusting = Options{Env: []string{"TRIPRIZE_TOKENS_ISSUER=" + Issuer, "TRIPRIZE_TOKENS_AUDIENCE=" + Audience, "TRIPRIZE_TOKENS_HS256_SECRET=" + TokenSecret}}

// TokenFor signs a token of a user; role may be empty.
func TokenFor(t *testing.T, user, role string, change ...func(jwt.MapClaims)) string {
	t.Helper()
	claims := jwt.MapClaims{"iss": Issuer, "aud": Audience, "sub": user, "exp": time.Now().Add(time.Hour).Unix()}
	if role != "" {
		claims["role"] = role
	}
	for _, c := range change {
		c(claims)
	}
	signed, err := jwt.NewWithClaims(jwt.SigningMethodHS256, claims).SignedString([]byte(TokenSecret))
	servers.NoError(t, err)
	return signed
}
