package worker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/google/uuid"

	"triprize/internal/entry/upkeep"
	"triprize/internal/job"
	"triprize/internal/platform/config"
	"triprize/internal/platform/postgres"
	"triprize/internal/platform/queue"
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
func sweep(t *testing.T, w *Worker) int {
	t.Helper()
	settings := servers.Defaults(t)
	settings.Redis.Namespace = w.namespace
	sweeper := upkeep.New(settings, w.db, w.rdb, servers.Logger(t), upkeep.Options{})
	for _, one := range sweeper.Sweeps {
		if one.Name == "lost-jobs" {
			report, err := sweeper.Run(t.Context(), one)
			if err != nil {
				t.Fatal(err)
			}
			return report.Counts["jobs_resumed"]
		}
	}
	t.Fatal("there is no such sweep")
	return 0
}

// A campaign that stays locked must not keep all slots of its kind: other tasks get no
// further than the queue then.
func TestTasksOfALockedCampaignLeaveHalfOfTheSlotsToOthers(t *testing.T) {
	t.Parallel()
	w := newWorker(t, patient, func(s *config.Settings) { s.Worker.Concurrency = 4 })
	s, id, free := w.purchases, fixture.Campaign(t, w.db, fixture.Draft(6)), fixture.Campaign(t, w.db, fixture.Draft(6))
	lock(t, w, id)
	made := record(s, nil)
	tried := func(user string, want int) {
		t.Helper()
		if err := w.purchases.jobs(t.Context(), order(t, w, id, user).Jobs, false); !errors.Is(err, errLocked) {
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
	if w.locked.has(id) {
		t.Error("a few tries are no second")
	}
	if err := w.purchases.jobs(t.Context(), order(t, w, free, "b").Jobs, false); err != nil {
		t.Errorf("a purchase elsewhere: %v", err)
	}
	made.take()
	s.retries.Release(1)
	tried("c", 1+maxRetries)
	if !s.retries.TryAcquire(1) {
		t.Error("it has kept the slot")
	}
	s.retries.Release(1)
	tried("d", 1) // the campaign has just been put off
}

// Many tasks of a locked campaign end as done. Their jobs wait in Postgres, and nothing is counted as an
// attempt. When the campaign is free they are issued in few messages, and become final.
func TestJobsOfALockedCampaignWaitInPostgres(t *testing.T) {
	t.Parallel()
	w := newWorker(t, patient)
	made := record(w.purchases, nil)
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
	first := order(t, w, id, "first")
	w.dispatcher.Dispatch(first.Task())
	servers.Eventually(t, "the campaign is known to be locked", func() bool { return w.locked.has(id) })
	made.take()
	held, others := first.Jobs, []job.Ref(nil)
	for i := range n {
		one := order(t, w, id, fmt.Sprint("held-", i))
		held = append(held, one.Jobs...)
		w.dispatcher.Dispatch(one.Task())
		if i < m {
			one := order(t, w, free, fmt.Sprint("other-", i))
			others = append(others, one.Jobs...)
			w.dispatcher.Dispatch(one.Task())
		}
	}
	awaitState(t, w, job.Succeeded, idsOf(others)...)
	waiting := func() int {
		return servers.Value[int](t, w.db, `SELECT count(*) FROM outbox_messages WHERE waits_for = $1`, id)
	}
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

// A task may have jobs of several campaigns: each goes on when its own is free.
func TestAJobWaitsForItsOwnCampaignOnly(t *testing.T) {
	t.Parallel()
	w := newWorker(t, patient)
	a, b, free := fixture.Campaign(t, w.db, fixture.Draft(4)), fixture.Campaign(t, w.db, fixture.Draft(4)), fixture.Campaign(t, w.db, fixture.Draft(4))
	unlock := lock(t, w, a)
	lock(t, w, b)
	_, accepted, err := job.Accept(t.Context(), w.db, []job.Request{fixture.PurchaseRequest(t, a, "a", 0, 1), fixture.PurchaseRequest(t, b, "b", 0, 1), fixture.PurchaseRequest(t, free, "c", 0, 1)})
	if err != nil || len(accepted) != 1 {
		t.Fatal(accepted, err)
	}
	for range 2 { // when it is delivered once more, others have its jobs
		if err := deliver(t, w, w.purchases.jobs, accepted[0], false); err != nil {
			t.Errorf("a task that is put off: %v", err)
		}
		if n := messages(t, w); n != 2 {
			t.Errorf("%d messages", n)
		}
	}
	fixture.Sound(t, w.db)
	jobs := accepted[0].Jobs
	for i, want := range []job.State{job.Queued, job.Queued, job.Succeeded} {
		if got := fixture.Job(t, w.db, jobs[i].ID).State; got != want {
			t.Errorf("job %d is %s", i, got)
		}
	}
	unlock()
	if resumed := sweep(t, w); resumed != 1 {
		t.Errorf("%d jobs go on", resumed)
	}
	runs(t, w)
	awaitState(t, w, job.Succeeded, jobs[0].ID)
	expect(t, w.db, jobs[1].ID, job.Queued, 0)
}

// A job whose wallet stays locked waits, too, and delays no other of its campaign.
func TestAJobOfALockedWalletWaitsInPostgres(t *testing.T) {
	t.Parallel()
	w := newWorker(t, patient)
	id := fixture.Campaign(t, w.db, fixture.Draft(4))
	unlock := fixture.LockWallet(t, w.db, fixture.Wallet(t, w.db, "mina", 1000))
	_, accepted, err := job.Accept(t.Context(), w.db, []job.Request{fixture.WalletRequest(t, id, "mina", 0, 1), fixture.PurchaseRequest(t, id, "otto", 0, 1)})
	if err != nil || len(accepted) != 1 {
		t.Fatal(accepted, err)
	}
	jobs := accepted[0].Jobs
	servers.Exec(t, w.db, `UPDATE jobs SET accepted_at = clock_timestamp() - interval '1 hour'`)
	if err := deliver(t, w, w.purchases.jobs, accepted[0], false); err != nil || w.locked.has(id) {
		t.Errorf("%v; the campaign counts as locked: %v", err, w.locked.has(id))
	}
	expect(t, w.db, jobs[0].ID, job.Queued, 0)
	expect(t, w.db, jobs[1].ID, job.Succeeded, 1)
	if resumed := sweep(t, w); resumed != 0 { // its campaign is free, and was free before
		t.Errorf("%d jobs go on at once", resumed)
	}
	unlock()
	servers.Exec(t, w.db, `UPDATE outbox_messages SET seen_at = clock_timestamp() - interval '1 second'`)
	if resumed := sweep(t, w); resumed != 1 {
		t.Errorf("%d jobs go on", resumed)
	}
	runs(t, w)
	awaitState(t, w, job.Succeeded, jobs[0].ID)
	expect(t, w.db, jobs[0].ID, job.Succeeded, 1)
}

// A task that cannot be put off keeps its message, and comes back.
func TestATaskThatCannotBePutOffComesBack(t *testing.T) {
	t.Parallel()
	w := newWorker(t, patient)
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
	if err := deliver(t, w, w.purchases.jobs, message, false); err != nil {
		t.Error(err)
	}
	expect(t, w.db, message.Jobs[0].ID, job.Succeeded, 1)
}
