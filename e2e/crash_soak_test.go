//go:build soak

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"

	"triprize/devkit/devstack"
	"triprize/internal/campaign"
	"triprize/internal/job"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"
)

// In the middle of one sale a worker is killed, and one is asked to end, which loses nothing; an api that is asked to end
// answers who waits there.
func TestEveryProcessFinishesWhatItHoldsAtShutdown(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Binaries: true, Workers: 3})
	id := s.Campaign(20)
	sale := queueUp(s, id, 20, 10)
	sale.underWay()
	s.Workers[1].Kill()
	servers.NoError(t, s.Workers[0].Stop(terminate, servers.Patience)) // an error when it had to be killed
	sale.succeeded()
	servers.NoError(t, s.Workers[2].Stop(terminate, servers.Patience))
	waiting := make(chan fleet.Answer, 1)
	go func() { waiting <- s.Buy(fleet.Order{Campaign: id, User: "waits", Wait: true}) }()
	servers.Eventually(t, "the request is accepted", func() bool {
		return servers.Value[int](t, s.DB, `SELECT count(*) FROM jobs WHERE state = 'queued'`) == 1
	})
	servers.NoError(t, s.APIs[0].Stop(terminate, servers.Patience))
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
		fleet.WantSucceeded(t, s.AwaitJob(0, a.ID))
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
			fleet.Want(t, http.StatusAccepted, a)
			jobs = append(jobs, a.ID)
		}
		died(t, "the worker at "+moment, doomed)
		fixture.Sound(t, s.DB) // nothing half
		alive := s.RunWorker()
		for _, id := range jobs {
			fleet.WantSucceeded(t, s.AwaitJob(0, id))
		}
		if sold := s.CampaignNow(id).Counts.Sold; sold != n+1 {
			t.Errorf("%s: %d are sold, and only %s and those before are", moment, sold, kept)
		}
		servers.NoError(t, alive.Stop(terminate, servers.Patience))
	}
}

func TestDuringAnOutageOfPostgresRequestsAreToldToRetry(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Private: true})
	id := s.Campaign(4)
	servers.NoError(t, s.Stack.Postgres.Stop())
	order := fleet.Order{Campaign: id, User: "b", Key: "during", Wait: true}
	if a := s.Buy(order); a.Status != http.StatusServiceUnavailable || a.Refusal() != "unavailable" || a.Header.Get("Retry-After") == "" {
		t.Errorf("got %v, Retry-After %q", a, a.Header.Get("Retry-After"))
	}
	servers.Eventually(t, "the api is not ready", func() bool { // it looks once a second
		return s.Do(0, "", http.MethodGet, "/readyz", nil, nil).Status == http.StatusServiceUnavailable
	})
	fleet.Want(t, http.StatusOK, s.Do(0, "", http.MethodGet, "/healthz", nil, nil))
	servers.NoError(t, s.Stack.Postgres.RestartAfter(context.Background(), 0))
	servers.Eventually(t, "the same key goes through", func() bool { return s.Buy(order).State == job.Succeeded })
}

// Redis is away from before a purchase to after it, and later while somebody waits for a job that ends.
func TestDuringAnOutageOfRedisRequestsAreAcceptedAndDoneLater(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Private: true})
	id := s.Campaign(4)
	servers.NoError(t, s.Stack.Redis.Stop())
	order := func(i int) fleet.Order { return fleet.Order{Campaign: id, User: fmt.Sprint(i), Key: fmt.Sprint(i)} }
	answers := s.Crowd(8, order)
	for i, a := range answers {
		if a.Status != http.StatusAccepted || a.State != job.Queued {
			t.Fatalf("order %d: %v", i, a)
		}
	}
	s.Ready(0)
	waiting := make(chan fleet.Answer, 1)
	wait := func() { waiting <- s.Buy(fleet.Order{Campaign: id, User: "waits", Wait: true}) }
	go wait()
	servers.NoError(t, s.Stack.Redis.RestartAfter(context.Background(), time.Second))
	for i, a := range answers {
		servers.Eventually(t, "the job is done", func() bool { return s.Job(a.ID).State == job.Succeeded })
		if again := s.Buy(order(i)); again.ID != a.ID {
			t.Errorf("the key now has another job: %v", again)
		}
	}
	fleet.WantSucceeded(t, <-waiting)

	s.StopAll("worker")
	go wait()
	servers.Eventually(t, "the job is accepted", func() bool {
		return servers.Value[int](t, s.DB, `SELECT count(*) FROM jobs WHERE state = 'queued'`) == 1
	})
	servers.NoError(t, s.Stack.Redis.Stop())
	fleet.CompleteAll(t, s) // as by a worker that can no longer announce it
	fleet.WantSucceeded(t, <-waiting)
	servers.NoError(t, s.Stack.Redis.RestartAfter(context.Background(), 0))
}

