package httpapi_test

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"
)

// Nothing but the end of the connection ends these: no heartbeat comes, and no time
// is over.
func TestAClientThatIsGoneGivesItsPlaceBackAtOnce(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, quiet).With("TRIPRIZE_STREAMS_HEARTBEAT=5m", "TRIPRIZE_STREAMS_MAX_AGE=1h", "TRIPRIZE_API_MAX_WAIT=5m")
	id := s.Campaign(4)
	queued := s.Buy(fleet.Order{Campaign: id, User: "a"})
	ask := func(method, path, more string) string {
		return fmt.Sprintf("%s %s HTTP/1.1\r\nHost: api\r\nAuthorization: Bearer %s\r\n%s\r\n", method, path, s.App, more)
	}
	purchase := `{"user_id": "b", "selection": {"quantity": 1}, "payment": {"method": "external"}}`
	for name, c := range map[string]struct{ ask, metric string }{
		"a campaign's stream": {ask(http.MethodGet, fleet.CampaignEvents(id), ""), "triprize_streams_open"},
		"a job's stream":      {ask(http.MethodGet, fleet.JobEvents(queued.ID), ""), "triprize_streams_open"},
		"a wait for a job":    {ask(http.MethodGet, "/v1/jobs/"+queued.ID.String(), "Prefer: wait=300\r\n"), "triprize_jobs_waited_for"},
		"a wait of a purchase": {ask(http.MethodPost, "/v1/campaigns/"+id.String()+"/purchases",
			fmt.Sprintf("Prefer: wait=300\r\nIdempotency-Key: k\r\nContent-Type: application/json\r\nContent-Length: %d\r\n", len(purchase))) + purchase, "triprize_jobs_waited_for"},
	} {
		conn, began := dial(s), time.Now()
		if _, err := io.WriteString(conn, c.ask); err != nil {
			t.Fatal(err)
		}
		t.Log(name)
		s.AwaitMetric(0, c.metric, 1)
		_ = conn.Close()
		s.AwaitMetric(0, c.metric, 0)
		s.AwaitMetric(0, "triprize_http_requests_in_flight", 0)
		if took := time.Since(began); took > 5*time.Minute {
			t.Errorf("%s has ended by itself, after %s", name, took)
		}
	}
}

func TestAHeadMayHaveATokenOfTheLongestKind(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, quiet)
	head := "GET /v1/campaigns HTTP/1.1\r\nHost: api\r\nAuthorization: Bearer "
	for name, c := range map[string]struct {
		token  int
		status int
		code   string
	}{"as long as may be": {8 << 10, http.StatusUnauthorized, "unauthenticated"}, "with much beside it": {15 << 10, http.StatusUnauthorized, "unauthenticated"},
		"too much": {17 << 10, http.StatusRequestHeaderFieldsTooLarge, "headers-too-large"}} {
		answers := wire(s, name, head+strings.Repeat("x", c.token)+"\r\n\r\n")
		if len(answers) != 1 || answers[0].Status != c.status || answers[0].Refusal() != c.code {
			t.Errorf("%s: %v", name, answers)
			continue
		}
		fleet.CheckProblem(t, answers[0])
	}
}

func TestConnectionsAreBoundedInAllAndOfOneAddressIfAskedFor(t *testing.T) {
	t.Parallel()
	const held, bound = 150, 100
	for name, setting := range map[string]string{"address": "TRIPRIZE_API_MAX_CONNECTIONS_PER_ADDRESS", "all": "TRIPRIZE_API_MAX_CONNECTIONS"} {
		s := fleet.Shared(t, quiet).With(fmt.Sprint(setting, "=", bound), "TRIPRIZE_API_READ_TIMEOUT=10m")
		for range held {
			_ = dial(s)
		}
		var refused float64
		servers.Eventually(t, "what is over the bound is refused", func() bool {
			refused = s.Metric(0, `triprize_http_connections_refused_total{bound="`+name+`"}`)
			return refused >= held-bound
		})
		if n := s.Metric(0, "triprize_http_connections"); n > bound || refused > held-bound+1 { // one more may have been there, to ask whether the api is ready
			t.Errorf("%s: %v are open, %v of %d were refused", name, n, refused, held)
		}
	}
}

func TestPersonalAnswersAreKeptByNobody(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, quiet)
	job := s.Buy(fleet.Order{Campaign: s.Campaign(4), User: "a"})
	for name, a := range map[string]fleet.Answer{
		"a job":      s.Do(0, s.App, http.MethodGet, "/v1/jobs/"+job.ID.String(), nil, nil),
		"a purchase": job,
		"a refusal":  s.Do(0, s.App, http.MethodGet, "/v1/sweeps", nil, nil),
		"nobody":     s.Do(0, "", http.MethodGet, "/v1/campaigns", nil, nil),
		"nowhere":    s.Do(0, "", http.MethodGet, "/nothing", nil, nil),
		"a mistake":  wire(s, "two hosts", "GET /v1/campaigns HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n")[0],
		"no HTTP":    wire(s, "no HTTP", "GET /v1/campaigns\r\n\r\n")[0],
	} {
		if a.Header.Get("Cache-Control") != "no-store" || a.Header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: %d %v", name, a.Status, a.Header)
		}
	}
}

