package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"triprize/internal/maintenance/recovery"
	"triprize/internal/platform/config"
	"triprize/internal/platform/queue"
	"triprize/internal/store/job"
	"triprize/internal/store/outbox"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

// A campaign that stays locked must not keep all slots of its kind: other tasks get no
// further than the queue then.
func TestTasksOfALockedCampaignLeaveHalfOfTheSlotsToOthers(t *testing.T) {
	t.Parallel()
	w := newWorker(t, patient, func(s *config.Settings) { s.Worker.Concurrency = 4 })
	s, id, free := w.purchases, fixture.Campaign(t, w.db, fixture.Draft(6)), fixture.Campaign(t, w.db, fixture.Draft(6))
	lock(t, w, id)
	slots := []*keptSlot{{slots: s.kept}, {slots: s.kept}} // of two other tasks
	for _, slot := range slots {
		if !slot.keep() {
			t.Fatal("fewer than half of the slots can be kept")
		}
	}
	if err := w.finalizePurchases(t.Context(), order(t, w, id, "a").Jobs, false); !errors.Is(err, errParked) || w.parking.has(id) { // before the campaign is known to be locked
		t.Errorf("a task without a slot: %v", err)
	}
	if err := w.finalizePurchases(t.Context(), order(t, w, free, "b").Jobs, false); err != nil {
		t.Errorf("a purchase elsewhere: %v", err)
	}
	slots[0].release()
	if err := w.finalizePurchases(t.Context(), order(t, w, id, "c").Jobs, false); !errors.Is(err, errParked) || !w.parking.has(id) {
		t.Errorf("a task with a slot: %v", err)
	}
	if !(&keptSlot{slots: s.kept}).keep() {
		t.Error("it has kept the slot")
	}
}

// lines are what a logger was told, as text.
type lines struct {
	mu  sync.Mutex
	all []string
}

func (l *lines) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, string(line))
	return len(line), nil
}

func (l *lines) count(level slog.Level, parts ...string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.all {
		if !slices.ContainsFunc(append(parts, "level="+level.String()), func(part string) bool { return !strings.Contains(line, part) }) {
			n++
		}
	}
	return n
}

// tries counts the attempts at jobs of a campaign since the last call.
func (r *transactions) tries(campaignID uuid.UUID) (n int) {
	for _, one := range r.take() {
		for _, ref := range one.refs {
			if ref.CampaignID == campaignID {
				n++
			}
		}
	}
	return n
}

func idsOf(refs []job.Ref) []uuid.UUID {
	ids := make([]uuid.UUID, len(refs))
	for i, ref := range refs {
		ids[i] = ref.ID
	}
	return ids
}

