package httpapi_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/fleet"

	"github.com/google/uuid"
)

const goodPurchase = `{"user_id":"a","selection":{"quantity":1},"payment":{"method":"external"}}`

func TestBadRequestsGetAProblemThatSaysWhatToDo(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, quiet)
	id := s.Campaign(4)
	path := "/v1/campaigns/" + id.String() + "/purchases"
	with := func(old, with string) string { return strings.Replace(goodPurchase, old, with, 1) }
	for name, c := range map[string]struct {
		method, path, body, key, media string
		status                         int
		code, says                     string
	}{
		"no key":              {key: "-", status: 400, code: "idempotency-key-missing", says: "Idempotency-Key"},
		"a long key":          {key: strings.Repeat("k", 256), status: 400, code: "idempotency-key-invalid"},
		"a key not in ASCII":  {key: "schlüssel", status: 400, code: "idempotency-key-invalid"},
		"empty":               {body: " ", status: 400, code: "invalid-request"},
		"not JSON":            {body: "{", status: 400, code: "invalid-request"},
		"two values":          {body: goodPurchase + goodPurchase, status: 400, code: "invalid-request"},
		"unknown field":       {body: with(`{"user_id"`, `{"discount":1,"user_id"`), status: 400, code: "invalid-request", says: "discount"},
		"a field twice":       {body: with(`{"user_id":"a"`, `{"user_id":"a","user_id":"b"`), status: 400, code: "invalid-request"},
		"no user":             {body: with(`"user_id":"a",`, ``), status: 400, code: "invalid-request", says: "/user_id"},
		"a long user":         {body: with(`"a"`, `"`+strings.Repeat("u", 129)+`"`), status: 400, code: "invalid-request", says: "/user_id"},
		"NUL in the user":     {body: with(`"a"`, `"a\u0000"`), status: 400, code: "invalid-request", says: "/user_id"},
		"bad UTF-8":           {body: with(`"a"`, "\"a\xff\""), status: 400, code: "invalid-request"},
		"half a surrogate":    {body: with(`"a"`, `"\ud800"`), status: 400, code: "invalid-request"},
		"quantity zero":       {body: with(`:1}`, `:0}`), status: 400, code: "invalid-request", says: "/selection/quantity"},
		"quantity text":       {body: with(`:1}`, `:"1"}`), status: 400, code: "invalid-request", says: "quantity"},
		"quantity a fraction": {body: with(`:1}`, `:1.5}`), status: 400, code: "invalid-request", says: "quantity"},
		"quantity huge":       {body: with(`:1}`, `:1e400}`), status: 400, code: "invalid-request"},
		"layer zero":          {body: with(`{"quantity"`, `{"layer":0,"quantity"`), status: 400, code: "invalid-request", says: "/selection/layer"},
		"another payment":     {body: with(`external`, `cheque`), status: 400, code: "invalid-request", says: "/payment/method"},
		"a card without one":  {body: with(`external`, `card`), status: 400, code: "invalid-request", says: "/payment/payment_method"},
		"not an object":       {body: `[1]`, status: 400, code: "invalid-request"},
		"another media type":  {media: "text/plain", status: 415, code: "unsupported-media-type"},
		"no such campaign":    {path: "/v1/campaigns/" + uuid.NewString() + "/purchases", status: 404, code: "not-found"},
		"not a UUID":          {path: "/v1/campaigns/1%20OR%201=1/purchases", status: 404, code: "not-found"},
		"no such path":        {path: "/v2/campaigns", status: 404, code: "not-found"},
		"no such method":      {method: http.MethodDelete, path: "/v1/campaigns", status: 405, code: "method-not-allowed"},
		"a bad limit":         {method: http.MethodGet, path: "/v1/campaigns?limit=0", status: 400, code: "invalid-request", says: "limit"},
		"a bad cursor":        {method: http.MethodGet, path: "/v1/campaigns?cursor=x", status: 400, code: "invalid-request", says: "cursor"},
		"a bad state":         {method: http.MethodGet, path: "/v1/campaigns?state=open", status: 400, code: "invalid-request", says: "state"},
		"no such position":    {method: http.MethodGet, path: "/v1/campaigns/" + id.String() + "/positions/2/3", status: 404, code: "not-found"},
		"an odd position":     {method: http.MethodGet, path: "/v1/campaigns/" + id.String() + "/positions/two/1", status: 404, code: "not-found"},
		"no such job":         {method: http.MethodGet, path: "/v1/jobs/" + uuid.NewString(), status: 404, code: "not-found"},
	} {
		t.Run(name, func(t *testing.T) {
			if c.method == "" {
				c.method = http.MethodPost
			}
			if c.path == "" {
				c.path = path
			}
			if c.body == "" {
				c.body = goodPurchase
			}
			a := raw(s, c.method, c.path, c.body, c.key, c.media)
			if a.Status != c.status || a.Refusal() != c.code || !strings.Contains(string(a.Body), c.says) {
				t.Errorf("got %v: %s", a, a.Body)
			}
			fleet.CheckProblem(t, a)
		})
	}
	var jobs int
	if err := s.DB.QueryRow(t.Context(), `SELECT count(*) FROM jobs WHERE client = ANY($1)`, []string{s.Client("shop"), s.Client("ops")}).Scan(&jobs); err != nil || jobs != 0 {
		t.Errorf("%d jobs were made of bad requests, %v", jobs, err)
	}
}