func TestFiveHundredBuyersForTwoHundredAndTenPositions(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Workers: 2})
	id := s.Campaign(20)
	answers := s.Crowd(500, func(i int) fleet.Order {
		return fleet.Order{Campaign: id, User: fmt.Sprintf("buyer-%d", i), Wait: true}
	})
	if got := fleet.Count(answers); got["succeeded"] != 210 || got["sold-out"] != 290 {
		t.Fatalf("210 should succeed and 290 get sold-out: %v", got)
	}
	seen := make(map[[2]int]bool)
	for _, a := range answers {
		for _, p := range a.Result.Positions {
			if seen[[2]int{p.Layer, p.Column}] {
				t.Errorf("position %d/%d was sold twice", p.Layer, p.Column)
			}
			seen[[2]int{p.Layer, p.Column}] = true
		}
	}
	s.AwaitDrawn(id)
	if n := s.Draws(); n != 1 {
		t.Errorf("%d draws", n)
	}
}

func TestFiveWorkersDrawAHundredCampaignsOnce(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Workers: 5})
	var ids []uuid.UUID
	for range 100 {
		ids = append(ids, s.Campaign(3)) // 6 positions
	}
	for _, id := range ids {
		fixture.Sell(t, s.DB, id, 5)
	}
	answers := s.Crowd(100, func(i int) fleet.Order {
		return fleet.Order{Campaign: ids[i], User: "the last buyer", Wait: true}
	})
	if got := fleet.Count(answers); got["succeeded"] != 100 {
		t.Fatalf("every last position should be sold: %v", got)
	}
	s.AwaitDrawn(ids...)
	if n := s.Draws(); n != 100 {
		t.Errorf("%d draws", n)
	}
}

// The end of a sale comes in the middle of a crowd. Nobody is sold anything after it, what
// was sold is drawn once, and every buyer knows where it is.
func TestACrowdAtTheEndOfASaleIsDrawnOnce(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Binaries: true, Workers: -1, Schedulers: -1})
	settings, clock := servers.NewClock(t, s.Settings)
	here := "TRIPRIZE_POSTGRES_URL=" + settings.Postgres.URL
	s.RunWorker(here)
	s.RunWorker(here)
	s.RunScheduler(here, "TRIPRIZE_SWEEPS_ENDED_SALES_INTERVAL=500ms")
	const long = 24 * time.Hour
	body := fleet.CampaignBody(12)
	body["sale_ends_at"], body["policies"] = time.Now().Add(long).UTC().Format(time.RFC3339), map[string]any{"unsold": "draw"}
	created := s.Post("/v1/campaigns", body)
	path := "/v1/campaigns/" + created.ID.String()
	fleet.Want(t, http.StatusOK, s.Post(path+"/publish", nil))
	order := func(i int) fleet.Order {
		return fleet.Order{Campaign: created.ID, User: "user-" + strconv.Itoa(i), Wait: true}
	}
	if before := fleet.Count(s.Crowd(10, order)); before["succeeded"] != 10 {
		t.Errorf("before the end: %v", before)
	}
	moved := make(chan struct{})
	go func() {
		defer close(moved)
		clock.MoveOn(long)
	}()
	during := fleet.Count(s.Crowd(40, order))
	<-moved
	after := fleet.Count(s.Crowd(10, order))
	if refused := after["sale-not-open"] + after["campaign-not-active"]; refused != 10 {
		t.Errorf("after the end: %v", after)
	}
	if during["succeeded"]+during["sale-not-open"]+during["campaign-not-active"] != 40 {
		t.Errorf("while it ended: %v", during)
	}
	s.AwaitDrawn(created.ID)
	want := campaign.Counts{Total: 78, Sold: 10 + during["succeeded"]}
	if c := s.CampaignNow(created.ID); c.Counts != want || c.DrawsAt == nil {
		t.Errorf("%+v; sold should be %d", c, want.Sold)
	}
	if n := s.Draws(); n != 1 {
		t.Errorf("%d draws", n)
	}
}

