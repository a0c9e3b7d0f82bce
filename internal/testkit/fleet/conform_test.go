package fleet

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"triprize/internal/testkit/servers"
)

// answering is a server that always says the same.
type answering struct {
	status      int
	media, body string
}

// RoundTrip implements http.RoundTripper.
func (a answering) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: a.status, Header: http.Header{"Content-Type": {a.media}, "X-Request-Id": {"r"}}, Body: io.NopCloser(strings.NewReader(a.body))}, nil
}

func TestAnswersThatTheContractDoesNotPromiseAreBreaches(t *testing.T) {
	const list, problem = `{"sweeps":[]}`, `{"type":"/problems#forbidden","title":"t","status":403,"detail":"d","code":"forbidden","request_id":"r"}`
	for what, c := range map[string]struct {
		answer answering
		breach string // part of what is said; empty: none
	}{
		"a good answer":           {answering{200, "application/json", list}, ""},
		"a good refusal":          {answering{403, "application/problem+json", problem}, ""},
		"a field that misses":     {answering{200, "application/json", `{}`}, "missing propert"},
		"a field of a wrong type": {answering{200, "application/json", `{"sweeps":{}}`}, "want array"},
		"no JSON":                 {answering{200, "application/json", `{`}, "EOF"},
		"an unknown status":       {answering{418, "application/json", list}, "status"},
		"another media type":      {answering{200, "text/plain", list}, "text/plain"},
		"an unlisted code":        {answering{403, "application/problem+json", strings.ReplaceAll(problem, "forbidden", "sold-out")}, "sold-out"},
	} {
		checked := &conforming{next: c.answer, breaches: make(map[string][]string)}
		request, err := http.NewRequest(http.MethodGet, "http://api/v1/sweeps", nil)
		servers.NoError(t, err)
		response, err := checked.RoundTrip(request)
		servers.NoError(t, err)
		body, err := io.ReadAll(response.Body)
		if _ = response.Body.Close(); err != nil || string(body) != c.answer.body {
			t.Errorf("%s: the body that comes through is %q, %v", what, body, err)
		}
		found := strings.Join(checked.of([]string{"api"}), "\n")
		if (found == "") != (c.breach == "") || !strings.Contains(found, c.breach) {
			t.Errorf("%s: said %q, want %q", what, found, c.breach)
		}
	}
}
