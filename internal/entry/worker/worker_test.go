package worker

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"triprize/internal/campaign"
	"triprize/internal/drawing"
	"triprize/internal/entry/upkeep"
	"triprize/internal/job"
	"triprize/internal/platform/config"
	"triprize/internal/platform/postgres"
	"triprize/internal/platform/queue"
	"triprize/internal/platform/stripe"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

func TestMain(m *testing.M) { servers.Main(m) }

// workerSettings returns settings by which nothing runs out while a test holds it, and nothing is left to a sweep, as
// there is none.
func workerSettings(t *testing.T) config.Settings {
	t.Helper()
	settings := servers.Patient(servers.Settings(t))
	settings.Postgres.IdleInTransactionTimeout, settings.Draw.Lease, settings.Draw.Timeout = time.Hour, time.Hour, time.Hour
	settings.Worker.OptionalTimeout, settings.Worker.ShutdownTimeout = servers.Patience, servers.Patience
	return settings
}

// newWorker returns a worker with one shard that takes no tasks from the queue.
func newWorker(t *testing.T, change ...func(s *config.Settings)) *Worker {
	t.Helper()
	settings := workerSettings(t)
	settings.Worker.Shards = 1
	for _, c := range change {
		c(&settings)
	}
	return newWorkerWith(t, settings)
}

func newWorkerWith(t *testing.T, settings config.Settings) *Worker {
	t.Helper()
	return newWorkerOn(t, settings, prometheus.NewRegistry())
}

func newWorkerOn(t *testing.T, settings config.Settings, registry *prometheus.Registry) *Worker {
	t.Helper()
	w := New(settings, servers.Pool(t, settings), servers.Redis(t, settings), fixture.Key(t), upkeep.Personal(), drawing.DrawerOptions{}, stripe.Takes, servers.Logger(t), registry)
	t.Cleanup(func() { stop(w) })
	return w
}

// stop waits until a worker that was not run has done all it has begun. Twice does no harm.
func stop(w *Worker) {
	w.close()
}

// order accepts an order of each user for one position and returns the message.
func order(t *testing.T, w *Worker, campaignID uuid.UUID, users ...string) job.Message {
	t.Helper()
	requests := make([]job.Request, len(users))
	for i, user := range users {
		requests[i] = fixture.PurchaseRequest(t, campaignID, user, 0, 1)
	}
	_, messages, err := job.Accept(t.Context(), w.db, requests)
	if err != nil || len(messages) != 1 {
		t.Fatal(messages, err)
	}
	return messages[0]
}

// deliveredBefore makes jobs look as if they had been delivered n times.
func deliveredBefore(t *testing.T, w *Worker, n int, ids ...uuid.UUID) {
	t.Helper()
	servers.Exec(t, w.db, `UPDATE jobs SET attempts = $2 WHERE id = ANY($1)`, ids, n)
}

// expect checks the state of a job and how often it was delivered.
func expect(t *testing.T, db postgres.DB, id uuid.UUID, state job.State, attempts int) {
	t.Helper()
	if j := fixture.Job(t, db, id); j.State != state || j.Attempts != attempts {
		t.Errorf("the job is %s after %d attempts, %+v; want %s after %d", j.State, j.Attempts, j.Problem, state, attempts)
	}
}

// messages counts the messages in the outbox.
func messages(t *testing.T, w *Worker) int {
	t.Helper()
	return servers.Value[int](t, w.db, `SELECT count(*) FROM outbox_messages`)
}

func TestAWorkerDoesItsTasksUntilItIsToldToStop(t *testing.T) {
	t.Parallel()
	settings := workerSettings(t)
	w := newWorkerWith(t, settings)
	client := queue.NewClient(servers.Redis(t, settings), settings.Redis.Namespace)
	id := fixture.Campaign(t, w.db, fixture.Draft(3))
	message := order(t, w, id, "a", "b", "c", "d", "e", "f") // sells it out
	servers.NoError(t, client.Enqueue(t.Context(), message.Task()))
	stop := runs(t, w)
	servers.Eventually(t, "the campaign is drawn", func() bool {
		c, err := campaign.Get(t.Context(), w.db, id)
		return err == nil && c.State == campaign.Completed
	})
	servers.NoError(t, stop())
	if n := messages(t, w); n != 0 {
		t.Errorf("%d messages are left", n)
	}
	fixture.Sound(t, w.db)
	late := order(t, w, fixture.Campaign(t, w.db, fixture.Draft(3)), "late")
	if err := w.handlerOf(t, string(job.KindPurchase))(t.Context(), late.Task(), false); err == nil {
		t.Error("a stopped worker said that it has done a job")
	}
	expect(t, w.db, late.Jobs[0].ID, job.Queued, 0)
}