// plainSteps are the moments before and after each write of a draw; beaconSteps are those
// of a draw with a beacon: fetches come first, because a round that another campaign has
// stored is not fetched again.
var (
	plainSteps  = []string{"draw.claimed", "draw.freeze", "draw.frozen", "draw.record", "draw.recorded"}
	beaconSteps = []string{"draw.fetch", "draw.fetched", "draw.claimed", "draw.freeze", "draw.frozen", "draw.record", "draw.recorded"}
)

// Each campaign has a worker that is killed, or stopped past its lease, at one moment of
// its draw. Others draw it; a worker that wakes up later writes nothing.
func TestADrawWhoseWorkerIsKilledOrStoppedAtAnyStepIsDoneOnce(t *testing.T) {
	for _, action := range []string{"kill", "stop"} {
		for name, steps := range map[string][]string{"operator": plainSteps, "beacon": beaconSteps} {
			t.Run(action+"/"+name, func(t *testing.T) {
				t.Parallel()
				crashDraws(t, action, steps, name == "beacon")
			})
		}
	}
}

func crashDraws(t *testing.T, action string, steps []string, withBeacon bool) {
	t.Helper()
	options := fleet.Options{Binaries: true, Workers: -1, Env: []string{"TRIPRIZE_DRAW_LEASE=2s", "TRIPRIZE_SWEEPS_STALE_LOCKS_INTERVAL=500ms"}}
	if withBeacon {
		options.Beacon = 2
	}
	s := fleet.Start(t, options)
	var ids []uuid.UUID
	var doomed []*devstack.Child
	for _, step := range steps { // only its own campaign dooms a worker; it may draw those of the workers before
		id := drawable(s, withBeacon)
		worker := s.RunWorker(fmt.Sprintf("TRIPRIZE_TEST_FAILPOINTS=%s@%s=%s", step, id, action))
		fixture.SellOut(t, s.DB, id)
		servers.Eventually(t, "the worker is gone at "+step, func() bool { return worker.PID() == 0 || isStopped(worker) })
		ids, doomed = append(ids, id), append(doomed, worker)
	}
	s.RunWorker()
	s.AwaitDrawn(ids...)
	for _, worker := range doomed {
		if worker.PID() == 0 {
			continue
		}
		servers.NoError(t, worker.Signal(syscall.SIGCONT))
	}
	last := drawable(s, withBeacon) // those that woke up take part again
	fixture.SellOut(t, s.DB, last)
	s.AwaitDrawn(append(ids, last)...)
	expectRecordsOnce(s, append(ids, last)...)
}

// sweepOnce runs scheduler --once and returns the counts of each sweep, and its status.
func sweepOnce(s *fleet.System, args []string, env ...string) (reports map[string]map[string]int, status int, stderr string) {
	s.T.Helper()
	stdout, stderr, status := runCommand(s.T, s.Command("scheduler", append([]string{"--once"}, args...)), env)
	var document struct {
		Sweeps []struct {
			Sweep  string
			Counts map[string]int
		}
	}
	if err := json.Unmarshal([]byte(stdout), &document); err != nil && stdout != "" {
		s.T.Fatalf("not JSON: %s", stdout)
	}
	reports = make(map[string]map[string]int)
	for _, r := range document.Sweeps {
		reports[r.Sweep] = r.Counts
	}
	return reports, status, stderr
}

