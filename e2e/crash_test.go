package e2e

import (
	"fmt"
	"net/http"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/devkit/devstack"
	"triprize/internal/campaign"
	"triprize/internal/domain/uuidv7"
	"triprize/internal/job"
	"triprize/internal/platform/postgres"
	"triprize/internal/platform/queue"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"

	"triprize.example/draw/beacon"
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

// succeeded waits until every promised job is final, and counts those that sold something.
func (r *saleRun) succeeded() (n int) {
	r.s.T.Helper()
	r.wg.Wait()
	ids := make([]uuid.UUID, 0, len(r.promised))
	for _, id := range r.promised {
		ids = append(ids, id)
	}
	var final int
	servers.Eventually(r.s.T, "every job is final", func() bool {
		err := r.s.DB.QueryRow(r.s.T.Context(), `
			SELECT count(*) FILTER (WHERE state IN ('succeeded', 'failed')), count(*) FILTER (WHERE state = 'succeeded') FROM jobs WHERE id = ANY($1)`, ids).Scan(&final, &n)
		return err == nil && final == len(ids)
	})
	return n
}

// wantSoldOut waits for the end of a sale of more orders than positions, which is drawn once.
func (r *saleRun) wantSoldOut(positions int) {
	r.s.T.Helper()
	if n := r.succeeded(); n != positions {
		r.s.T.Errorf("%d orders succeeded for %d positions", n, positions)
	}
	r.s.AwaitDrawn(r.campaign)
	if n := r.s.Draws(); n != 1 {
		r.s.T.Errorf("%d draws", n)
	}
}

// died waits until a process has died.
func died(t *testing.T, what string, c *devstack.Child) {
	t.Helper()
	servers.Eventually(t, what+" dies", func() bool { return c.PID() == 0 })
}

// isStopped tells whether a child is stopped by a signal, as ps sees it.
func isStopped(c *devstack.Child) bool {
	pid := c.PID()
	return pid != 0 && processState(pid) == "T"
}

// In one sale: workers die before and after the commit of a batch, an api between its commit and its answer, and
// the scheduler that leads.
func TestJobsOfAKilledWorkerAreFinal(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Binaries: true, Workers: -1, Schedulers: 2})
	api := s.RunAPI("TRIPRIZE_TEST_FAILPOINTS=accept.committed=kill")
	sale := openSale(s, s.Campaign(10), 10, 8)
	died(t, "the api", api)
	for _, moment := range []string{"sale.commit", "sale.committed"} {
		died(t, "the worker at "+moment, s.RunWorker("TRIPRIZE_TEST_FAILPOINTS="+moment+"=kill"))
	}
	s.Schedulers[0].Kill() // the other one leads when its lock has run out
	s.RunWorker()
	sale.wantSoldOut(55)
	if sale.refused[0] == 0 {
		t.Error("no client lost its answer: the test does not test")
	}
}

func TestAWorkerStoppedInsideABatchHoldsUpNobodyAndWritesNothingLater(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Binaries: true, Workers: -1})
	worker := s.RunWorker("TRIPRIZE_TEST_FAILPOINTS=sale.commit=stop", "TRIPRIZE_POSTGRES_IDLE_IN_TRANSACTION_TIMEOUT=5s")
	sale := openSale(s, s.Campaign(10), 10, 8)
	servers.Eventually(t, "the process stops", func() bool { return isStopped(worker) })
	s.RunWorker()
	sale.succeeded() // while the worker is stopped
	servers.NoError(t, worker.Signal(syscall.SIGCONT))
	sale.wantSoldOut(55)
	// What the woken worker does with its old batch is for the audit to see, once
	// it has taken part again.
	second := s.Campaign(4)
	if got := fleet.Count(s.Crowd(10, func(i int) fleet.Order { return fleet.Order{Campaign: second, User: fmt.Sprint(i), Wait: true} })); got["succeeded"] != 10 {
		t.Errorf("after the stop: %v", got)
	}
}

func TestRedisEmptiedInTheMiddleOfASale(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Private: true, Workers: 2})
	id := s.Campaign(10)
	sale := queueUp(s, id, 10, 8)
	sale.let(10)
	for _, sold := range []int{5, 15, 30} {
		servers.Eventually(t, "the sale goes on", func() bool { return s.CampaignNow(id).Counts.Sold > sold })
		sale.let(20)
		servers.NoError(t, s.Redis.FlushAll(t.Context()).Err())
	}
	sale.let(10)
	sale.wantSoldOut(55)
}

// The scenarios of the seed documents, over HTTP, with real processes.

// seeded are the systems of these scenarios, which all of them share.
var seeded = fleet.Options{APIs: 2, Workers: 2}

func TestTwoBuyersTwoLastPositionsOneDraw(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, seeded)
	id := s.Campaign(4) // 10 positions
	fixture.Sell(t, s.DB, id, 8)
	answers := s.Crowd(2, func(i int) fleet.Order {
		return fleet.Order{Campaign: id, User: fmt.Sprintf("last-%d", i), Wait: true}
	})
	if got := fleet.Count(answers); got["succeeded"] != 2 {
		t.Fatalf("both should succeed: %v", got)
	}
	s.AwaitDrawn(id)
	expectRecordsOnce(s, id)
}

func TestEightOfTenSoldIsNotDrawn(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, seeded)
	id := s.Campaign(4)
	fixture.Sell(t, s.DB, id, 8)
	a := s.Do(0, s.Operator, http.MethodPost, "/v1/campaigns/"+id.String()+"/draw", map[string]string{"Idempotency-Key": "try", "Prefer": fleet.UntilFinal}, nil)
	if a.Status != http.StatusOK || a.State != "failed" || a.Refusal() != "not-sold-out" {
		t.Fatalf("got %v", a)
	}
	if c := s.CampaignNow(id); c.State != campaign.Active || c.Counts.Sold != 8 || c.DrawStartedAt != nil {
		t.Errorf("the refused draw changed the campaign: %+v", c)
	}
}