// What a page leads to does not learn where its reader comes from.
func TestNoPageTellsItsAddressToOthers(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, quiet)
	for _, path := range []string{"/", "/docs", "/docs/", "/verify", "/problems", "/asynqmon", "/asynqmon/queues/some"} {
		a := browse(s, path, s.Operator)
		if a.Status != http.StatusOK || !strings.HasPrefix(a.Header.Get("Content-Type"), "text/html") || a.Header.Get("Referrer-Policy") != "no-referrer" {
			t.Errorf("%s: %d %v", path, a.Status, a.Header)
		}
	}
}

func TestAsynqmonLoadsNothingFromElsewhereAndIsInNoFrame(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, quiet)
	for _, path := range []string{"/asynqmon", "/asynqmon/", "/asynqmon/queues/some"} {
		a := browse(s, path, s.Operator)
		page, policy := string(a.Body), a.Header.Get("Content-Security-Policy")
		if a.Header.Get("X-Frame-Options") != "DENY" || !strings.HasPrefix(policy, "default-src 'none';") || !strings.Contains(policy, "frame-ancestors 'none'") || strings.Contains(policy, "//") {
			t.Errorf("%s: %v", path, a.Header)
		}
		if strings.Contains(page, "//fonts") || regexp.MustCompile(`(?:src|href)="(?:https?:)?//`).MatchString(page) {
			t.Errorf("%s loads from elsewhere: %s", path, page)
		}
		scripts := regexp.MustCompile(`(?s)<script>(.*?)</script>`).FindAllStringSubmatch(page, -1)
		for _, script := range scripts {
			digest := sha256.Sum256([]byte(script[1]))
			if !strings.Contains(policy, "'sha256-"+base64.StdEncoding.EncodeToString(digest[:])+"'") {
				t.Errorf("%s: its policy does not let a browser run %s", path, script[1])
			}
		}
		files := regexp.MustCompile(`(?:src|href)="(/[^"]*)"`).FindAllStringSubmatch(page, -1)
		for _, file := range files {
			if got := browse(s, file[1], s.Operator); got.Status != http.StatusOK || len(got.Body) == 0 {
				t.Errorf("%s: %v", file[1], got)
			}
			wantAnswer(t, fmt.Sprintf("%s is for anybody", file[1]), browse(s, file[1], ""), 401)
		}
		if len(scripts) != 2 || len(files) < 4 {
			t.Errorf("%s has %d scripts and %d files", path, len(scripts), len(files))
		}
	}
	for _, key := range []string{"", "tp_x"} {
		if a := browse(s, "/asynqmon", key); a.Status != http.StatusUnauthorized || !strings.HasPrefix(a.Header.Get("WWW-Authenticate"), "Basic ") {
			t.Errorf("a browser is not asked for the key: %v", a.Header)
		}
	}
	wantAnswer(t, "an app", browse(s, "/asynqmon", s.App), 403)
	pause := "/asynqmon/api/queues/" + s.Settings.Redis.Namespace + "-purchase:pause"
	for site, status := range map[string]int{"same-origin": http.StatusMethodNotAllowed, "cross-site": http.StatusForbidden} { // it is read-only, and no form of another site gets there
		wantAnswer(t, "a pause from "+site, withAuthorization(s, http.MethodPost, pause, basic(s.Operator), map[string]string{"Sec-Fetch-Site": site}), status)
	}
}

// The metrics are for operators: they have an address of their own.
func TestHealthNeedsNoKey(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, quiet)
	wantAnswer(t, "it runs", s.Do(0, "", http.MethodGet, "/healthz", nil, nil), 200, `"status":"ok"`)
	wantAnswer(t, "it is ready", s.Ready(0), 200, `"postgres":"ok"`)
	refused(t, "the metrics", s.Do(0, "", http.MethodGet, "/metrics", nil, nil), 404, "not-found")
}

// browse opens a page as a browser does, with a key as the password.
func browse(s *fleet.System, path, key string) fleet.Answer {
	s.T.Helper()
	if key == "" {
		return s.Do(0, "", http.MethodGet, path, map[string]string{"Accept": "text/html"}, nil)
	}
	return withAuthorization(s, http.MethodGet, path, basic(key), map[string]string{"Accept": "text/html"})
}
