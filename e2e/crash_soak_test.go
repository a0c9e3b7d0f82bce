//go:build soak

package e2e

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"triprize/internal/job"
	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"
)

func TestJobsThatSawTwoWorkersDieAreFinal(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Binaries: true, Workers: -1})
	id := s.Campaign(20)
	run := openSale(s, id, 20, 1)
	run.wg.Wait() // all are promised before anybody works on one
	for _, which := range []string{"first", "second"} {
		doomed := s.RunWorker("TRIPRIZE_TEST_FAILPOINTS=sale.commit=kill")
		servers.Eventually(t, "the "+which+" worker dies with the jobs", func() bool { return doomed.PID() == 0 })
	}
	s.RunWorker()
	servers.Eventually(t, "every job is final", run.final)
	if n := run.succeeded(); n != 20 {
		t.Errorf("%d of 20 orders succeeded", n)
	}
}

func TestAWorkerKilledFromOutsideInTheMiddleOfASale(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Binaries: true, Workers: 2})
	id := s.Campaign(20)
	run := queueUp(s, id, 20, 15)
	run.underWay()
	s.Workers[0].Kill()
	run.wg.Wait()
	servers.Eventually(t, "every job is final", run.final)
	run.expectSoldOut(210)
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
		user := fmt.Sprintf("buyer-%d", i)
		if i == 30 {
			user = "poison"
		}
		return fleet.Order{Campaign: id, User: user, Wait: i != 30}
	})
	for i, a := range answers {
		if i == 30 {
			continue
		}
		for a.Err == nil && a.Status == http.StatusAccepted { // the wait was over first
			a = s.Do(0, s.App, http.MethodGet, "/v1/jobs/"+a.ID.String(), map[string]string{"Prefer": fleet.UntilFinal}, nil)
		}
		if a.State != job.Succeeded {
			t.Errorf("buyer %d, who shared a batch with it: %v", i, a)
		}
	}
	if a := s.Job(answers[30].ID); a.State != job.Queued {
		t.Errorf("the job that kills: %v", a)
	}
}
