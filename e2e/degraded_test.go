package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"triprize/devkit/devstack"
	"triprize/internal/platform/keyring"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"
	"triprize/sandbox/stripesim"
)

// awaitCauses waits until a process, the n-th of the URLs, tells that exactly these causes
// degrade the system: in /readyz, with the status 200, and in its gauges.
func awaitCauses(s *fleet.System, n int, causes ...string) {
	s.T.Helper()
	shown, status := "", `"status":"ok"`
	if len(causes) > 0 {
		shown, status = `"causes":["`+strings.Join(causes, `","`)+`"]`, `"status":"degraded"`
	}
	servers.Eventually(s.T, fmt.Sprint("the causes are ", causes), func() bool {
		a := s.Do(n, "", http.MethodGet, "/readyz", nil, nil)
		return a.Status == http.StatusOK && fleet.Contains(a.Body, shown) && fleet.Contains(a.Body, status) && !fleet.Contains(a.Body, `"unknown"`)
	})
	for _, cause := range []string{"draw_key_wrong", "draw_failing", "no_scheduler", "no_worker", "sales_stuck", "worker_frozen"} {
		want := 0.0
		if strings.Contains(shown, cause) {
			want = 1
		}
		s.AwaitMetric(n, `triprize_degraded{cause="`+cause+`"}`, want)
	}
}

// expectLogged expects a line of a process for each time that a cause has begun, so often at
// least, and one for each time that it has ended: all but those that still hold. A machine that
// is slow may let a process look frozen once more.
func expectLogged(s *fleet.System, process, cause string, begun, hold int) {
	s.T.Helper()
	log, of := string(s.Log(process)), " process="+process[:strings.Index(process, "-")]+" cause="+cause
	b, e := strings.Count(log, "msg=degraded"+of), strings.Count(log, `msg="no longer degraded"`+of)
	if b < begun || b-e != hold {
		s.T.Errorf("the log of %s says %d times that %s begins, and %d times that it ends; want %d at least, and %d that hold", process, b, cause, e, begun, hold)
	}
}

// A worker stands still; one with another draw key tells so, and the draw that it fails at shows everywhere, until the
// first goes on; then all have left.
func TestProcessesThatAreMissingDegradeTheSystem(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Binaries: true, Sandbox: &stripesim.Settings{}})
	awaitCauses(s, 0)
	if a := s.Do(0, "", http.MethodGet, "/readyz", nil, nil); !fleet.Contains(a.Body, `"livemode":false`) {
		t.Errorf("in test mode: %s", a.Body)
	}
	s.AwaitMetric(0, "triprize_payments_livemode", 0)
	if n := strings.Count(string(s.Log("api-1")), "test mode"); n != 1 {
		t.Errorf("the log says %d times that the provider is in test mode", n)
	}

	worker := s.Workers[0]
	if err := worker.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	s.Buy(fleet.Order{Campaign: s.Campaign(3), User: "mina"})
	servers.Exec(t, s.DB, `UPDATE jobs SET accepted_at = accepted_at - interval '10 seconds'`)
	awaitCauses(s, 0, "no_worker", "sales_stuck", "worker_frozen")
	for series, want := range map[string]float64{"triprize_workers_alive": 0, "triprize_workers_silent": 1, "triprize_schedulers_alive": 1, `triprize_jobs_queued{kind="purchase"}`: 1} {
		s.AwaitMetric(0, series, want)
	}
	if age := s.Metric(0, `triprize_jobs_queued_age_seconds{kind="purchase"}`); age <= 15 {
		t.Errorf("the oldest purchase waits for %g s", age)
	}

	address, err := devstack.FreeAddress()
	if err != nil {
		t.Fatal(err)
	}
	wrong := s.RunWorker("TRIPRIZE_DRAW_SECRET_KEY="+keyring.NewKey(), "TRIPRIZE_WORKER_LISTEN="+address)
	s.URLs = append(s.URLs, "http://"+address)
	id := s.Campaign(3)
	fixture.SellOut(t, s.DB, id)
	awaitCauses(s, 1, "draw_key_wrong", "draw_failing", "worker_frozen")
	awaitCauses(s, 0, "draw_failing", "worker_frozen")
	s.AwaitMetric(0, "triprize_campaigns_drawing", 1)
	servers.Eventually(t, "the age of the draw is seen", func() bool { return s.Metric(0, "triprize_campaigns_drawing_age_seconds") > 0 })
	if err := wrong.Stop(terminate, time.Minute); err != nil { // it says farewell
		t.Fatal(err)
	}
	if err := worker.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	s.AwaitDrawn(id)
	awaitCauses(s, 0)
	if err := worker.Stop(terminate, time.Minute); err != nil {
		t.Fatal(err)
	}
	if err := s.Schedulers[0].Stop(terminate, time.Minute); err != nil {
		t.Fatal(err)
	}
	awaitCauses(s, 0, "no_scheduler", "no_worker")
	expectLogged(s, "api-1", "worker_frozen", 1, 0)
	expectLogged(s, "api-1", "no_worker", 2, 1)
	expectLogged(s, "api-1", "sales_stuck", 1, 0)
	expectLogged(s, "api-1", "draw_failing", 1, 0)
	expectLogged(s, "api-1", "draw_key_wrong", 0, 0)
	expectLogged(s, "worker-2", "draw_key_wrong", 1, 1)
	if log := string(s.Log("api-1")); !strings.Contains(log, `msg="serving metrics" process=api address=127.0.0.1:`) {
		t.Errorf("the log of the api does not say where its metrics are:\n%s", log)
	}
	expectLogged(s, "api-1", "no_scheduler", 1, 1)

	refused := s.Command("worker", nil, "TRIPRIZE_PAYMENTS_ALLOW_TEST=false")
	if out, err := refused.CombinedOutput(); err == nil || refused.ProcessState.ExitCode() != 2 || !strings.Contains(string(out), "is a test key") {
		t.Errorf("a test key: %v, %s", err, out)
	}
}

