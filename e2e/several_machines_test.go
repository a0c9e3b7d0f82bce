package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"triprize/internal/job"
	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"
)

// Its connections to Postgres are half open; Redis it reaches. Batches hang in them for as long as the cut lasts.
func TestAWorkerThatIsCutFromPostgresLeavesItsTasksToOthers(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Workers: -1, Env: []string{"TRIPRIZE_SWEEPS_LOST_JOBS_BACKOFF=1h"}}) // its own release is what others need
	tap := fleet.NewTap(t, s.Settings.Postgres.URL)
	s.RunWorker("TRIPRIZE_POSTGRES_URL=" + tap.URL)
	id := s.Campaign(10)
	first := s.Buy(fleet.Order{Campaign: id, User: "first"})
	s.AwaitJob(0, first.ID)
	heal := tap.Cut(t)
	var bought []fleet.Answer
	for i := range 20 {
		bought = append(bought, s.Buy(fleet.Order{Campaign: id, User: fmt.Sprint(i)}))
	}
	s.RunWorker() // the other one has taken these, or some of them on a slow machine
	for _, a := range bought {
		if done := s.AwaitJob(0, a.ID); done.State != job.Succeeded {
			t.Errorf("%v: %s", done, done.Body)
		}
	}
	if n := servers.Value[int](t, s.DB, `SELECT count(*) FROM jobs WHERE attempts <> 1`); n != 0 { // the one that was final
		t.Errorf("of %d jobs the release was counted", n)
	}
	heal()
	for _, line := range []string{"taking no tasks", "releasing tasks for other workers", "postgres answers again: taking tasks"} {
		servers.Eventually(t, line, func() bool { return fleet.Contains(s.Log("worker-1"), line) })
	}
}

// It reaches Redis, where it would renew the lock for ever.
func TestASchedulerThatIsCutFromPostgresLetsAnotherLead(t *testing.T) {
	t.Parallel()
	for _, at := range []string{"INSERT INTO audit_checks", "UPDATE audit_walks SET after"} { // what is stored in any case
		t.Run(at, func(t *testing.T) { anotherLeads(t, at) })
	}
}

// anotherLeads cuts a leading scheduler from Postgres when it runs a statement.
func anotherLeads(t *testing.T, at string) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Workers: -1, Schedulers: -1})
	tap := fleet.NewTap(t, s.Settings.Postgres.URL)
	heal := tap.CutAt(t, at)
	s.RunScheduler("TRIPRIZE_POSTGRES_URL=" + tap.URL)
	servers.Eventually(t, "it leads", func() bool { return fleet.Contains(s.Log("scheduler-1"), "running the sweeps") })
	s.RunScheduler()
	servers.Eventually(t, "another leads", func() bool { return fleet.Contains(s.Log("scheduler-2"), "running the sweeps") })
	servers.Eventually(t, "it leads no more", func() bool { // on a slow machine it has lost the lock before, and had it again
		log := s.Log("scheduler-1")
		return bytes.LastIndex(log, []byte("another scheduler may lead")) > bytes.LastIndex(log, []byte("running the sweeps"))
	})
	heal()
}

// The balancer learns that the api is about to end while the api still serves; after the delay it ends by itself.
func TestAnAPIThatDrainsIsNotReadyAndServesRequests(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Binaries: true, Workers: -1, Schedulers: -1})
	draining, ending := s.RunAPI("TRIPRIZE_API_DRAIN_DELAY=5m"), s.RunAPI("TRIPRIZE_API_DRAIN_DELAY=100ms")
	id := s.Campaign(3)
	await := func(what string, exited <-chan struct{}) {
		t.Helper()
		select {
		case <-exited:
		case <-time.After(servers.Patience):
			t.Fatalf("%s does not end", what)
		}
	}
	exited := ending.Exited()
	servers.NoError(t, errors.Join(draining.Signal(terminate), ending.Signal(terminate)))
	servers.Eventually(t, "it is not ready", func() bool {
		a := s.Do(1, "", http.MethodGet, "/readyz", nil, nil)
		return a.Status == http.StatusServiceUnavailable && fleet.Contains(a.Body, `"status":"unavailable"`)
	})
	if s.Metrics(1) == "" { // a scraper sees the drain, and a balancer may ask there
		t.Error("while it drains it shows no metrics")
	}
	if a := s.Buy(fleet.Order{Campaign: id, User: "mina", API: 1}); a.Status != http.StatusAccepted {
		t.Errorf("while it drains: %v %s", a, a.Body)
	}
	await("it", exited)
	if log := s.Log("api-3"); ending.Killed() || !fleet.Contains(log, "draining: not ready") || !fleet.Contains(log, "msg=stopped") {
		t.Errorf("it did not end by itself after its delay:\n%s", log)
	}
	exited = draining.Exited()
	servers.NoError(t, draining.Signal(terminate)) // a second signal ends it at once
	await("after a second signal it", exited)
}
