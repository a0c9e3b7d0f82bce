package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/google/uuid"

	"triprize/internal/store/job"
)

// answer is what came back for one request.
type answer struct {
	status int
	header http.Header
	body   []byte
	err    error

	ID       uuid.UUID
	State    job.State
	Attempts int
	Result   struct {
		PurchaseID uuid.UUID `json:"purchase_id"`
		Positions  []place
		Amount     int64
	}
	Problem *struct {
		Code   string
		Detail string
		Status int
	}
	Code string // of a problem document
}

// code is why a request or its job was refused.
func (a answer) code() string {
	if a.Problem != nil {
		return a.Problem.Code
	}
	return a.Code
}

func (a answer) String() string {
	return fmt.Sprintf("status %d, state %s, code %s, error %v", a.status, a.State, a.code(), a.err)
}

var contractOf = &conforming{next: &http.Transport{MaxIdleConnsPerHost: 1000}, breaches: make(map[string][]string)}

var crowdClient = &http.Client{Timeout: time.Minute, Transport: contractOf}

// do sends one request with the app's key to the n-th api.
func (s *system) do(n int, key, method, path string, header map[string]string, body any) answer {
	var reader io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return answer{err: err}
		}
		reader = bytes.NewReader(data)
	}
	request, err := http.NewRequest(method, s.urls[n%len(s.urls)]+path, reader)
	if err != nil {
		return answer{err: err}
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
	return send(request)
}

// send sends a request and reads the answer.
func send(request *http.Request) answer {
	response, err := crowdClient.Do(request)
	if err != nil {
		return answer{err: err}
	}
	defer func() { _ = response.Body.Close() }()
	data, err := io.ReadAll(response.Body)
	a := answer{status: response.StatusCode, header: response.Header, body: data, err: err}
	_ = json.Unmarshal(data, &a) // what does not fit stays empty
	return a
}

// rawJSON is a body that is sent as it is.
type rawJSON string

// MarshalJSON implements json.Marshaler.
func (r rawJSON) MarshalJSON() ([]byte, error) { return []byte(r), nil }

// order is one purchase request.
type order struct {
	campaign uuid.UUID
	user     string
	key      string    // empty: a fresh one
	layer    int       // 0: anywhere
	quantity int       // 0: one
	wait     int       // seconds; 0: do not wait
	byWallet bool      // or the app has the money
	hold     uuid.UUID // instead of layer and quantity
	api      int
}

func (s *system) buy(o order) answer {
	if o.key == "" {
		o.key = uuid.NewString()
	}
	selection := map[string]any{"quantity": max(o.quantity, 1)}
	if o.layer > 0 {
		selection["layer"] = o.layer
	}
	if o.hold != uuid.Nil {
		selection = map[string]any{"hold_id": o.hold}
	}
	payment := map[string]string{"method": "external", "reference": "ref-" + o.user}
	if o.byWallet {
		payment = map[string]string{"method": "wallet"}
	}
	header := map[string]string{"Idempotency-Key": o.key}
	if o.wait > 0 {
		header["Prefer"] = fmt.Sprintf("wait=%d", o.wait)
	}
	return s.do(o.api, s.app, http.MethodPost, "/v1/campaigns/"+o.campaign.String()+"/purchases", header, map[string]any{
		"user_id": o.user, "selection": selection, "payment": payment,
	})
}

// crowd sends n orders at the same moment.
func (s *system) crowd(n int, orderOf func(i int) order) []answer {
	answers := make([]answer, n)
	gun := make(chan struct{})
	var wg sync.WaitGroup
	for i := range answers {
		wg.Go(func() {
			<-gun
			answers[i] = s.buy(orderOf(i))
		})
	}
	close(gun)
	wg.Wait()
	return answers
}

// tally counts answers by what became of them.
func tally(answers []answer) map[string]int {
	counts := make(map[string]int)
	for _, a := range answers {
		switch {
		case a.err != nil:
			counts["error"]++
		case a.code() != "":
			counts[a.code()]++
		default:
			counts[string(a.State)]++
		}
	}
	return counts
}

// job reads a job.
func (s *system) job(id uuid.UUID) answer {
	return s.do(0, s.app, http.MethodGet, "/v1/jobs/"+id.String(), nil, nil)
}
