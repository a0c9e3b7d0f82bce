package e2e

import (
	"fmt"
	"net/http"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"

	"triprize/internal/platform/devstack"
	"triprize/internal/store/job"
)

// sale is a crowd that buys until it is told to stop, and retries with the same
// key whenever it gets no answer, as clients of the API are told to.
type saleRun struct {
	s        *system
	campaign uuid.UUID

	mu       sync.Mutex
	promised map[string]uuid.UUID // key → job, for every 202
	refused  map[int]int          // other statuses
	stop     chan struct{}
	wg       sync.WaitGroup
}

// openSale starts buyers who each send one order after the other.
func (s *system) openSale(campaign uuid.UUID, buyers, orders int) *saleRun {
	run := &saleRun{s: s, campaign: campaign, promised: make(map[string]uuid.UUID), refused: make(map[int]int), stop: make(chan struct{})}
	for b := range buyers {
		run.wg.Go(func() {
			for i := range orders {
				run.order(fmt.Sprintf("buyer-%d-%d", b, i), b)
			}
		})
	}
	return run
}

// order sends one order until it is promised.
func (r *saleRun) order(user string, api int) {
	for try := 0; ; try++ {
		a := r.s.buy(order{campaign: r.campaign, user: user, key: user, api: api + try})
		r.mu.Lock()
		if a.err == nil && a.status == http.StatusAccepted {
			if earlier, again := r.promised[user]; again && earlier != a.ID {
				r.s.t.Errorf("key %s got the jobs %s and %s", user, earlier, a.ID)
			}
			r.promised[user] = a.ID
			r.mu.Unlock()
			return
		}
		r.refused[a.status]++ // 0: no answer at all
		r.mu.Unlock()
		if a.status == http.StatusServiceUnavailable && a.header.Get("Retry-After") == "" {
			r.s.t.Error("503 without Retry-After")
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-r.s.t.Context().Done():
			return
		}
	}
}

// final tells whether every promised job is final.
func (r *saleRun) final() bool {
	r.mu.Lock()
	ids := make([]uuid.UUID, 0, len(r.promised))
	for _, id := range r.promised {
		ids = append(ids, id)
	}
	r.mu.Unlock()
	jobs, err := job.GetAll(r.s.t.Context(), r.s.db, ids)
	if err != nil || len(jobs) != len(ids) {
		return false
	}
	for _, j := range jobs {
		if !j.State.Final() {
			return false
		}
	}
	return true
}

// succeeded counts the promised jobs that sold something.
func (r *saleRun) succeeded() (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, id := range r.promised {
		j, err := job.Get(r.s.t.Context(), r.s.db, id)
		if err != nil {
			r.s.t.Fatal(err)
		}
		if j.State == job.Succeeded {
			n++
		}
	}
	return n
}

// expectSoldOut checks the end of a sale of more orders than positions.
func (r *saleRun) expectSoldOut(positions int) {
	r.s.t.Helper()
	if n := r.succeeded(); n != positions {
		r.s.t.Errorf("%d orders succeeded for %d positions", n, positions)
	}
	r.s.awaitDrawn(30*time.Second, r.campaign)
	if n := r.s.draws(); n != 1 {
		r.s.t.Errorf("%d draws", n)
	}
}

// recoveryBound is the promise: after kill -9 of a worker every job is final within this.
const recoveryBound = 15 * time.Second

func TestJobsOfAKilledWorkerAreFinalWithin15Seconds(t *testing.T) {
	for _, moment := range []string{"sale.commit", "sale.committed"} {
		t.Run(moment, func(t *testing.T) {
			t.Parallel()
			s := start(t, options{workers: -1})
			id := s.campaign(20)
			doomed := s.startWorker("TRIPRIZE_TEST_FAILPOINTS=" + moment + "=kill")
			run := s.openSale(id, 20, 15)
			eventually(t, 20*time.Second, "the worker dies in its first batch", func() bool { return doomed.PID() == 0 })
			died := time.Now()
			s.startWorker()
			run.wg.Wait()
			eventually(t, recoveryBound-time.Since(died), "every job is final", run.final)
			t.Logf("final %.1f s after the kill", time.Since(died).Seconds())
			run.expectSoldOut(210)
		})
	}
}

func TestJobsThatSawTwoWorkersDieAreFinalWithin15SecondsOfTheSecondDeath(t *testing.T) {
	t.Parallel()
	s := start(t, options{workers: -1})
	id := s.campaign(20)
	run := s.openSale(id, 20, 1)
	run.wg.Wait() // all are promised before anybody works on one
	var died time.Time
	for _, which := range []string{"first", "second"} {
		doomed := s.startWorker("TRIPRIZE_TEST_FAILPOINTS=sale.commit=kill")
		eventually(t, 40*time.Second, "the "+which+" worker dies with the jobs", func() bool { return doomed.PID() == 0 })
		died = time.Now()
	}
	s.startWorker()
	eventually(t, recoveryBound-time.Since(died), "every job is final", run.final)
	t.Logf("final %.1f s after the second kill", time.Since(died).Seconds())
	if n := run.succeeded(); n != 20 {
		t.Errorf("%d of 20 orders succeeded", n)
	}
}

