package httpapi_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"
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
	tag := s.Do(0, mina, http.MethodGet, path, nil, nil).Header.Get("ETag") // that of an app is another: it sees metadata
	for what, c := range map[string]struct {
		credential, method, path string
		header                   map[string]string
		body                     any
		status                   int
	}{
		"a read":                      {mina, http.MethodGet, path, nil, nil, 200},
		"what has not changed":        {mina, http.MethodGet, path, map[string]string{"If-None-Match": tag}, nil, 304},
		"who is nobody":               {"", http.MethodGet, path, nil, nil, 401},
		"what is not there":           {mina, http.MethodGet, "/v1/nothing", nil, nil, 404},
		"what may not be done to it":  {mina, http.MethodDelete, path, nil, nil, 405},
		"what nobody needs a key for": {"", http.MethodGet, path + "/draw", nil, nil, 200},
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
	wantAnswer(t, "without an origin", s.Read(path), valued{"Access-Control-Allow-Origin", ""}, valued{"Vary", "Origin"})
	request, err := http.NewRequest(http.MethodGet, s.URLs[0]+path+"/events", nil)
	servers.NoError(t, err)
	request.Header.Set("Authorization", "Bearer "+mina)
	request.Header.Set("Origin", shopOrigin)
	stream, err := fleet.StreamClient.Do(request)
	servers.NoError(t, err)
	defer func() { _ = stream.Body.Close() }()
	if stream.StatusCode != http.StatusOK || stream.Header.Get("Access-Control-Allow-Origin") != shopOrigin {
		t.Errorf("a stream: %s, %v", stream.Status, stream.Header)
	}
}

// Only a token with a right signature is told what is wrong with it; a script can read that. The log
// and the metric have every reason.
func TestWhoHasASignedTokenIsToldWhyItIsRefused(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Workers: -1, Schedulers: -1, Env: append([]string{"TRIPRIZE_API_CORS_ORIGINS=" + shopOrigin}, fleet.Trusting.Env...)})
	path := "/v1/campaigns/" + s.Campaign(3).String()
	claim := func(name string, value any) string {
		return fleet.TokenFor(t, "mina", "", func(c jwt.MapClaims) { c[name] = value })
	}
	forged, _, _ := strings.Cut(claim("aud", "another"), ".")
	for reason, c := range map[string]struct{ token, told string }{
		"aud":       {claim("aud", "another"), "aud does not name this installation"},
		"iss":       {claim("iss", "https://another.example"), "iss is not the issuer that is trusted here"},
		"sub":       {claim("sub", ""), "sub must have 1 to 128 characters, no control characters"},
		"role":      {claim("role", "operator"), "the role must be user or public, or left out"},
		"lifetime":  {claim("exp", time.Now().Add(48*time.Hour).Unix()), "exp is too long after iat: tokens must not be valid for so long here"},
		"expired":   {claim("exp", time.Now().Add(-time.Hour).Unix()), "exp is over"},
		"signature": {strings.Join([]string{forged, strings.Split(claim("aud", "another"), ".")[1], strings.Repeat("A", 43)}, "."), ""},
		"malformed": {"a.b.c", ""},
	} {
		a := across(s, shopOrigin, c.token, http.MethodGet, path, nil, nil)
		want := `Bearer realm="Triprize"`
		if c.told != "" {
			want += `, error="invalid_token", error_description="` + c.told + `"`
		}
		if got := a.Header.Get("WWW-Authenticate"); a.Status != http.StatusUnauthorized || got != want || !strings.Contains(a.Header.Get("Access-Control-Expose-Headers"), "WWW-Authenticate") {
			t.Errorf("%s: %v, %s, want %s; exposed are %s", reason, a, got, want, a.Header.Get("Access-Control-Expose-Headers"))
		}
		wantEqual(t, fmt.Sprintf("%s: refusals", reason), s.Metric(0, `triprize_tokens_refused_total{reason="`+reason+`"}`), 1)
		servers.Eventually(t, "a line says "+reason, func() bool {
			return fleet.Contains(s.Log("api-1"), `msg="a token is refused" process=api reason=`+reason)
		})
	}
}

func TestAPreflightIsAnsweredBeforeAnythingIsAsked(t *testing.T) {
	t.Parallel()
	wants := map[string]string{"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization,content-type,idempotency-key,prefer"}
	closed := fleet.Shared(t, quiet)
	wantAnswer(t, "by default", across(closed, shopOrigin, "", http.MethodOptions, "/v1/wallets", wants, nil), 405, valued{"Access-Control-Allow-Origin", ""})
	s := closed.With("TRIPRIZE_API_CORS_ORIGINS=" + shopOrigin)
	a := across(s, shopOrigin, "", http.MethodOptions, "/v1/wallets", wants, nil)
	wantAnswer(t, "", a, 204, valued{"Access-Control-Allow-Origin", shopOrigin}, valued{"Access-Control-Max-Age", "3600"})
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
	wantAnswer(t, "from another origin", across(s, otherOrigin, "", http.MethodOptions, "/v1/wallets", wants, nil), valued{"Access-Control-Allow-Origin", ""})
	wantAnswer(t, "scripts read the pages of operators", across(s, shopOrigin, "", http.MethodGet, "/asynqmon", nil, nil), valued{"Access-Control-Allow-Origin", ""})
}
