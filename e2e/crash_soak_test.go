//go:build soak

package e2e

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/google/uuid"

	"triprize/internal/job"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"
)

func TestJobsThatSawTwoWorkersDieAreFinal(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Binaries: true, Workers: -1})
	sale := openSale(s, s.Campaign(20), 20, 1)
	sale.wg.Wait() // all are promised before anybody works on one
	for _, which := range []string{"the first worker", "the second worker"} {
		died(t, which, s.RunWorker("TRIPRIZE_TEST_FAILPOINTS=sale.commit=kill"))
	}
	s.RunWorker()
	if n := sale.succeeded(); n != 20 {
		t.Errorf("%d of 20 orders succeeded", n)
	}
}

// In the middle of one sale a worker is killed, and one is asked to end, which loses nothing; an api that is asked to end
// answers who waits there.
func TestEveryProcessFinishesWhatItHoldsAtShutdown(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Binaries: true, Workers: 3})
	id := s.Campaign(20)
	sale := queueUp(s, id, 20, 10)
	sale.underWay()
	s.Workers[1].Kill()
	if err := s.Workers[0].Stop(terminate, servers.Patience); err != nil { // an error when it had to be killed
		t.Error(err)
	}
	sale.succeeded()
	if err := s.Workers[2].Stop(terminate, servers.Patience); err != nil {
		t.Error(err)
	}
	waiting := make(chan fleet.Answer, 1)
	go func() { waiting <- s.Buy(fleet.Order{Campaign: id, User: "waits", Wait: true}) }()
	servers.Eventually(t, "the request is accepted", func() bool {
		return servers.Value[int](t, s.DB, `SELECT count(*) FROM jobs WHERE state = 'queued'`) == 1
	})
	if err := s.APIs[0].Stop(terminate, servers.Patience); err != nil {
		t.Error(err)
	}
	if a := <-waiting; a.Status != http.StatusAccepted || a.State != job.Queued || a.ID == uuid.Nil {
		t.Errorf("who waited at the shutdown got %v", a)
	}
	s.RunWorker()
	servers.Eventually(t, "and the job is done", func() bool { return s.Purchases(id) == 201 })
}

// deadly starts a system whose workers die whenever they work for the user "poison".
func deadly(t *testing.T, deliveries int) *fleet.System {
	t.Helper()
	return fleet.Start(t, fleet.Options{Binaries: true, Workers: 2, Restart: 200 * time.Millisecond, Env: []string{
		fmt.Sprint("TRIPRIZE_WORKER_MAX_DELIVERIES=", deliveries), "TRIPRIZE_WORKER_HEARTBEAT_INTERVAL=200ms", "TRIPRIZE_WORKER_HEARTBEAT_TTL=600ms",
		"TRIPRIZE_SWEEPS_LOST_JOBS_INTERVAL=300ms", "TRIPRIZE_SWEEPS_LOST_JOBS_BACKOFF=500ms",
		"TRIPRIZE_SWEEPS_LOST_JOBS_MAX_BACKOFF=2s",
	}, WorkerEnv: []string{"TRIPRIZE_TEST_FAILPOINTS=sale.commit@poison=kill"}})
}

func TestAJobThatKillsEveryWorkerIsGivenUp(t *testing.T) {
	t.Parallel()
	s := deadly(t, 3)
	a := s.Buy(fleet.Order{Campaign: s.Campaign(4), User: "poison"})
	servers.Eventually(t, "the job is given up", func() bool { return s.Job(a.ID).State.Final() })
	if a = s.Job(a.ID); a.State != job.Failed || a.Refusal() != "internal-error" || a.Attempts < 3 {
		t.Errorf("%v, %d attempts", a, a.Attempts)
	}
}

// The job is never given up here, so nobody can have waited for that.
func TestAJobThatKillsEveryWorkerHoldsUpNobody(t *testing.T) {
	t.Parallel()
	s := deadly(t, 100)
	id := s.Campaign(20)
	answers := s.Crowd(60, func(i int) fleet.Order {
		if i == 30 {
			return fleet.Order{Campaign: id, User: "poison"}
		}
		return fleet.Order{Campaign: id, User: fmt.Sprintf("buyer-%d", i)}
	})
	for i, a := range answers {
		if i == 30 {
			continue
		}
		if a = s.AwaitJob(0, a.ID); a.State != job.Succeeded {
			t.Errorf("buyer %d, who shared a batch with it: %v", i, a)
		}
	}
	if a := s.Job(answers[30].ID); a.State != job.Queued {
		t.Errorf("the job that kills: %v", a)
	}
}