func TestTheSchedulerSweepsOnceForCron(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Binaries: true, Workers: -1, Schedulers: -1, Env: []string{"TRIPRIZE_SWEEPS_LOST_JOBS_INTERVAL=1h"}})
	id := s.Campaign(4)
	fixture.Reserve(t, s.DB, id, "late", 2, -time.Second)
	reports, status, _ := sweepOnce(s, nil)
	for _, name := range []string{"lost-jobs", "expired-holds", "expired-authorizations", "expired-reservations", "due-items", "missed-events", "missing-permissions", "stale-locks", "stuck-draws", "old-records", "audit"} {
		if reports[name] == nil {
			t.Errorf("no report of %s: %v", name, reports)
		}
	}
	if status != 0 {
		t.Errorf("status %d", status)
	}
	if got := reports["expired-reservations"]; got["expired"] != 1 {
		t.Errorf("the reservation is not given up: %v", got)
	}
	s.RunScheduler() // leads meanwhile, and does no harm; but it is not to find first what was looked for above, or is below
	if reports, status, _ := sweepOnce(s, []string{"--sweep", "stale-locks"}); status != 0 || len(reports) != 1 || reports["stale-locks"] == nil {
		t.Errorf("one sweep: %v, status %d", reports, status)
	}
	if _, status, stderr := sweepOnce(s, []string{"--sweep", "dust"}); status != 1 || !strings.Contains(stderr, "lost-jobs") {
		t.Errorf("an unknown sweep: status %d, %s", status, stderr)
	}
	// Without Redis nobody can say what is lost; the other sweeps run all the same.
	s.Buy(fleet.Order{Campaign: id, User: "a"})
	servers.Exec(t, s.DB, `UPDATE outbox_messages SET seen_at = clock_timestamp() - interval '1 minute'`)
	reports, status, _ = sweepOnce(s, nil, "TRIPRIZE_REDIS_URL=redis://127.0.0.1:1/0")
	if status != 1 || reports["old-records"] == nil || reports["lost-jobs"]["lost"] != 0 {
		t.Errorf("without Redis: %v, status %d", reports, status)
	}
	s.RunWorker()
	servers.Eventually(t, "the job is done in the end", func() bool { return s.Purchases(id) > 0 })
}

func TestAnAPIThatStopsEndsItsStreamsAndAnotherGoesOn(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Binaries: true, APIs: 2, Workers: -1, Env: []string{"TRIPRIZE_API_SHUTDOWN_TIMEOUT=1m"}})
	id := s.Campaign(4)
	queued := s.Buy(fleet.Order{Campaign: id, User: "a"})
	board, follower := s.Listen(0, s.App, fleet.CampaignEvents(id), ""), s.Listen(0, s.App, fleet.JobEvents(queued.ID), "")
	seen := board.WantEvent()
	follower.WantEvent()
	servers.NoError(t, s.APIs[0].Stop(terminate, servers.Patience)) // an error when it had to be killed
	board.WantEnd()
	follower.WantEnd()
	if board.Reason() != "shutdown" || follower.Reason() != "shutdown" {
		t.Errorf("they ended by %s and %s", board.Reason(), follower.Reason())
	}
	if log := s.Log("api-1"); fleet.Contains(log, "cut off") {
		t.Errorf("it did not wait for its streams: %s", fleet.Tail(log, 1000))
	}
	again, same := s.Listen(1, s.App, fleet.CampaignEvents(id), seen.ID), s.Listen(1, s.App, fleet.JobEvents(queued.ID), "queued")
	s.RunWorker()
	if next := again.WantEvent(); next.ID == seen.ID {
		t.Errorf("told twice: %+v", next)
	}
	if end := same.WantEvent(); end.ID != "succeeded" {
		t.Errorf("got %+v", end)
	}
	same.WantEnd()
}
