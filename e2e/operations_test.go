package e2e

import (
	"encoding/json"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"triprize/internal/platform/devstack"
	"triprize/internal/store/job"
	"triprize/internal/testkit/fixture"
)

// browse opens a page as a browser does, with a key as the password.
func (s *system) browse(method, path, key string) answer {
	s.t.Helper()
	request, err := http.NewRequest(method, s.urls[0]+path, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	if key != "" {
		request.SetBasicAuth("anybody", key)
	}
	return send(request)
}

func TestAsynqmonIsForOperatorsAndReadOnly(t *testing.T) {
	t.Parallel()
	s := start(t, options{})
	s.buy(order{campaign: s.campaign(4), user: "a", wait: 10}) // so that there is a queue
	for name, c := range map[string]struct {
		key    string
		status int
	}{"nobody": {"", 401}, "a wrong key": {"tp_x", 401}, "an app": {s.app, 403}, "an operator": {s.operator, 200}} {
		for _, path := range []string{"/asynqmon", "/asynqmon/", "/asynqmon/api/queues"} {
			if a := s.browse(http.MethodGet, path, c.key); a.status != c.status {
				t.Errorf("%s opens %s: %v", name, path, a)
			}
		}
	}
	if a := s.browse(http.MethodGet, "/asynqmon", ""); !strings.HasPrefix(a.header.Get("WWW-Authenticate"), "Basic ") {
		t.Errorf("a browser is not asked for the key: %v", a.header)
	}
	if a := s.browse(http.MethodGet, "/asynqmon/", s.operator); !contains(a.body, "<html") {
		t.Errorf("not a page: %s", a.body)
	}
	queue := s.settings.Redis.Namespace + "-purchase"
	if a := s.browse(http.MethodGet, "/asynqmon/api/queues", s.operator); !contains(a.body, queue) {
		t.Errorf("the queue %s is not there: %s", queue, a.body)
	}
	if a := s.browse(http.MethodPost, "/asynqmon/api/queues/"+queue+":pause", s.operator); a.status < 400 {
		t.Errorf("the dashboard paused a queue though it is read-only: %v", a)
	}
}

func TestHealthAndMetricsNeedNoKey(t *testing.T) {
	t.Parallel()
	address, err := devstack.FreeAddress()
	if err != nil {
		t.Fatal(err)
	}
	s := start(t, options{workerEnv: []string{"TRIPRIZE_WORKER_LISTEN=" + address}})
	id := s.campaign(3)
	for i := range 8 {
		s.buy(order{campaign: id, user: string(rune('a' + i)), key: string(rune('a' + i%7)), wait: 10})
	}
	for path, want := range map[string]string{"/healthz": `"status":"ok"`, "/readyz": `"postgres":"ok"`} {
		if a := s.do(0, "", http.MethodGet, path, nil, nil); a.status != http.StatusOK || !contains(a.body, want) {
			t.Errorf("%s: %v %s", path, a, a.body)
		}
	}
	api := s.do(0, "", http.MethodGet, "/metrics", nil, nil)
	for _, want := range []string{"go_goroutines ", `triprize_http_request_duration_seconds_count{method="POST",route="/v1/campaigns/:campaign/purchases",status="200"}`,
		`triprize_jobs_accepted_total{kind="purchase"} 7`, `asynq_tasks_processed_total{queue="` + s.settings.Redis.Namespace + `-purchase"}`,
		"triprize_postgres_connections ", "triprize_idempotency_lookups_total{outcome=", "triprize_outbox_undispatched_total 0"} {
		if !contains(api.body, want) {
			t.Errorf("the api's metrics lack %s", want)
		}
	}
	s.urls = append(s.urls, "http://"+address)
	worker := s.do(1, "", http.MethodGet, "/metrics", nil, nil)
	for _, want := range []string{`triprize_jobs_settled_total{kind="purchase",outcome="succeeded"} 6`, `triprize_jobs_settled_total{kind="purchase",outcome="sold-out"} 1`,
		"triprize_positions_sold_total 6", "triprize_purchase_batch_jobs_count", "triprize_jobs_given_up_total 0"} {
		if !contains(worker.body, want) {
			t.Errorf("the worker's metrics lack %s", want)
		}
	}
	if a := s.do(1, "", http.MethodGet, "/readyz", nil, nil); a.status != http.StatusOK {
		t.Errorf("the worker's readyz: %v", a)
	}
}

// sweepOnce runs scheduler --once and returns its reports and status.
func (s *system) sweepOnce(args []string, env ...string) (reports map[string]map[string]int, status int, stderr string) {
	s.t.Helper()
	cmd := s.Command("scheduler", append([]string{"--once"}, args...), env...)
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if exit, ok := err.(*exec.ExitError); ok { //nolint:errorlint // Output returns it bare
		status = exit.ExitCode()
	} else if err != nil {
		s.t.Fatal(err)
	}
	var document struct {
		Sweeps []struct {
			Sweep  string
			Counts map[string]int
			Error  string
		}
	}
	if len(out) > 0 {
		if err := json.Unmarshal(out, &document); err != nil {
			s.t.Fatalf("not JSON: %s", out)
		}
	}
	reports = make(map[string]map[string]int)
	for _, r := range document.Sweeps {
		reports[r.Sweep] = r.Counts
	}
	return reports, status, errs.String()
}

func TestTheSchedulerSweepsOnceForCron(t *testing.T) {
	t.Parallel()
	// A scheduler leads meanwhile, and does no harm; but it is not to find first what is looked for below.
	s := start(t, options{workers: -1, env: []string{"TRIPRIZE_SWEEPS_LOST_JOBS_INTERVAL=1h"}})
	id := s.campaign(4)
	fixture.Reserve(t, s.db, id, "late", 2, -time.Second)
	reports, status, _ := s.sweepOnce(nil)
	for _, name := range []string{"lost-jobs", "expired-holds", "expired-authorizations", "expired-reservations", "stale-locks", "stuck-draws", "old-records"} {
		if reports[name] == nil {
			t.Errorf("no report of %s: %v", name, reports)
		}
	}
	if status != 0 {
		t.Errorf("status %d", status)
	}
	if c := s.campaignNow(id); c.Counts.Reserved != 0 {
		t.Errorf("after the sweeps: %+v", c.Counts)
	}
	if reports, status, _ := s.sweepOnce([]string{"--sweep", "stale-locks"}); status != 0 || len(reports) != 1 || reports["stale-locks"] == nil {
		t.Errorf("one sweep: %v, status %d", reports, status)
	}
	if _, status, stderr := s.sweepOnce([]string{"--sweep", "dust"}); status != 1 || !strings.Contains(stderr, "lost-jobs") {
		t.Errorf("an unknown sweep: status %d, %s", status, stderr)
	}
	// Without Redis nobody can say what is lost; the other sweeps run all the same.
	s.buy(order{campaign: id, user: "a"})
	if _, err := s.db.Exec(t.Context(), `UPDATE outbox_messages SET seen_at = clock_timestamp() - interval '1 minute'`); err != nil {
		t.Fatal(err)
	}
	reports, status, _ = s.sweepOnce(nil, "TRIPRIZE_REDIS_URL=redis://127.0.0.1:1/0")
	if status != 1 || reports["old-records"] == nil || reports["lost-jobs"]["lost"] != 0 {
		t.Errorf("without Redis: %v, status %d", reports, status)
	}
	s.startWorker()
	eventually(t, 30*time.Second, "the job is done in the end", func() bool { return s.purchases(id) > 0 })
}

func TestEveryProcessFinishesWhatItHoldsAtShutdown(t *testing.T) {
	t.Parallel()
	s := start(t, options{workers: 2})
	id := s.campaign(20)
	run := s.openSale(id, 20, 10)
	eventually(t, 20*time.Second, "the sale is under way", func() bool { return s.campaignNow(id).Counts.Sold > 20 })
	begun := time.Now()
	if err := s.Workers[0].Stop(terminate, 30*time.Second); err != nil { // an error when it had to be killed
		t.Error(err)
	}
	if took := time.Since(begun); took > 10*time.Second {
		t.Errorf("the worker took %s to stop", took)
	}
	run.wg.Wait()
	// Nothing was lost, so nothing needs the 5 s after which lost jobs are looked for.
	eventually(t, 4*time.Second, "every job is final", run.final)

	waiting := make(chan answer, 1)
	s.stopWorkers()
	go func() { waiting <- s.buy(order{campaign: id, user: "waits", wait: 30}) }()
	eventually(t, 10*time.Second, "the request is accepted", func() bool {
		var n int
		_ = s.db.QueryRow(t.Context(), `SELECT count(*) FROM jobs WHERE state = 'queued'`).Scan(&n)
		return n == 1
	})
	if err := s.APIs[0].Stop(terminate, 30*time.Second); err != nil {
		t.Error(err)
	}
	if a := <-waiting; a.status != http.StatusAccepted || a.State != job.Queued || a.ID == uuid.Nil {
		t.Errorf("who waited at the shutdown got %v", a)
	}
	s.startWorker()
	eventually(t, 20*time.Second, "and the job is done", func() bool { return s.purchases(id) == 201 })
}

func (s *system) stopWorkers() {
	s.t.Helper()
	for _, w := range s.Workers {
		if err := w.Stop(terminate, 30*time.Second); err != nil {
			s.t.Error(err)
		}
	}
}