// Many tasks of a locked campaign are delivered once each, and not tried. Their jobs wait in
// Postgres, in few messages. The log names the session, once. Later all are final.
func TestJobsOfALockedCampaignWaitInPostgres(t *testing.T) {
	t.Parallel()
	w := newWorker(t, patient)
	log := &lines{}
	w.logger = slog.New(slog.NewTextHandler(log, nil))
	made := record(w.purchases, nil)
	var mu sync.Mutex
	deliveries := 0
	for i, share := range w.shares {
		w.shares[i].Handle = func(ctx context.Context, task queue.Task, again bool) error {
			mu.Lock()
			deliveries++
			mu.Unlock()
			return share.Handle(ctx, task, again)
		}
	}
	delivered := func() int {
		mu.Lock()
		defer mu.Unlock()
		return deliveries
	}
	const n, m, few = 60, 20, 2 // regroupMost messages become one
	id, free := fixture.Campaign(t, w.db, fixture.Draft(20)), fixture.Campaign(t, w.db, fixture.Draft(20))
	tx, err := w.db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	servers.Exec(t, tx, `SET LOCAL application_name = 'somebody'`)
	servers.Exec(t, tx, `SELECT FROM campaigns WHERE id = $1 FOR UPDATE`, id)
	runs(t, w)

	first := order(t, w, id, "first")
	w.dispatcher.Dispatch(first.Task())
	servers.Eventually(t, "the campaign is known to be locked", func() bool { return w.parking.has(id) })
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
	servers.Eventually(t, "the jobs of the locked campaign are in few messages", func() bool {
		return delivered() >= 1+n+m && messages(t, w) <= few
	})
	if got := delivered(); got != 1+n+m {
		t.Errorf("%d deliveries of %d tasks", got, 1+n+m)
	}
	if tries := made.tries(id); tries != 0 {
		t.Errorf("its jobs were tried %d times", tries)
	}
	fixture.Sound(t, w.db) // each queued job is in the outbox

	w.parking.mu.Lock()
	w.parking.campaigns[id].since = time.Now().Add(-warnAfter)
	w.parking.mu.Unlock()
	warning := []string{"campaign=" + id.String(), fmt.Sprint("pid=", tx.Conn().PgConn().PID()), "application=somebody", fmt.Sprint("jobs=", 1+n)}
	servers.Eventually(t, "the log names the session", func() bool { return log.count(slog.LevelWarn, warning...) > 0 })
	for range 2 { // a whole look after the one that has warned
		servers.Exec(t, w.db, `UPDATE outbox_messages SET seen_at = seen_at - interval '1 hour'`)
		servers.Eventually(t, "the worker looks again", func() bool {
			return servers.Value[bool](t, w.db, `SELECT min(seen_at) > clock_timestamp() - interval '30 minutes' FROM outbox_messages`)
		})
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	awaitState(t, w, job.Succeeded, idsOf(held)...)
	if got := delivered(); got > 1+n+m+few {
		t.Errorf("%d deliveries of %d tasks", got, 1+n+m)
	}
	warned, told := log.count(slog.LevelWarn, "stays locked"), log.count(slog.LevelInfo, "not locked any more", id.String(), fmt.Sprint("jobs=", 1+n))
	if putOff := log.count(slog.LevelInfo, "not done"); warned != 1 || told != 1 || putOff != 0 {
		t.Errorf("%d warnings, %d lines about the end, %d about tasks: %q", warned, told, putOff, log.all)
	}
	fixture.Sound(t, w.db)
}

// A task may have jobs of several campaigns: each goes on when its own is free.
func TestAParkedJobWaitsForItsOwnCampaignOnly(t *testing.T) {
	t.Parallel()
	w := newWorker(t, patient)
	a, b, free := fixture.Campaign(t, w.db, fixture.Draft(4)), fixture.Campaign(t, w.db, fixture.Draft(4)), fixture.Campaign(t, w.db, fixture.Draft(4))
	unlock := lock(t, w, a)
	lock(t, w, b)
	w.parking.note(a)
	w.parking.note(b)
	_, accepted, err := outbox.Accept(t.Context(), w.db, []job.Request{fixture.PurchaseRequest(t, a, "a", 0, 1), fixture.PurchaseRequest(t, b, "b", 0, 1), fixture.PurchaseRequest(t, free, "c", 0, 1)})
	if err != nil || len(accepted) != 1 {
		t.Fatal(accepted, err)
	}
	if err := deliver(t, w, w.finalizePurchases, accepted[0], false); err != nil {
		t.Errorf("a parked task: %v", err)
	}
	jobs := accepted[0].Jobs
	for i, want := range []job.State{job.Queued, job.Queued, job.Succeeded} {
		if got := fixture.Job(t, w.db, jobs[i].ID).State; got != want {
			t.Errorf("job %d is %s", i, got)
		}
	}
	look := func() {
		t.Helper()
		if err := w.look(t.Context()); err != nil {
			t.Error(err)
		}
	}
	look()
	if n := messages(t, w); n != 2 {
		t.Errorf("%d messages", n)
	}
	servers.Exec(t, w.db, `UPDATE outbox_messages SET seen_at = seen_at - interval '1 hour'`)
	look()
	if old := servers.Value[int](t, w.db, `SELECT count(*) FROM outbox_messages WHERE seen_at < clock_timestamp() - interval '30 minutes'`); old != 0 {
		t.Errorf("%d messages look lost to the sweep", old)
	}
	unlock()
	look()
	if w.parking.has(a) || !w.parking.has(b) {
		t.Error("the wrong campaign is free")
	}
	runs(t, w)
	awaitState(t, w, job.Succeeded, jobs[0].ID)
	expect(t, w.db, jobs[1].ID, job.Queued, 0)
}

// A worker that dies takes nothing with it: the sweep finds what it has parked.
func TestJobsThatADeadWorkerHasParkedAreIssuedAgain(t *testing.T) {
	t.Parallel()
	settings := workerSettings(t)
	dead, heir := newWorkerWith(t, settings), newWorkerWith(t, settings)
	id := fixture.Campaign(t, dead.db, fixture.Draft(4))
	unlock := lock(t, dead, id)
	dead.parking.note(id)
	message := order(t, dead, id, "a", "b")
	if err := errors.Join(deliver(t, dead, dead.finalizePurchases, message, false), dead.look(t.Context())); err != nil {
		t.Fatal(err)
	}
	unlock() // which it does not live to see
	servers.Exec(t, dead.db, `UPDATE outbox_messages SET seen_at = seen_at - interval '1 hour'`)
	sweeper := recovery.New(settings, dead.db, dead.rdb, nil, servers.Logger(t))
	for _, sweep := range sweeper.Sweeps() {
		if sweep.Name != "lost-jobs" {
			continue
		}
		if report, err := sweeper.Run(t.Context(), sweep); err != nil || report.Counts["jobs_reissued"] != 2 {
			t.Errorf("the sweep: %+v, %v", report, err)
		}
	}
	runs(t, heir)
	awaitState(t, heir, job.Succeeded, idsOf(message.Jobs)...)
	fixture.Sound(t, dead.db)
}