func TestAWorkerKilledFromOutsideInTheMiddleOfASale(t *testing.T) {
	t.Parallel()
	s := start(t, options{workers: 2})
	id := s.campaign(20)
	run := s.openSale(id, 20, 15)
	eventually(t, 20*time.Second, "the sale is under way", func() bool { return s.campaignNow(id).Counts.Sold > 20 })
	s.Workers[0].Kill()
	died := time.Now()
	run.wg.Wait()
	eventually(t, recoveryBound-time.Since(died), "every job is final", run.final)
	run.expectSoldOut(210)
}

func TestAnAPIKilledBetweenCommitAndAnswer(t *testing.T) {
	t.Parallel()
	s := start(t, options{apis: 1})
	doomed := s.startAPI("TRIPRIZE_TEST_FAILPOINTS=accept.committed=kill")
	id := s.campaign(20)
	run := s.openSale(id, 20, 15)
	eventually(t, 20*time.Second, "the api dies", func() bool { return doomed.PID() == 0 })
	run.wg.Wait()
	eventually(t, 20*time.Second, "every job is final", run.final)
	if run.refused[0] == 0 {
		t.Error("no client lost its answer: the test does not test")
	}
	run.expectSoldOut(210)
}

func TestASchedulerKilledInTheMiddleOfASale(t *testing.T) {
	t.Parallel()
	s := start(t, options{schedulers: 2, workers: 2})
	id := s.campaign(20)
	run := s.openSale(id, 20, 15)
	s.Schedulers[0].Kill()
	s.Workers[0].Kill()
	run.wg.Wait()
	// The other scheduler leads when the dead one's lock has run out (10 s).
	eventually(t, 40*time.Second, "every job is final", run.final)
	run.expectSoldOut(210)
}

func TestAWorkerStoppedInsideABatchHoldsUpNobodyAndWritesNothingLater(t *testing.T) {
	t.Parallel()
	s := start(t, options{workers: -1})
	id := s.campaign(20)
	stopped := s.startWorker("TRIPRIZE_TEST_FAILPOINTS=sale.commit=stop")
	run := s.openSale(id, 20, 15)
	eventually(t, 20*time.Second, "the worker stops inside its first batch", func() bool { return isStopped(stopped) })
	since := time.Now()
	s.startWorker()
	run.wg.Wait()
	eventually(t, 20*time.Second, "every job is final while the worker is stopped", run.final)
	t.Logf("final %.1f s after the stop", time.Since(since).Seconds())
	time.Sleep(time.Until(since.Add(20 * time.Second))) // the stop lasts 20 s: that is the scenario
	if err := stopped.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	run.expectSoldOut(210)
	// What the woken worker does with its old batch is for the audit to see, once
	// it has taken part again.
	second := s.campaign(4)
	if got := tally(s.crowd(10, func(i int) order { return order{campaign: second, user: fmt.Sprint(i), wait: 20} })); got["succeeded"] != 10 {
		t.Errorf("after the stop: %v", got)
	}
}

func TestAJobThatKillsEveryWorkerIsGivenUpAndHoldsUpNobody(t *testing.T) {
	t.Parallel()
	s := start(t, options{workers: 2, restart: 200 * time.Millisecond, env: []string{
		"TRIPRIZE_WORKER_MAX_DELIVERIES=3", "TRIPRIZE_WORKER_HEARTBEAT_INTERVAL=200ms", "TRIPRIZE_WORKER_HEARTBEAT_TTL=600ms",
		"TRIPRIZE_IDEMPOTENCY_CLAIM_TTL=600ms", "TRIPRIZE_SWEEPS_LOST_JOBS_INTERVAL=300ms", "TRIPRIZE_SWEEPS_LOST_JOBS_BACKOFF=500ms",
		"TRIPRIZE_SWEEPS_LOST_JOBS_MAX_BACKOFF=2s",
	}, workerEnv: []string{"TRIPRIZE_TEST_FAILPOINTS=sale.commit@poison=kill"}})
	id := s.campaign(20)
	answers := s.crowd(60, func(i int) order {
		user := fmt.Sprintf("buyer-%d", i)
		if i == 30 {
			user = "poison"
		}
		return order{campaign: id, user: user, wait: 30}
	})
	for i, a := range answers {
		for a.err == nil && a.status == http.StatusAccepted { // the wait was over first
			a = s.do(0, s.app, http.MethodGet, "/v1/jobs/"+a.ID.String(), map[string]string{"Prefer": "wait=30"}, nil)
		}
		if i == 30 {
			if a.State != job.Failed || a.code() != "internal-error" || a.Attempts < 3 {
				t.Errorf("the poisonous job: %v, %d attempts", a, a.Attempts)
			}
		} else if a.State != job.Succeeded {
			t.Errorf("buyer %d, who shared a batch with it: %v", i, a)
		}
	}
	var later int
	err := s.db.QueryRow(t.Context(), `
		SELECT count(*) FROM jobs j JOIN jobs poison ON poison.user_id = 'poison' AND j.id <> poison.id
		WHERE j.finished_at > poison.finished_at`).Scan(&later)
	if err != nil || later > 0 {
		t.Errorf("%d jobs had to wait until the poisonous one was given up, %v", later, err)
	}
}

// isStopped tells whether a child is stopped by a signal, as ps sees it.
func isStopped(c *devstack.Child) bool {
	pid := c.PID()
	return pid != 0 && processState(pid) == "T"
}
