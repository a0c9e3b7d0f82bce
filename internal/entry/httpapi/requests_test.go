package httpapi_test

import (
	"cmp"
	"net/http"
	"strings"
	"testing"

	"github.com/google/uuid"

	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/fleet"
)

const goodPurchase = `{"user_id":"a","selection":{"quantity":1},"payment":{"method":"external"}}`

// TestEveryOperationRefusesWhatItDoesNotUnderstand has what is wrong with the requests of all operations.
func TestBadRequestsGetAProblemThatSaysWhatToDo(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, quiet)
	id := s.Campaign(4)
	path := "/v1/campaigns/" + id.String() + "/purchases"
	with := func(old, with string) string { return strings.Replace(goodPurchase, old, with, 1) }
	draft := fleet.CampaignBody(3)
	draft["name"], draft["base_length"], draft["currency"], draft["purchase_limit"] = "", 2, "yen", 0
	for name, c := range map[string]struct {
		method, path, body string
		status             int
		code               string
		says               []string
	}{
		"a field twice":       {body: with(`{"user_id":"a"`, `{"user_id":"a","user_id":"b"`)},
		"no user":             {body: with(`"user_id":"a",`, ``), says: []string{"/user_id"}},
		"a long user":         {body: with(`"a"`, `"`+strings.Repeat("u", 129)+`"`), says: []string{"/user_id"}},
		"NUL in the user":     {body: with(`"a"`, `"a\u0000"`), says: []string{"/user_id"}},
		"bad UTF-8":           {body: with(`"a"`, "\"a\xff\"")},
		"half a surrogate":    {body: with(`"a"`, `"\ud800"`)},
		"quantity zero":       {body: with(`:1}`, `:0}`), says: []string{"/selection/quantity"}},
		"quantity text":       {body: with(`:1}`, `:"1"}`), says: []string{"quantity"}},
		"quantity a fraction": {body: with(`:1}`, `:1.5}`), says: []string{"quantity"}},
		"quantity huge":       {body: with(`:1}`, `:1e400}`)},
		"layer zero":          {body: with(`{"quantity"`, `{"layer":0,"quantity"`), says: []string{"/selection/layer"}},
		"another payment":     {body: with(`external`, `cheque`), says: []string{"/payment/method"}},
		"a card without one":  {body: with(`external`, `card`), says: []string{"/payment/payment_method"}},
		"no such campaign":    {path: "/v1/campaigns/" + uuid.NewString() + "/purchases", status: 404, code: "not-found"},
		"no such path":        {path: "/v2/campaigns", status: 404, code: "not-found"},
		"no such method":      {method: http.MethodDelete, path: "/v1/campaigns", status: 405, code: "method-not-allowed"},
		"no such position":    {method: http.MethodGet, path: "/v1/campaigns/" + id.String() + "/positions/2/3", status: 404, code: "not-found"},
		"no such job":         {method: http.MethodGet, path: "/v1/jobs/" + uuid.NewString(), status: 404, code: "not-found"},

		"jobs in a state":       {method: http.MethodGet, path: "/v1/jobs?state=done", says: []string{"must be one of: queued, awaiting_action, succeeded, failed"}},
		"a code without failed": {method: http.MethodGet, path: "/v1/jobs?code=sold-out&state=queued", says: []string{"requires state failed"}},
		"a cursor of another":   {method: http.MethodGet, path: "/v1/jobs?cursor=" + uuid.NewString(), says: []string{"must be the next_cursor of an earlier page"}},
		"an empty parameter":    {method: http.MethodGet, path: "/v1/jobs?user_id=", says: []string{"must have at least 1 character"}},
		"a parameter that it does not have": {method: http.MethodGet, path: "/v1/users/mina/purchases?userId=1",
			says: []string{"is not a parameter of this operation (it takes campaign_id, include, cursor, limit)"}},
		"a parameter where there are none": {method: http.MethodGet, path: "/v1/sweeps?state=1", says: []string{"which takes none"}},
		"a long name":                      {method: http.MethodGet, path: "/v1/jobs?" + strings.Repeat("n", 500) + "=1", says: []string{"name that is too long"}},
		"many names":                       {method: http.MethodGet, path: "/v1/jobs?x=1&y=1" + strings.Repeat("&z=1", 99), says: []string{`"pointer":"?y"`}},
		"a version of what has none":       {method: http.MethodPatch, path: "/v1/campaigns/" + id.String(), says: []string{"does not check the version"}},
	} {
		t.Run(name, func(t *testing.T) {
			a := s.Do(0, s.Operator, c.method, c.path, map[string]string{"If-Match": `"7"`}, nil)
			if c.method == "" {
				a = raw(s, http.MethodPost, cmp.Or(c.path, path), cmp.Or(c.body, goodPurchase), "", "")
			}
			refused(t, name, a, cmp.Or(c.status, 400), cmp.Or(c.code, "invalid-request"))
			for _, text := range c.says {
				if !fleet.Contains(a.Body, text) {
					t.Errorf("it does not say %q: %s", text, a.Body)
				}
			}
		})
	}
	all := refused(t, "a draft with nothing right", s.Post("/v1/campaigns", draft), 400, "invalid-request")
	for i, pointer := range []string{"/base_length", "/currency", "/name", "/purchase_limit"} {
		if len(all.Errors) != 4 || all.Errors[i].Pointer != pointer {
			t.Errorf("a draft with nothing right: %+v", all.Errors)
		}
	}
	if n := count(s, `SELECT count(*) FROM jobs WHERE client = ANY($1)`, []string{s.Client("shop"), s.Client("ops")}); n != 0 {
		t.Errorf("%d jobs were made of bad requests", n)
	}
}

// raw sends a request as the operator with a body as it is. An empty key means a
// fresh one, "-" none.
func raw(s *fleet.System, method, path, body, key, media string) fleet.Answer {
	s.T.Helper()
	return rawAs(s, s.Operator, method, path, body, key, media)
}

// rawAs is raw with another credential.
func rawAs(s *fleet.System, credential, method, path, body, key, media string) fleet.Answer {
	s.T.Helper()
	request, err := http.NewRequest(method, s.URLs[0]+path, strings.NewReader(body))
	if err != nil {
		s.T.Fatal(err)
	}
	if key = cmp.Or(key, uuid.NewString()); key != "-" {
		request.Header.Set("Idempotency-Key", key)
	}
	request.Header.Set("Content-Type", cmp.Or(media, "application/json"))
	request.Header.Set("Authorization", "Bearer "+credential)
	return s.Send(request)
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
