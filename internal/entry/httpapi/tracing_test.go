package httpapi_test

import (
	"net/http"
	"strings"
	"testing"

	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"
)

func TestARequestIDThatIsSentIsKept(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, quiet).With()
	ask := func(id string) (kept string) {
		t.Helper()
		a := s.Do(0, s.App, http.MethodGet, "/v1/nothing", map[string]string{"X-Request-ID": id}, nil)
		fleet.CheckProblem(t, a) // the problem has the id of the header
		return a.Header.Get("X-Request-ID")
	}
	const mine = "shop-1:order/4711.try_2=a+b@c~d"
	wantEqual(t, "a request id", ask(mine), mine)
	if longest := strings.Repeat("x", 128); ask(longest) != longest {
		t.Error("one of 128 characters is not kept")
	}
	for _, bad := range []string{"", strings.Repeat("x", 129), "a b", "a\tb", `a"b`, "é", "a,b", "<a>"} {
		if kept := ask(bad); kept == bad || len(kept) != 36 {
			t.Errorf("%q became %q", bad, kept)
		}
	}
	servers.Eventually(t, "the log has the id", func() bool {
		log := s.Log("api-3") // the test's own
		return fleet.Contains(log, "request_id="+mine) || fleet.Contains(log, `request_id="`+mine+`"`)
	})
}

// requests are the lines of the log about requests with an id.
func requests(s *fleet.System, api, id string) (lines []string) {
	for line := range strings.Lines(string(s.Log(api))) {
		if strings.Contains(line, "request_id="+id+" ") && strings.Contains(line, "address=127.0.0.1") {
			lines = append(lines, line)
		}
	}
	return lines
}

// After a leak the log says what was done with a key, and by which request; the key itself and
// what was sent are not in it.
func TestTheLogSaysWhatAKeyDid(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, quiet).With()
	const api = "api-3" // the test's own
	path, _ := sells(s, nil)
	prefix := strings.Split(s.App, "_")[1]
	header := func(id string) map[string]string {
		return map[string]string{"Idempotency-Key": "k-" + id, "X-Request-ID": id}
	}
	order := fleet.Fields{"user_id": "mina", "selection": fleet.Fields{"quantity": 1}, "payment": fleet.Fields{"method": "external", "reference": "in-a-body"}}
	bought := s.Do(0, s.App, http.MethodPost, path+"/purchases?", header("first"), order)
	again := s.Do(0, s.App, http.MethodPost, path+"/purchases", header("second"), order)
	replayed := s.Do(0, s.App, http.MethodPost, path+"/purchases", map[string]string{"Idempotency-Key": "k-first", "X-Request-ID": "third"}, order)
	paused := s.Do(0, s.Operator, http.MethodPost, path+"/pause", header("paused"), nil)
	s.Do(0, s.App, http.MethodPost, path+"/pause", header("forbidden"), nil)
	s.Do(0, s.App, http.MethodGet, "/v1/jobs?limit=0", map[string]string{"X-Request-ID": "wrong"}, nil)
	for _, page := range []string{"/healthz", "/readyz", "/docs/"} {
		s.Do(0, "", http.MethodGet, page, map[string]string{"X-Request-ID": "page"}, nil)
	}
	for range 9 {
		s.Do(0, s.App, http.MethodGet, "/v1/campaigns", map[string]string{"X-Request-ID": "reads"}, nil)
		s.Do(0, s.App+"x", http.MethodGet, "/v1/jobs", map[string]string{"X-Request-ID": "stranger"}, nil)
		s.Do(0, "", http.MethodGet, "/v1/nothing", map[string]string{"X-Request-ID": "lost"}, nil)
	}
	if bought.Refusal() != "" || replayed.ID != bought.ID || again.ID == bought.ID || paused.Status != http.StatusOK {
		t.Fatal(bought, again, replayed, paused)
	}
	s.Do(0, s.App, http.MethodGet, "/v1/jobs", map[string]string{"X-Request-ID": "last"}, nil)
	servers.Eventually(t, "the last line", func() bool { return len(requests(s, api, "last")) > 0 })
	key := "client=" + s.Client("shop") + " key_prefix=" + prefix
	for id, want := range map[string][]string{
		"first":     {"level=INFO", "msg=request", "role=app", key, "operation=requestPurchase", "path=" + path + "/purchases ", "status=202", "job=" + bought.ID.String(), "took_ms="},
		"second":    {"status=202", "job=" + again.ID.String()},
		"third":     {"status=202", "job=" + bought.ID.String()},
		"paused":    {"role=operator", "operation=pauseCampaign", "status=200", "job="},
		"forbidden": {"role=app", key, "operation=pauseCampaign", "status=403", "problem=forbidden"},
		"wrong":     {key, "operation=listJobs", "path=/v1/jobs ", "status=400", "problem=invalid-request"},
		"page":      nil,
		"reads":     {key, "operation=listCampaigns", "status=200", "address="},
		"stranger":  {"status=401", "problem=unauthenticated"},
		"lost":      {"method=GET", "path=/v1/nothing", "status=404", "problem=not-found"},
	} {
		lines, count := requests(s, api, id), min(len(want), 1)
		if id == "stranger" || id == "lost" { // of these the first of a minute are written
			count = 9
		}
		if len(lines) != count {
			t.Errorf("%s: %d lines, want %d", id, len(lines), count)
			continue
		}
		for _, part := range want {
			if !strings.Contains(lines[0], " "+part) && !strings.HasPrefix(lines[0], part) {
				t.Errorf("%s: no %q in %s", id, part, lines[0])
			}
		}
	}
	for _, secret := range []string{s.App, s.Operator, "in-a-body", "limit=0", "k-first"} {
		if strings.Contains(string(s.Log(api)), secret) {
			t.Errorf("the log has %q", secret)
		}
	}
}

func TestATraceLeadsFromTheRequestToTheWorkersLog(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Env: []string{"TRIPRIZE_LOG_LEVEL=debug"}})
	path, _ := sells(s, nil)
	const trace = "4bf92f3577b34da6a3ce929d0e0e4736"
	buy := func(key, header string) fleet.Answer {
		return s.Execute(path+"/purchases", fleet.Fields{"user_id": "mina", "selection": fleet.Fields{"quantity": 1}, "payment": external},
			"Idempotency-Key", key, "Prefer", fleet.UntilFinal, "traceparent", header)
	}
	a := buy("traced", "00-"+trace+"-00f067aa0ba902b7-01")
	for _, process := range []string{"api-1", "worker-1"} {
		servers.Eventually(t, "the log of "+process+" has the trace", func() bool {
			for line := range strings.Lines(string(s.Log(process))) {
				if strings.Contains(line, "trace_id="+trace) && (process == "api-1" || strings.Contains(line, "job="+a.ID.String())) {
					return true
				}
			}
			return false
		})
	}
	wantAnswer(t, "with a header that is no trace", buy("badly traced", "00-xyz-00f067aa0ba902b7-01"), coded(""))
	wantEqual(t, "lines of the worker with a trace", strings.Count(string(s.Log("worker-1")), "trace_id="), 1)
}