func TestCancellationsOfAKilledWorkerAreFinalAndFreeOnce(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Binaries: true, Workers: -1})
	s.App = s.NewKey("test") // the purchases are of this client
	id := s.Campaign(4)
	for n, moment := range []string{"cancellation.commit", "cancellation.committed"} {
		kept := fixture.Buy(t, s.DB, id, "kept", 0, 1)
		var jobs []uuid.UUID
		doomed := s.RunWorker("TRIPRIZE_TEST_FAILPOINTS=" + moment + "=kill")
		for _, quantity := range []int{2, 1} {
			purchase := fixture.Buy(t, s.DB, id, "back", 0, quantity)
			a := s.Execute("/v1/purchases/"+purchase.String()+"/cancel", fleet.Fields{})
			if a.Status != http.StatusAccepted {
				t.Fatal(a)
			}
			jobs = append(jobs, a.ID)
		}
		died(t, "the worker at "+moment, doomed)
		fixture.Sound(t, s.DB) // nothing half
		alive := s.RunWorker()
		for _, id := range jobs {
			if a := s.AwaitJob(0, id); a.State != job.Succeeded {
				t.Errorf("%s: %v", moment, a)
			}
		}
		if sold := s.CampaignNow(id).Counts.Sold; sold != n+1 {
			t.Errorf("%s: %d are sold, and only %s and those before are", moment, sold, kept)
		}
		if err := alive.Stop(terminate, servers.Patience); err != nil {
			t.Error(err)
		}
	}
}

func TestDuringAnOutageOfPostgresRequestsAreToldToRetry(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Private: true})
	id := s.Campaign(4)
	if err := s.Stack.Postgres.Stop(); err != nil {
		t.Fatal(err)
	}
	order := fleet.Order{Campaign: id, User: "b", Key: "during", Wait: true}
	if a := s.Buy(order); a.Status != http.StatusServiceUnavailable || a.Refusal() != "unavailable" || a.Header.Get("Retry-After") == "" {
		t.Errorf("got %v, Retry-After %q", a, a.Header.Get("Retry-After"))
	}
	servers.Eventually(t, "the api is not ready", func() bool { // it looks once a second
		return s.Do(0, "", http.MethodGet, "/readyz", nil, nil).Status == http.StatusServiceUnavailable
	})
	if alive := s.Do(0, "", http.MethodGet, "/healthz", nil, nil); alive.Status != http.StatusOK {
		t.Errorf("healthz: %v", alive)
	}
	if err := s.Stack.Postgres.RestartAfter(context.Background(), 0); err != nil {
		t.Fatal(err)
	}
	servers.Eventually(t, "the same key goes through", func() bool { return s.Buy(order).State == job.Succeeded })
}

// Redis is away from before a purchase to after it, and later while somebody waits for a job that ends.
func TestDuringAnOutageOfRedisRequestsAreAcceptedAndDoneLater(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Private: true})
	id := s.Campaign(4)
	if err := s.Stack.Redis.Stop(); err != nil {
		t.Fatal(err)
	}
	order := func(i int) fleet.Order { return fleet.Order{Campaign: id, User: fmt.Sprint(i), Key: fmt.Sprint(i)} }
	answers := s.Crowd(8, order)
	for i, a := range answers {
		if a.Status != http.StatusAccepted || a.State != job.Queued {
			t.Fatalf("order %d: %v", i, a)
		}
	}
	if ready := s.Do(0, "", http.MethodGet, "/readyz", nil, nil); ready.Status != http.StatusOK {
		t.Errorf("readyz: %s", ready.Body)
	}
	waiting := make(chan fleet.Answer, 1)
	wait := func() { waiting <- s.Buy(fleet.Order{Campaign: id, User: "waits", Wait: true}) }
	go wait()
	if err := s.Stack.Redis.RestartAfter(context.Background(), time.Second); err != nil {
		t.Fatal(err)
	}
	for i, a := range answers {
		servers.Eventually(t, "the job is done", func() bool { return s.Job(a.ID).State == job.Succeeded })
		if again := s.Buy(order(i)); again.ID != a.ID {
			t.Errorf("the key now has another job: %v", again)
		}
	}
	if a := <-waiting; a.State != job.Succeeded {
		t.Errorf("who waited through the outage got %v", a)
	}

	s.StopAll("worker")
	go wait()
	servers.Eventually(t, "the job is accepted", func() bool {
		return servers.Value[int](t, s.DB, `SELECT count(*) FROM jobs WHERE state = 'queued'`) == 1
	})
	if err := s.Stack.Redis.Stop(); err != nil {
		t.Fatal(err)
	}
	fleet.FinalizeAll(t, s) // as by a worker that can no longer announce it
	if a := <-waiting; a.State != job.Succeeded {
		t.Errorf("who waits for a job that nobody announces got %v", a)
	}
	if err := s.Stack.Redis.RestartAfter(context.Background(), 0); err != nil {
		t.Fatal(err)
	}
}