// raw sends a request as the operator with a body as it is. An empty key means a
// fresh one, "-" none.
func raw(s *fleet.System, method, path, body, key, media string) fleet.Answer {
	s.T.Helper()
	request, err := http.NewRequest(method, s.URLs[0]+path, strings.NewReader(body))
	if err != nil {
		s.T.Fatal(err)
	}
	if key == "" {
		key = uuid.NewString()
	}
	if key != "-" {
		request.Header.Set("Idempotency-Key", key)
	}
	if media == "" {
		media = "application/json"
	}
	request.Header.Set("Content-Type", media)
	request.Header.Set("Authorization", "Bearer "+s.Operator)
	return s.Send(request)
}

// A body is refused by its announced length: a client that sends it all the same
// may find the connection closed, so this one only announces it.
func TestABodyOverTheLimitIsRefused(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, quiet)
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.URLs[0], "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	fmt.Fprintf(conn, "POST /v1/campaigns HTTP/1.1\r\nHost: api\r\nAuthorization: Bearer %s\r\nIdempotency-Key: k\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", s.Operator, 2<<20)
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	data, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	a := fleet.Answer{Status: response.StatusCode, Header: response.Header, Body: data}
	if a.Status != http.StatusRequestEntityTooLarge || !fleet.Contains(data, "body-too-large") {
		t.Errorf("got %v: %s", a, data)
	}
	fleet.CheckProblem(t, a)
}

func TestBadCampaignsAreRefusedWithEveryFieldAtFault(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, quiet)
	for name, c := range map[string]struct {
		change   func(body map[string]any)
		pointers []string
	}{
		"nothing right": {func(b map[string]any) {
			b["name"], b["base_length"], b["currency"], b["purchase_limit"] = "", 2, "yen", 0
		}, []string{"/name", "/base_length", "/currency", "/purchase_limit"}},
		"too large":       {func(b map[string]any) { b["base_length"] = 141 }, []string{"/base_length"}},
		"a layer missing": {func(b map[string]any) { b["layers"] = b["layers"].([]map[string]any)[:2] }, []string{"/layers"}},
		"a layer twice":   {func(b map[string]any) { b["layers"].([]map[string]any)[2]["layer"] = 2 }, []string{"/layers/2/layer"}},
		"too cheap":       {func(b map[string]any) { b["layers"].([]map[string]any)[0]["price"] = 0 }, []string{"/layers/0/price"}},
		"too many prizes": {func(b map[string]any) {
			b["layers"].([]map[string]any)[1]["prizes"] = []map[string]any{{"name": "p", "count": 3}}
		}, []string{"/layers/1/prizes/0/count"}},
		"ends before it starts": {func(b map[string]any) {
			b["sale_starts_at"], b["sale_ends_at"] = "2030-01-02T00:00:00Z", "2030-01-01T00:00:00Z"
		}, []string{"/sale_ends_at"}},
		"a policy nobody knows": {func(b map[string]any) { b["policies"] = map[string]any{"unsold": "burn"} }, []string{"/policies/unsold"}},
		"a control character":   {func(b map[string]any) { b["name"] = "a\nb" }, []string{"/name"}},
	} {
		t.Run(name, func(t *testing.T) {
			body := fleet.CampaignBody(3)
			c.change(body)
			a := s.Post("/v1/campaigns", body)
			if a.Status != http.StatusBadRequest || a.Refusal() != "invalid-request" {
				t.Errorf("got %v: %s", a, a.Body)
			}
			for _, pointer := range c.pointers {
				if !fleet.Contains(a.Body, `"pointer":"`+pointer+`"`) {
					t.Errorf("%s is not named: %s", pointer, a.Body)
				}
			}
		})
	}
}

// The apis wait for Postgres as long as the test for them: only api.request_timeout
// can bring the answer.
func TestARequestThatPostgresHoldsUpIsAnsweredAtItsTimeout(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, quiet)
	s.RunAPI("TRIPRIZE_API_REQUEST_TIMEOUT=100ms")
	id := s.Campaign(3)
	unlock := fixture.LockCampaign(t, s.DB, id)
	a := s.Do(len(s.URLs)-1, s.Operator, http.MethodPost, "/v1/campaigns/"+id.String()+"/pause", map[string]string{"Idempotency-Key": "k"}, nil)
	if a.Status != http.StatusServiceUnavailable || a.Refusal() != "unavailable" || a.Header.Get("Retry-After") == "" {
		t.Errorf("%v %s", a, a.Body)
	}
	unlock()
	if a := s.Do(0, s.Operator, http.MethodPost, "/v1/campaigns/"+id.String()+"/pause", map[string]string{"Idempotency-Key": "k"}, nil); a.Status != http.StatusOK {
		t.Errorf("again with the same key: %v %s", a, a.Body)
	}
}
