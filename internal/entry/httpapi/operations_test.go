package httpapi_test

import (
	"net/http"
	"strings"
	"testing"

	"triprize/devkit/devstack"
	"triprize/internal/testkit/fleet"
)

// browse opens a page as a browser does, with a key as the password.
func browse(s *fleet.System, method, path, key string) fleet.Answer {
	s.T.Helper()
	request, err := http.NewRequest(method, s.URLs[0]+path, nil)
	if err != nil {
		s.T.Fatal(err)
	}
	if key != "" {
		request.SetBasicAuth("anybody", key)
	}
	return s.Send(request)
}

func TestAsynqmonIsForOperatorsAndReadOnly(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, busy)
	s.Buy(fleet.Order{Campaign: s.Campaign(4), User: "a", Wait: true}) // so that there is a queue
	for name, c := range map[string]struct {
		key    string
		status int
	}{"nobody": {"", 401}, "a wrong key": {"tp_x", 401}, "an app": {s.App, 403}, "an operator": {s.Operator, 200}} {
		for _, path := range []string{"/asynqmon", "/asynqmon/", "/asynqmon/api/queues"} {
			if a := browse(s, http.MethodGet, path, c.key); a.Status != c.status {
				t.Errorf("%s opens %s: %v", name, path, a)
			}
		}
	}
	if a := browse(s, http.MethodGet, "/asynqmon", ""); !strings.HasPrefix(a.Header.Get("WWW-Authenticate"), "Basic ") {
		t.Errorf("a browser is not asked for the key: %v", a.Header)
	}
	if a := browse(s, http.MethodGet, "/asynqmon/", s.Operator); !fleet.Contains(a.Body, "<html") {
		t.Errorf("not a page: %s", a.Body)
	}
	queue := s.Settings.Redis.Namespace + "-purchase"
	if a := browse(s, http.MethodGet, "/asynqmon/api/queues", s.Operator); !fleet.Contains(a.Body, queue) {
		t.Errorf("the queue %s is not there: %s", queue, a.Body)
	}
	if a := browse(s, http.MethodPost, "/asynqmon/api/queues/"+queue+":pause", s.Operator); a.Status < 400 {
		t.Errorf("the dashboard paused a queue though it is read-only: %v", a)
	}
}

func TestHealthAndMetricsNeedNoKey(t *testing.T) {
	t.Parallel()
	address, err := devstack.FreeAddress()
	if err != nil {
		t.Fatal(err)
	}
	s := fleet.Start(t, fleet.Options{WorkerEnv: []string{"TRIPRIZE_WORKER_LISTEN=" + address}})
	id := s.Campaign(3)
	for i := range 8 {
		order := fleet.Order{Campaign: id, User: string(rune('a' + i)), Key: string(rune('a' + i%7)), Wait: true}
		if i < 2 {
			order.Layer = 1 // it has one position
		}
		s.Buy(order)
	}
	for path, want := range map[string]string{"/healthz": `"status":"ok"`, "/readyz": `"postgres":"ok"`} {
		if a := s.Do(0, "", http.MethodGet, path, nil, nil); a.Status != http.StatusOK || !fleet.Contains(a.Body, want) {
			t.Errorf("%s: %v %s", path, a, a.Body)
		}
	}
	if a := s.Do(0, "", http.MethodGet, "/metrics", nil, nil); a.Status != http.StatusNotFound { // they are for operators
		t.Errorf("clients get the metrics: %v", a)
	}
	api := s.Metrics(0)
	for _, want := range []string{"go_goroutines ", `triprize_http_request_duration_seconds_count{method="POST",route="/v1/campaigns/:campaign/purchases",status="200"}`,
		`triprize_jobs_accepted_total{kind="purchase"} 7`, `asynq_tasks_processed_total{queue="` + s.Settings.Redis.Namespace + `-purchase"}`,
		"triprize_postgres_connections ", "triprize_idempotency_lookups_total{outcome=", "triprize_tasks_undispatched_total 0"} {
		if !strings.Contains(api, want) {
			t.Errorf("the api's metrics lack %s", want)
		}
	}
	s.URLs = append(s.URLs, "http://"+address)
	worker := s.Do(1, "", http.MethodGet, "/metrics", nil, nil)
	for _, want := range []string{`triprize_jobs_finalized_total{kind="purchase",outcome="succeeded"} 6`, `triprize_jobs_finalized_total{kind="purchase",outcome="sold-out"} 1`,
		"triprize_positions_sold_total 6", `triprize_batch_jobs_count{kind="purchase"}`, `triprize_jobs_given_up_total{kind="purchase"} 0`} {
		if !fleet.Contains(worker.Body, want) {
			t.Errorf("the worker's metrics lack %s", want)
		}
	}
	if a := s.Do(1, "", http.MethodGet, "/readyz", nil, nil); a.Status != http.StatusOK {
		t.Errorf("the worker's readyz: %v", a)
	}
}