func TestPurchaseLimitHoldsInParallel(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, seeded)
	draft := fixture.Draft(20)
	limit := 3
	draft.PurchaseLimit = &limit
	id := fixture.Campaign(t, s.DB, draft)
	answers := s.Crowd(50, func(i int) fleet.Order {
		return fleet.Order{Campaign: id, User: "one user", Quantity: 1 + i%2, Wait: true, API: i}
	})
	bought := 0
	for _, a := range answers {
		switch {
		case a.State == "succeeded":
			bought += len(a.Result.Positions)
		case a.Refusal() != "purchase-limit-exceeded":
			t.Errorf("got %v", a)
		}
	}
	if bought > 3 || bought < 2 {
		t.Errorf("the user has %d positions", bought)
	}
}

// expectRecordsOnce expects one freeze and one draw of each campaign, and one result in
// all of its jobs.
func expectRecordsOnce(s *fleet.System, ids ...uuid.UUID) {
	s.T.Helper()
	for _, id := range ids {
		var freezes, draws, results, open int
		var problems string
		err := s.DB.QueryRow(s.T.Context(), `
			SELECT (SELECT count(*) FROM freezes WHERE campaign_id = $1), (SELECT count(*) FROM draws WHERE campaign_id = $1),
			       count(DISTINCT result::text) FILTER (WHERE state = 'succeeded'), count(*) FILTER (WHERE state <> 'succeeded'), coalesce(string_agg(problem::text, ' '), '')
			FROM jobs WHERE campaign_id = $1 AND kind = 'draw'`, id).Scan(&freezes, &draws, &results, &open, &problems)
		if err != nil || freezes != 1 || draws != 1 || results != 1 || open != 0 {
			s.T.Errorf("campaign %s: %d freezes, %d draws, %d results, %d jobs that have not succeeded, %s, %v", id, freezes, draws, results, open, problems, err)
		}
	}
}

func TestFiftyTriggersOfAllKindsAtOnceMakeOneDraw(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Workers: 2, Schedulers: 2, Beacon: 2, Env: []string{"TRIPRIZE_SWEEPS_STUCK_DRAWS_AFTER=1s"}})
	client := queue.NewClient(s.Redis, s.Settings.Redis.Namespace)
	ids := []uuid.UUID{drawable(s, false), drawable(s, true)}
	var all sync.WaitGroup
	for _, id := range ids {
		first, insist := fixture.SellOut(t, s.DB, id), map[string]string{"Idempotency-Key": id.String()}
		enqueue := func(messages ...job.Message) {
			for _, m := range messages {
				if err := client.Enqueue(t.Context(), m.Task()); err != nil {
					t.Error(err)
				}
			}
		}
		for i := range 10 {
			all.Go(func() { fleet.Want(t, http.StatusAccepted, s.Post("/v1/campaigns/"+id.String()+"/draw", nil)) }) // an operator
			all.Go(func() { s.Do(0, s.Operator, http.MethodPost, "/v1/campaigns/"+id.String()+"/draw", insist, nil) })
			all.Go(func() { s.Post("/v1/sweeps/"+[]string{"stuck-draws", "stale-locks", "lost-jobs"}[i%3], nil) })
			all.Go(func() { // a further job of the system
				var made []job.Message
				if err := postgres.InTx(t.Context(), s.DB, func(tx pgx.Tx) (err error) {
					made, err = job.Insert(t.Context(), tx, job.DrawRequest(id, job.BySellOut, "/"+uuid.NewString(), time.Hour, job.Origin{}))
					return err
				}); err != nil {
					t.Error(err)
				}
				enqueue(made...)
			})
			all.Go(func() { // the first again, with the number of its first delivery: more of other deliveries than worker.max_deliveries would give it up
				enqueue(job.Message{ID: uuidv7.New(), Kind: job.KindDraw, Delivery: 1, Jobs: []job.Ref{first}})
			})
		}
	}
	all.Wait()
	s.AwaitDrawn(ids...)
	servers.Eventually(t, "every draw job is final", func() bool {
		return servers.Value[int](t, s.DB, `SELECT count(*) FROM jobs WHERE kind = 'draw' AND finished_at IS NULL`) == 0
	})
	expectRecordsOnce(s, ids...)
}

// drawable publishes a small campaign, with a beacon or without.
func drawable(s *fleet.System, withBeacon bool) uuid.UUID {
	s.T.Helper()
	draft := fixture.Draft(3)
	var chain *beacon.Chain
	if withBeacon {
		draft.Policies.Beacon, chain = true, &s.Beacon.Chain().Chain
	}
	return fixture.CampaignOn(s.T, s.DB, draft, chain)
}

// underWay lets orders be sent, and all others as soon as some have bought: what happens
// next happens in the middle of the sale.
func (r *saleRun) underWay() {
	r.s.T.Helper()
	r.let(cap(r.turns) / 4)
	servers.Eventually(r.s.T, "the sale is under way", func() bool { return r.s.CampaignNow(r.campaign).Counts.Sold > 5 })
	r.let(cap(r.turns) - cap(r.turns)/4)
}

func TestPostgresRestartedInTheMiddleOfASale(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Private: true, Workers: 2})
	sale := queueUp(s, s.Campaign(10), 10, 8)
	sale.underWay()
	servers.NoError(t, s.Stack.Postgres.RestartAfter(t.Context(), 2*time.Second))
	sale.wantSoldOut(55)
}
