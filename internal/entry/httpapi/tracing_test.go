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
	s := fleet.Shared(t, quiet).With("TRIPRIZE_LOG_LEVEL=debug")
	ask := func(id string) (kept string) {
		t.Helper()
		a := s.Do(0, s.App, http.MethodGet, "/v1/nothing", map[string]string{"X-Request-ID": id}, nil)
		fleet.CheckProblem(t, a) // the problem has the id of the header
		return a.Header.Get("X-Request-ID")
	}
	const mine = "shop-1:order/4711.try_2=a+b@c~d"
	if kept := ask(mine); kept != mine {
		t.Errorf("%q became %q", mine, kept)
	}
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
	if a := buy("badly traced", "00-xyz-00f067aa0ba902b7-01"); a.Refusal() != "" {
		t.Errorf("with a header that is no trace: %v", a)
	}
	if n := strings.Count(string(s.Log("worker-1")), "trace_id="); n != 1 {
		t.Errorf("%d lines of the worker have a trace", n)
	}
}
