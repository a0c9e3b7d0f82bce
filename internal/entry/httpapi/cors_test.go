package httpapi_test

import (
	"net/http"
	"strings"
	"testing"

	"triprize/internal/testkit/fleet"
)

const shopOrigin, otherOrigin = "https://shop.example", "https://other.example"

// across sends a request as a browser does for a script of an origin.
func across(s *fleet.System, origin, credential, method, path string, header map[string]string, body any) fleet.Answer {
	named := map[string]string{"Origin": origin}
	for name, value := range header {
		named[name] = value
	}
	return s.Do(0, credential, method, path, named, body)
}

func TestAScriptOfAnAllowedOriginReadsEveryAnswer(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, quiet).With("TRIPRIZE_API_CORS_ORIGINS=https://a.example, " + shopOrigin)
	path, _ := sells(s, nil)
	mina := fleet.TokenFor(t, "mina", "")
	order := fleet.Fields{"user_id": "mina", "selection": fleet.Fields{"quantity": 1}, "payment": external}
	tag := s.Do(0, mina, http.MethodGet, path, nil, nil).Header.Get("ETag") // that of an app is another: it sees metadata
	for what, c := range map[string]struct {
		credential, method, path string
		header                   map[string]string
		body                     any
		status                   int
	}{
		"a read":                        {mina, http.MethodGet, path, nil, nil, 200},
		"what has not changed":          {mina, http.MethodGet, path, map[string]string{"If-None-Match": tag}, nil, 304},
		"who is nobody":                 {"", http.MethodGet, path, nil, nil, 401},
		"what a user may not":           {mina, http.MethodPost, path + "/purchases", map[string]string{"Idempotency-Key": "k"}, order, 403},
		"a request that is not valid":   {mina, http.MethodPost, path + "/purchases", map[string]string{"Idempotency-Key": "k"}, fleet.Fields{}, 400},
		"what is not there":             {mina, http.MethodGet, "/v1/nothing", nil, nil, 404},
		"what may not be done to it":    {mina, http.MethodDelete, path, nil, nil, 405},
		"what nobody needs a key for":   {"", http.MethodGet, path + "/draw", nil, nil, 200},
		"a proof that there is not yet": {"", http.MethodGet, path + "/draw/proof", nil, nil, 409},
	} {
		for origin, allowed := range map[string]string{shopOrigin: shopOrigin, otherOrigin: ""} {
			a := across(s, origin, c.credential, c.method, c.path, c.header, c.body)
			if a.Status != c.status || a.Header.Get("Access-Control-Allow-Origin") != allowed || !strings.Contains(a.Header.Get("Vary"), "Origin") || a.Header.Get("Access-Control-Allow-Credentials") != "" {
				t.Errorf("%s, from %s: %v, %v", what, origin, a, a.Header)
			}
			if exposed := a.Header.Get("Access-Control-Expose-Headers"); !strings.Contains(exposed, "Retry-After") || !strings.Contains(exposed, "ETag") || !strings.Contains(exposed, "X-Request-ID") {
				t.Errorf("%s: a script may read %q", what, exposed)
			}
		}
	}
	if a := s.Read(path); a.Header.Get("Access-Control-Allow-Origin") != "" || a.Header.Get("Vary") != "Origin" {
		t.Errorf("without an origin: %v", a.Header)
	}
	request, err := http.NewRequest(http.MethodGet, s.URLs[0]+path+"/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+mina)
	request.Header.Set("Origin", shopOrigin)
	stream, err := fleet.StreamClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = stream.Body.Close() }()
	if stream.StatusCode != http.StatusOK || stream.Header.Get("Access-Control-Allow-Origin") != shopOrigin {
		t.Errorf("a stream: %s, %v", stream.Status, stream.Header)
	}
}

func TestAPreflightIsAnsweredBeforeAnythingIsAsked(t *testing.T) {
	t.Parallel()
	wants := map[string]string{"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization,content-type,idempotency-key,prefer"}
	closed := fleet.Shared(t, quiet)
	if a := across(closed, shopOrigin, "", http.MethodOptions, "/v1/wallets", wants, nil); a.Status != http.StatusMethodNotAllowed || a.Header.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("by default: %v, %v", a, a.Header)
	}
	s := closed.With("TRIPRIZE_API_CORS_ORIGINS=" + shopOrigin)
	a := across(s, shopOrigin, "", http.MethodOptions, "/v1/wallets", wants, nil)
	if a.Status != http.StatusNoContent || a.Header.Get("Access-Control-Allow-Origin") != shopOrigin || a.Header.Get("Access-Control-Max-Age") != "3600" {
		t.Errorf("%v, %v", a, a.Header)
	}
	for _, name := range []string{"Authorization", "Content-Type", "Idempotency-Key", "Prefer", "If-Match", "If-None-Match", "Last-Event-ID", "X-Request-ID", "traceparent"} {
		if !strings.Contains(a.Header.Get("Access-Control-Allow-Headers"), name) {
			t.Errorf("a script may not send %s", name)
		}
	}
	for _, method := range []string{"GET", "POST", "PATCH", "DELETE"} {
		if !strings.Contains(a.Header.Get("Access-Control-Allow-Methods"), method) {
			t.Errorf("a script may not %s", method)
		}
	}
	if a := across(s, otherOrigin, "", http.MethodOptions, "/v1/wallets", wants, nil); a.Header.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("from another origin: %v", a.Header)
	}
	if a := across(s, shopOrigin, "", http.MethodGet, "/asynqmon", nil, nil); a.Header.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("scripts read the pages of operators: %v", a.Header)
	}
}
