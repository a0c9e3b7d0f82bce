package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"

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
	servers.NoError(t, worker.Signal(syscall.SIGSTOP))
	s.Buy(fleet.Order{Campaign: s.Campaign(3), User: "mina"})
	servers.Exec(t, s.DB, `UPDATE jobs SET accepted_at = accepted_at - interval '10 seconds'`)
	awaitCauses(s, 0, "no_worker", "sales_stuck", "worker_frozen")
	for series, want := range map[string]float64{"triprize_workers_alive": 0, "triprize_workers_stale": 1, "triprize_schedulers_alive": 1, `triprize_jobs_queued{kind="purchase"}`: 1} {
		s.AwaitMetric(0, series, want)
	}
	if age := s.Metric(0, `triprize_jobs_queued_age_seconds{kind="purchase"}`); age <= 15 {
		t.Errorf("the oldest purchase waits for %g s", age)
	}

	address, err := devstack.FreeAddress()
	servers.NoError(t, err)
	wrong := s.RunWorker("TRIPRIZE_DRAW_SECRET_KEY="+keyring.NewKey(), "TRIPRIZE_WORKER_LISTEN="+address)
	s.URLs = append(s.URLs, "http://"+address)
	id := s.Campaign(3)
	fixture.SellOut(t, s.DB, id)
	awaitCauses(s, 1, "draw_key_wrong", "draw_failing", "worker_frozen")
	awaitCauses(s, 0, "draw_failing", "worker_frozen")
	s.AwaitMetric(0, "triprize_campaigns_drawing", 1)
	servers.Eventually(t, "the age of the draw is seen", func() bool { return s.Metric(0, "triprize_campaigns_drawing_age_seconds") > 0 })
	servers.NoError(t, wrong.Stop(terminate, servers.Patience)) // it says farewell
	servers.NoError(t, worker.Signal(syscall.SIGCONT))
	s.AwaitDrawn(id)
	awaitCauses(s, 0)
	servers.NoError(t, worker.Stop(terminate, servers.Patience))
	servers.NoError(t, s.Schedulers[0].Stop(terminate, servers.Patience))
	awaitCauses(s, 0, "no_scheduler", "no_worker")
	if log := s.Log("api-1"); !fleet.Contains(log, `msg="no longer degraded" process=api cause=worker_frozen`) || !fleet.Contains(log, `msg="serving metrics" process=api address=127.0.0.1:`) {
		t.Errorf("the log of the api does not say what has degraded it, or where its metrics are:\n%s", log)
	}
}

// readOnly has Postgres answer and not write, or write again.
func readOnly(s *fleet.System, value string) {
	s.T.Helper()
	servers.Exec(s.T, s.DB, `ALTER SYSTEM SET default_transaction_read_only = `+value)
	servers.Exec(s.T, s.DB, `SELECT pg_reload_conf()`)
}

// A Postgres that answers and does not write, as a standby or one whose disk is full, is no outage
// of a process: each is ready, and the cause says what fails. Without Redis nobody knows which processes there are: nothing is said to be fine, or
// frozen; what waits is known from Postgres, and nothing is sold.
func TestAPostgresThatDoesNotWriteAndARedisThatIsAwayShow(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Private: true})
	id := s.Campaign(3)
	awaitCauses(s, 0)
	s.AwaitMetric(0, `triprize_degraded{cause="writes_failing"}`, 0)
	order := fleet.Order{Campaign: id, User: "mina", Key: "a", Wait: true}
	readOnly(s, "on")
	servers.Eventually(t, "the cause holds", func() bool {
		s.Buy(order)
		a := s.Do(0, "", http.MethodGet, "/readyz", nil, nil)
		return a.Status == http.StatusOK && (fleet.Contains(a.Body, `"causes":["writes_failing"]`) ||
			fleet.Contains(a.Body, `"causes":["sales_stuck","writes_failing"]`)) // an order may have been accepted before the session knew of it
	})
	readOnly(s, "off")
	servers.Eventually(t, "the purchase is done", func() bool { return s.Buy(order).State == "succeeded" }) // it would be stuck without Redis
	s.AwaitMetric(0, `triprize_degraded{cause="writes_failing"}`, 0)

	servers.NoError(t, s.Stack.Redis.Stop())
	servers.Eventually(t, "the processes are unknown", func() bool {
		a := s.Do(0, "", http.MethodGet, "/readyz", nil, nil)
		return a.Status == http.StatusOK && fleet.Contains(a.Body, `"degraded"`) && !fleet.Contains(a.Body, `"causes"`) &&
			fleet.Contains(a.Body, `"unknown":["no_scheduler","no_worker","worker_frozen"]`)
	})
	for _, series := range []string{`triprize_degraded{cause="worker_frozen"}`, "triprize_workers_alive", "triprize_redis_keys", `triprize_tasks_without_lease{kind="purchase"}`} {
		s.AwaitMetric(0, series, -1) // nobody knows it
	}
	fleet.Want(t, http.StatusAccepted, s.Buy(fleet.Order{Campaign: id, User: "otto"}))
	servers.Exec(t, s.DB, `UPDATE jobs SET accepted_at = accepted_at - interval '10 seconds'`)
	s.AwaitMetric(0, `triprize_degraded{cause="sales_stuck"}`, 1)
	servers.NoError(t, s.Stack.Redis.Start())
	awaitCauses(s, 0)
}
