package e2e

import (
	"fmt"
	"net/http"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"

	"triprize/devkit/devstack"
	"triprize/internal/job"
	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"
)

// saleRun is a crowd that buys, and retries with the same key whenever it gets no
// answer, as clients of the API are told to.
type saleRun struct {
	s        *fleet.System
	campaign uuid.UUID

	mu       sync.Mutex
	promised map[string]uuid.UUID // key → job, for every 202
	refused  map[int]int          // other statuses
	turns    chan struct{}        // one for each order that may be sent
	wg       sync.WaitGroup
}

// openSale starts buyers who each send one order after the other.
func openSale(s *fleet.System, campaign uuid.UUID, buyers, orders int) *saleRun {
	run := queueUp(s, campaign, buyers, orders)
	run.let(buyers * orders)
	return run
}

// queueUp starts buyers who wait for their turns.
func queueUp(s *fleet.System, campaign uuid.UUID, buyers, orders int) *saleRun {
	run := &saleRun{s: s, campaign: campaign, promised: make(map[string]uuid.UUID), refused: make(map[int]int), turns: make(chan struct{}, buyers*orders)}
	for b := range buyers {
		run.wg.Go(func() {
			for i := range orders {
				<-run.turns
				run.order(fmt.Sprintf("buyer-%d-%d", b, i), b)
			}
		})
	}
	return run
}

// let lets n more orders be sent.
func (r *saleRun) let(n int) {
	for range n {
		r.turns <- struct{}{}
	}
}

// underWay lets orders be sent, and all others as soon as some have bought: what happens
// next happens in the middle of the sale.
func (r *saleRun) underWay() {
	r.s.T.Helper()
	r.let(cap(r.turns) / 4)
	servers.Eventually(r.s.T, "the sale is under way", func() bool { return r.s.CampaignNow(r.campaign).Counts.Sold > 5 })
	r.let(cap(r.turns) - cap(r.turns)/4)
}

// order sends one order until it is promised, or comes too late: once everything is sold, a key
// without a job gets none.
func (r *saleRun) order(user string, api int) {
	for try := 0; ; try++ {
		a := r.s.Buy(fleet.Order{Campaign: r.campaign, User: user, Key: user, API: api + try})
		r.mu.Lock()
		if a.Err == nil && a.Status == http.StatusAccepted {
			if earlier, again := r.promised[user]; again && earlier != a.ID {
				r.s.T.Errorf("key %s got the jobs %s and %s", user, earlier, a.ID)
			}
			r.promised[user] = a.ID
			r.mu.Unlock()
			return
		}
		r.refused[a.Status]++ // 0: no answer at all
		r.mu.Unlock()
		if a.Refusal() == "sold-out" {
			return
		}
		if a.Status == http.StatusServiceUnavailable && a.Header.Get("Retry-After") == "" {
			r.s.T.Error("503 without Retry-After")
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-r.s.T.Context().Done():
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
	var final int
	err := r.s.DB.QueryRow(r.s.T.Context(), `SELECT count(*) FROM jobs WHERE id = ANY($1) AND state IN ('succeeded', 'failed')`, ids).Scan(&final)
	return err == nil && final == len(ids)
}

// succeeded counts the promised jobs that sold something.
func (r *saleRun) succeeded() (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, id := range r.promised {
		j, err := job.Get(r.s.T.Context(), r.s.DB, id)
		if err != nil {
			r.s.T.Fatal(err)
		}
		if j.State == job.Succeeded {
			n++
		}
	}
	return n
}

// expectSoldOut checks the end of a sale of more orders than positions.
func (r *saleRun) expectSoldOut(positions int) {
	r.s.T.Helper()
	if n := r.succeeded(); n != positions {
		r.s.T.Errorf("%d orders succeeded for %d positions", n, positions)
	}
	r.s.AwaitDrawn(r.campaign)
	if n := r.s.Draws(); n != 1 {
		r.s.T.Errorf("%d draws", n)
	}
}

func TestJobsOfAKilledWorkerAreFinal(t *testing.T) {
	for _, moment := range []string{"sale.commit", "sale.committed"} {
		t.Run(moment, func(t *testing.T) {
			t.Parallel()
			s := fleet.Start(t, fleet.Options{Binaries: true, Workers: -1})
			id := s.Campaign(10)
			doomed := s.RunWorker("TRIPRIZE_TEST_FAILPOINTS=" + moment + "=kill")
			run := openSale(s, id, 10, 8)
			servers.Eventually(t, "the worker dies in its first batch", func() bool { return doomed.PID() == 0 })
			s.RunWorker()
			run.wg.Wait()
			servers.Eventually(t, "every job is final", run.final)
			run.expectSoldOut(55)
		})
	}
}

func TestAnAPIKilledBetweenCommitAndAnswer(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Binaries: true, APIs: 1})
	doomed := s.RunAPI("TRIPRIZE_TEST_FAILPOINTS=accept.committed=kill")
	id := s.Campaign(10)
	run := openSale(s, id, 10, 8)
	servers.Eventually(t, "the api dies", func() bool { return doomed.PID() == 0 })
	run.wg.Wait()
	servers.Eventually(t, "every job is final", run.final)
	if run.refused[0] == 0 {
		t.Error("no client lost its answer: the test does not test")
	}
	run.expectSoldOut(55)
}

func TestASchedulerKilledInTheMiddleOfASale(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Binaries: true, Schedulers: 2, Workers: 2})
	id := s.Campaign(10)
	run := queueUp(s, id, 10, 8)
	run.underWay()
	s.Schedulers[0].Kill()
	s.Workers[0].Kill()
	run.wg.Wait()
	// The other scheduler leads when the dead one's lock has run out (10 s).
	servers.Eventually(t, "every job is final", run.final)
	run.expectSoldOut(55)
}

func TestAWorkerStoppedInsideABatchHoldsUpNobodyAndWritesNothingLater(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Binaries: true, Workers: -1})
	id := s.Campaign(10)
	stopped := s.RunWorker("TRIPRIZE_TEST_FAILPOINTS=sale.commit=stop")
	run := openSale(s, id, 10, 8)
	servers.Eventually(t, "the worker stops inside its first batch", func() bool { return isStopped(stopped) })
	s.RunWorker()
	run.wg.Wait()
	servers.Eventually(t, "every job is final while the worker is stopped", run.final)
	if err := stopped.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	run.expectSoldOut(55)
	// What the woken worker does with its old batch is for the audit to see, once
	// it has taken part again.
	second := s.Campaign(4)
	if got := fleet.Count(s.Crowd(10, func(i int) fleet.Order { return fleet.Order{Campaign: second, User: fmt.Sprint(i), Wait: true} })); got["succeeded"] != 10 {
		t.Errorf("after the stop: %v", got)
	}
}

// isStopped tells whether a child is stopped by a signal, as ps sees it.
func isStopped(c *devstack.Child) bool {
	pid := c.PID()
	return pid != 0 && processState(pid) == "T"
}
