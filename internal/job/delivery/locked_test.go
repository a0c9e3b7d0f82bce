package delivery

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"triprize/internal/entry/upkeep"
	"triprize/internal/job"
	"triprize/internal/platform/config"
	"triprize/internal/platform/postgres"
	"triprize/internal/platform/queue"
	platformsweep "triprize/internal/platform/sweep"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

func idsOf(refs []job.Ref) []uuid.UUID {
	ids := make([]uuid.UUID, len(refs))
	for i, ref := range refs {
		ids[i] = ref.ID
	}
	return ids
}

// sweep runs lost-jobs once, and returns how many jobs go on.
func sweep(t *testing.T, w *worker) int {
	t.Helper()
	settings := servers.Patient(servers.Defaults(t))
	settings.Redis.Namespace = w.namespace
	sweeper := upkeep.New(settings, w.db, w.rdb, servers.Logger(t), upkeep.Options{})
	lost := slices.IndexFunc(sweeper.Sweeps, func(s platformsweep.Sweep) bool { return s.Name == "lost-jobs" })
	report, err := sweeper.Run(t.Context(), sweeper.Sweeps[lost])
	servers.NoError(t, err)
	return report.Counts["jobs_resumed"]
}

// A campaign that stays locked must not keep all slots of its kind: other tasks get no
// further than the queue then.
func TestTasksOfALockedCampaignLeaveHalfOfTheSlotsToOthers(t *testing.T) {
	t.Parallel()
	w := newWorker(t, func(s *config.Settings) { s.Worker.Concurrency = 4 })
	s, id, free := w.purchases, fixture.Campaign(t, w.db, fixture.Draft(6)), fixture.Campaign(t, w.db, fixture.Draft(6))
	lock(t, w, id)
	made := record(s, nil)
	tried := func(user string, want int) {
		t.Helper()
		if err := w.purchases.jobs(t.Context(), order(t, w, id, user).Jobs, false); !errors.Is(err, ErrLocked) {
			t.Errorf("%s: %v", user, err)
		}
		if n := len(made.take()); n != want {
			t.Errorf("%s: its job was tried %d times, want %d", user, n, want)
		}
	}
	if !s.retries.TryAcquire(2) || s.retries.TryAcquire(1) {
		t.Fatal("two other tasks are half of the slots")
	}
	tried("a", 1+quickRetries)
	if err := w.purchases.jobs(t.Context(), order(t, w, free, "b").Jobs, false); err != nil {
		t.Errorf("a purchase elsewhere: %v", err)
	}
	made.take()
	s.retries.Release(1)
	tried("c", 1+maxRetries)
	if !s.retries.TryAcquire(1) {
		t.Error("it has kept the slot")
	}
}

// Many tasks of a locked campaign end as done. Their jobs wait in Postgres, and nothing is counted as an
// attempt. When the campaign is free they are issued in few messages, and become final.
func TestJobsOfALockedCampaignWaitInPostgres(t *testing.T) {
	t.Parallel()
	w := newWorker(t)
	var mu sync.Mutex
	deliveries := 0
	for i, share := range w.consumers {
		w.consumers[i].Handle = func(ctx context.Context, task queue.Task, again bool) error {
			mu.Lock()
			deliveries++
			mu.Unlock()
			return share.Handle(ctx, task, again)
		}
	}
	const n, m = 60, 20
	id, free := fixture.Campaign(t, w.db, fixture.Draft(20)), fixture.Campaign(t, w.db, fixture.Draft(20))
	unlock := lock(t, w, id)
	runs(t, w)
	waiting := func() int {
		return servers.Value[int](t, w.db, `SELECT count(*) FROM outbox_messages WHERE waits_for = $1`, id)
	}
	first := order(t, w, id, "first")
	w.Dispatcher.Dispatch(first.Task())
	servers.Eventually(t, "its job waits", func() bool { return waiting() == 1 })
	held, others := first.Jobs, []job.Ref(nil)
	for i := range n {
		one := order(t, w, id, fmt.Sprint("held-", i))
		held = append(held, one.Jobs...)
		w.Dispatcher.Dispatch(one.Task())
		if i < m {
			one := order(t, w, free, fmt.Sprint("other-", i))
			others = append(others, one.Jobs...)
			w.Dispatcher.Dispatch(one.Task())
		}
	}
	awaitState(t, w, job.Succeeded, idsOf(others)...)
	servers.Eventually(t, "all wait", func() bool { return waiting() == 1+n && messages(t, w) == 1+n })
	mu.Lock()
	if deliveries != 1+n+m {
		t.Errorf("%d deliveries of %d tasks", deliveries, 1+n+m)
	}
	mu.Unlock()
	fixture.Sound(t, w.db) // each queued job is in the outbox

	before := servers.Value[string](t, w.db, `SELECT string_agg(m::text || m.xmin || m.xmax, ',' ORDER BY id) FROM outbox_messages m`)
	for range 3 {
		if resumed := sweep(t, w); resumed != 0 {
			t.Errorf("%d jobs go on", resumed)
		}
	}
	if after := servers.Value[string](t, w.db, `SELECT string_agg(m::text || m.xmin || m.xmax, ',' ORDER BY id) FROM outbox_messages m`); after != before {
		t.Errorf("the sweep has written although the campaign is locked:\n%s\n%s", before, after)
	}
	for _, ref := range held {
		expect(t, w.db, ref.ID, job.Queued, 0)
	}
	unlock()
	if resumed := sweep(t, w); resumed != 1+n {
		t.Errorf("%d jobs go on", resumed)
	}
	awaitState(t, w, job.Succeeded, idsOf(held)...)
	for _, ref := range held {
		expect(t, w.db, ref.ID, job.Succeeded, 1)
	}
	mu.Lock()
	if deliveries != 1+n+m+1 {
		t.Errorf("%d deliveries of %d tasks and one of all that waited", deliveries, 1+n+m)
	}
	mu.Unlock()
	fixture.Sound(t, w.db)
}