// A Postgres that answers and does not write, as a standby or one whose disk is full, is no outage
// of a process: each is ready, and the cause says what fails. A schema that is too old is told from a
// Postgres that is away. Without Redis nobody knows which processes there are: nothing is said to be fine, or
// frozen; what waits is known from Postgres, and nothing is sold.
func TestAPostgresThatDoesNotWriteAndAnOldSchemaShow(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Private: true})
	id := s.Campaign(3)
	awaitCauses(s, 0)
	s.AwaitMetric(0, `triprize_degraded{cause="writes_failing"}`, 0)
	readOnly := func(value string) {
		t.Helper()
		servers.Exec(t, s.DB, `ALTER SYSTEM SET default_transaction_read_only = `+value)
		servers.Exec(t, s.DB, `SELECT pg_reload_conf()`)
	}
	order := fleet.Order{Campaign: id, User: "mina", Key: "a"}
	readOnly("on")
	servers.Eventually(t, "the cause holds", func() bool {
		s.Buy(order)
		a := s.Do(0, "", http.MethodGet, "/readyz", nil, nil)
		return a.Status == http.StatusOK && fleet.Contains(a.Body, `"causes":["writes_failing"]`)
	})
	readOnly("off")
	servers.Eventually(t, "the purchase is accepted", func() bool { return s.Buy(order).Status == http.StatusAccepted })
	s.AwaitMetric(0, `triprize_degraded{cause="writes_failing"}`, 0)

	newest := servers.Value[int64](t, s.DB, `DELETE FROM goose_db_version WHERE version_id = (SELECT max(version_id) FROM goose_db_version) RETURNING version_id`)
	servers.Eventually(t, "the schema is old", func() bool {
		a := s.Do(0, "", http.MethodGet, "/readyz", nil, nil)
		return a.Status == http.StatusServiceUnavailable && fleet.Contains(a.Body, `"postgres":"migrations"`)
	})
	servers.Exec(t, s.DB, `INSERT INTO goose_db_version (version_id, is_applied) VALUES ($1, true)`, newest)
	awaitCauses(s, 0)

	if err := s.Stack.Redis.Stop(); err != nil {
		t.Fatal(err)
	}
	servers.Eventually(t, "the processes are unknown", func() bool {
		a := s.Do(0, "", http.MethodGet, "/readyz", nil, nil)
		return a.Status == http.StatusOK && fleet.Contains(a.Body, `"degraded"`) && !fleet.Contains(a.Body, `"causes"`) &&
			fleet.Contains(a.Body, `"unknown":["no_scheduler","no_worker","worker_frozen"]`)
	})
	for _, series := range []string{`triprize_degraded{cause="worker_frozen"}`, "triprize_workers_alive", "triprize_redis_keys", `triprize_tasks_without_lease{kind="purchase"}`} {
		if value := s.Metric(0, series); value != -1 {
			t.Errorf("%s, which nobody knows, is %g", series, value)
		}
	}
	if a := s.Buy(fleet.Order{Campaign: id, User: "otto"}); a.Status != http.StatusAccepted {
		t.Errorf("a purchase: %v", a)
	}
	servers.Exec(t, s.DB, `UPDATE jobs SET accepted_at = accepted_at - interval '10 seconds'`)
	s.AwaitMetric(0, `triprize_degraded{cause="sales_stuck"}`, 1)
	if err := s.Stack.Redis.Start(); err != nil {
		t.Fatal(err)
	}
	awaitCauses(s, 0)
}