// A task may have jobs of several campaigns and wallets: each waits for its own, delays no other, and counts no attempt.
func TestAJobWaitsForItsOwnCampaignOrWalletOnly(t *testing.T) {
	t.Parallel()
	w := newWorker(t)
	a, b, free := fixture.Campaign(t, w.db, fixture.Draft(4)), fixture.Campaign(t, w.db, fixture.Draft(4)), fixture.Campaign(t, w.db, fixture.Draft(4))
	unlocks := []func(){lock(t, w, a), fixture.LockWallet(t, w.db, fixture.Wallet(t, w.db, "mina", 1000))}
	lock(t, w, b)
	_, accepted, err := job.Accept(t.Context(), w.db, []job.Request{fixture.PurchaseRequest(t, a, "a", 0, 1), fixture.PurchaseRequest(t, b, "b", 0, 1),
		fixture.PurchaseRequest(t, free, "c", 0, 1), fixture.WalletRequest(t, free, "mina", 0, 1)})
	if err != nil || len(accepted) != 1 {
		t.Fatal(accepted, err)
	}
	servers.Exec(t, w.db, `UPDATE jobs SET accepted_at = clock_timestamp() - interval '1 hour'`)
	jobs := accepted[0].Jobs
	states := func(want ...job.State) {
		t.Helper()
		for i, state := range want {
			attempts := 0
			if state == job.Succeeded {
				attempts = 1
			}
			expect(t, w.db, jobs[i].ID, state, attempts)
		}
	}
	for range 2 { // when it is delivered once more, others have its jobs
		if err := deliver(t, w, w.purchases.jobs, accepted[0], false); err != nil {
			t.Errorf("a task that is put off: %v", err)
		}
		if n := messages(t, w); n != 3 {
			t.Errorf("%d messages", n)
		}
	}
	states(job.Queued, job.Queued, job.Succeeded, job.Queued)
	fixture.Sound(t, w.db)
	// The job of the locked wallet waits for ten seconds, which pass soon.
	servers.Exec(t, w.db, `UPDATE outbox_messages SET seen_at = seen_at + interval '1 hour' WHERE seen_at > (SELECT min(seen_at) FROM outbox_messages) + interval '5 seconds'`)
	if resumed := sweep(t, w); resumed != 0 { // the campaign of the locked wallet is free, and was free before
		t.Errorf("%d jobs go on at once", resumed)
	}
	for _, unlock := range unlocks {
		unlock()
	}
	servers.Exec(t, w.db, `UPDATE outbox_messages SET seen_at = clock_timestamp() - interval '1 second'`)
	if resumed := sweep(t, w); resumed != 2 {
		t.Errorf("%d jobs go on", resumed)
	}
	runs(t, w)
	awaitState(t, w, job.Succeeded, jobs[0].ID, jobs[3].ID)
	states(job.Succeeded, job.Queued, job.Succeeded, job.Succeeded)
}

// A task that cannot be put off keeps its message, and comes back.
func TestATaskThatCannotBePutOffComesBack(t *testing.T) {
	t.Parallel()
	w := newWorker(t)
	id := fixture.Campaign(t, w.db, fixture.Draft(4))
	unlock := lock(t, w, id)
	message := order(t, w, id, "a", "b")
	servers.Exec(t, w.db, `ALTER TABLE outbox_messages ADD CONSTRAINT refused CHECK (waits_for IS NULL)`)
	if err := deliver(t, w, w.purchases.jobs, message, false); !errors.Is(err, queue.ErrSnoozed) || postgres.IsTransient(err) {
		t.Errorf("got %v", err)
	}
	if n := messages(t, w); n != 1 {
		t.Errorf("%d messages", n)
	}
	fixture.Sound(t, w.db)
	unlock()
	servers.NoError(t, deliver(t, w, w.purchases.jobs, message, false))
	expect(t, w.db, message.Jobs[0].ID, job.Succeeded, 1)
}

// has says in Redis that a worker which lives for ttl has a task.
func has(t *testing.T, w *worker, worker string, ttl time.Duration, task uuid.UUID) {
	t.Helper()
	beat := queue.NewHeartbeat(w.rdb, w.namespace, queue.RoleWorker, worker, config.Worker{HeartbeatInterval: time.Hour, HeartbeatTTL: ttl})
	if mine, err := beat.Acquire(t.Context(), task); err != nil || !mine {
		t.Fatal(mine, err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var beating sync.WaitGroup
	beating.Go(func() { beat.Run(ctx, servers.Logger(t)) })
	t.Cleanup(func() { stop(); beating.Wait() })
	servers.Eventually(t, "the worker is known", func() bool {
		present, err := queue.ReadProcesses(t.Context(), w.rdb, w.namespace)
		of := present[queue.RoleWorker]
		return err == nil && slices.Contains(append(of.Alive, of.Stale...), worker)
	})
}

// A task may be delivered to two workers. The second one leaves it to the first while that is alive, and
// has it at once when it is not.
func TestATaskIsOneWorkersUntilThatIsDead(t *testing.T) {
	t.Parallel()
	w := newWorker(t)
	id := fixture.Campaign(t, w.db, fixture.Draft(4))
	held, orphaned := order(t, w, id, "a"), order(t, w, id, "b")
	has(t, w, "alive", time.Hour, held.ID)
	has(t, w, "dead", time.Millisecond, orphaned.ID)
	if err := deliver(t, w, w.purchases.jobs, held, false); !errors.Is(err, errTaken) || !errors.Is(err, queue.ErrSnoozed) {
		t.Errorf("got %v", err)
	}
	expect(t, w.db, held.Jobs[0].ID, job.Queued, 0)
	servers.Eventually(t, "the task of the dead one is done", func() bool { return deliver(t, w, w.purchases.jobs, orphaned, false) == nil })
	expect(t, w.db, orphaned.Jobs[0].ID, job.Succeeded, 1)
	keys := servers.Keys(t, w.rdb, w.namespace+":active-task:*")
	if want := w.namespace + ":active-task:" + held.ID.String(); !slices.Equal(keys, []string{want}) { // one for each task that is under way
		t.Errorf("keys %v", keys)
	}
	w.Close()
	if n := messages(t, w); n != 1 {
		t.Errorf("%d messages while a task is with another worker", n)
	}
}

func TestAFailedDeliveryLeavesTheMessageInTheOutbox(t *testing.T) {
	t.Parallel()
	w := newWorker(t)
	message := order(t, w, fixture.Campaign(t, w.db, fixture.Draft(4)), "a")
	broken := errors.New("broken")
	for _, c := range []struct {
		redelivered bool
		number      int
		again       bool
	}{{false, 1, false}, {true, 1, true}, {false, 2, true}, {true, 3, true}} {
		message.Delivery = c.number
		err := deliver(t, w, func(_ context.Context, jobs []job.Ref, again bool) error {
			if again != c.again || !slices.Equal(jobs, message.Jobs) {
				t.Errorf("redelivered %v, message number %d: again is %v, the jobs %v", c.redelivered, c.number, again, jobs)
			}
			return broken
		}, message, c.redelivered)
		if !errors.Is(err, broken) {
			t.Errorf("got %v", err)
		}
	}
	for _, payload := range []string{"{", "{}", "null", `{"delivery":1,"campaigns":{}}`} { // they are dropped
		if err := w.handle(postgres.TxOther, w.purchases.jobs)(t.Context(), queue.Task{ID: message.ID, Kind: "purchase", Payload: []byte(payload)}, false); err != nil {
			t.Errorf("%s: %v", payload, err)
		}
	}
	w.Close()
	if n := messages(t, w); n != 1 {
		t.Errorf("%d messages", n)
	}
}

func TestWithoutRedisTheJobsAreDoneAllTheSame(t *testing.T) {
	t.Parallel()
	w := newWorker(t, func(s *config.Settings) { s.Redis.URL = "redis://127.0.0.1:1/0" })
	message := order(t, w, fixture.Campaign(t, w.db, fixture.Draft(4)), "a", "b")
	servers.NoError(t, deliver(t, w, w.purchases.jobs, message, false))
	for _, ref := range message.Jobs {
		expect(t, w.db, ref.ID, job.Succeeded, 1)
	}
	w.Close()
	if n := messages(t, w); n != 0 {
		t.Errorf("%d messages are left", n)
	}
}
