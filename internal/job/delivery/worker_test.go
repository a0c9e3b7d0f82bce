package delivery

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"triprize/internal/campaign"
	"triprize/internal/drawing"
	"triprize/internal/job"
	"triprize/internal/lease"
	"triprize/internal/platform/config"
	"triprize/internal/platform/postgres"
	"triprize/internal/platform/queue"
	"triprize/internal/sale"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

func TestMain(m *testing.M) { servers.Main(m) }

// worker is a Processor of purchases, cancellations and draws with one shard.
type worker struct {
	*Processor

	db                       *pgxpool.Pool
	rdb                      redis.UniversalClient
	namespace                string
	purchases, cancellations *Batcher
	drawer                   *drawing.Drawer
	consumers                []queue.Consumer
}

// newWorker returns a worker that takes no tasks from the queue, and by whose settings nothing runs out while a test
// holds it.
func newWorker(t *testing.T, change ...func(s *config.Settings)) *worker {
	t.Helper()
	return newWorkerOn(t, prometheus.NewRegistry(), change...)
}

func newWorkerOn(t *testing.T, registry *prometheus.Registry, change ...func(s *config.Settings)) *worker {
	t.Helper()
	settings := servers.Patient(servers.Settings(t))
	settings.Postgres.IdleInTransactionTimeout, settings.Draw.Lease, settings.Draw.Timeout = time.Hour, time.Hour, time.Hour
	settings.Worker.OptionalTimeout, settings.Worker.ShutdownTimeout = servers.Patience, servers.Patience
	settings.Worker.Shards, settings.Worker.Concurrency = 1, 128
	for _, c := range change {
		c(&settings)
	}
	w := &worker{db: servers.Pool(t, settings), rdb: servers.Redis(t, settings), namespace: settings.Redis.Namespace}
	gate, logger := postgres.NewGate(w.db, registry), servers.Logger(t)
	w.Processor = New(settings.Worker, Options{DB: w.db, Redis: w.rdb, Namespace: w.namespace, Logger: logger,
		Heartbeat:  queue.NewHeartbeat(w.rdb, w.namespace, queue.RoleWorker, queue.NewID(), settings.Worker),
		Dispatcher: queue.NewDispatcher(queue.NewClient(w.rdb, w.namespace), settings.Worker.OptionalTimeout, logger, registry),
		Triggered:  func(...job.Message) {}, Due: func([]lease.Item) {}}, registry)
	seller := sale.NewSeller(gate.FirstTry(0), settings.Retention.Jobs, sale.Reservations{})
	w.purchases = w.Batcher(job.KindPurchase, settings.Worker.Concurrency, 0, batchOf(seller.Sell))
	w.cancellations = w.Batcher(job.KindCancellation, settings.Worker.Concurrency, 0, batchOf(seller.Cancel))
	w.drawer = drawing.NewDrawer(gate.Retry(drawing.RowWait), fixture.Key(t), settings.Draw, drawing.DrawerOptions{Registry: registry, Holder: "us", AtOnce: 1}, logger)
	w.consumers = []queue.Consumer{w.purchases.Consumer(), w.cancellations.Consumer()}
	t.Cleanup(w.Close)
	return w
}

func batchOf(do func(context.Context, []job.Ref, job.LockWait) (sale.Report, error)) job.Batch {
	return func(ctx context.Context, refs []job.Ref, wait job.LockWait) (job.BatchResult, error) {
		report, err := do(ctx, refs, wait)
		return report.BatchResult, err
	}
}

func (w *worker) draw(ctx context.Context, ref job.Ref) (job.Outcome, error) {
	outcome, err := w.drawer.Run(ctx, ref)
	if errors.Is(err, drawing.ErrBusy) || errors.Is(err, campaign.ErrFenced) {
		err = queue.Snooze(err)
	}
	return outcome, err
}

// exclusively makes one attempt at jobs while no batch runs.
func (w *worker) exclusively(ctx context.Context, kind job.Kind, jobs []job.Ref, try func(ctx context.Context) error) error {
	return w.counted(ctx, kind, jobs, &w.exclusive, try)
}

// runs runs a worker until the end of the test.
func runs(t *testing.T, w *worker) {
	t.Helper()
	server := queue.NewServer(w.rdb, w.namespace, w.settings, w.Logger, w.consumers...)
	servers.NoError(t, server.Start(context.Background()))
	t.Cleanup(func() { w.Drain(); server.Shutdown() })
}

func awaitState(t *testing.T, w *worker, state job.State, ids ...uuid.UUID) {
	t.Helper()
	servers.Eventually(t, "the jobs are "+string(state), func() bool {
		return servers.Value[int](t, w.db, `SELECT count(*) FROM jobs WHERE id = ANY($1) AND state = $2`, ids, state) == len(ids)
	})
}

// impatient ends waits for locks soon.
func impatient(s *config.Settings) { s.Postgres.LockTimeout = 50 * time.Millisecond }

// order accepts an order of each user for one position and returns the message.
func order(t *testing.T, w *worker, campaignID uuid.UUID, users ...string) job.Message {
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

// deliver hands a message to the worker's handler as the queue does.
func deliver(t *testing.T, w *worker, complete complete, message job.Message, redelivered bool) error {
	t.Helper()
	return w.handle(postgres.TxOther, complete)(t.Context(), message.Task(), redelivered)
}

// lock locks a campaign, as another worker would.
func lock(t *testing.T, w *worker, campaignID uuid.UUID) (unlock func()) {
	t.Helper()
	return fixture.LockCampaign(t, w.db, campaignID)
}

// deliveredBefore makes jobs look as if they had been delivered n times.
func deliveredBefore(t *testing.T, w *worker, n int, ids ...uuid.UUID) {
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
func messages(t *testing.T, w *worker) int {
	t.Helper()
	return servers.Value[int](t, w.db, `SELECT count(*) FROM outbox_messages`)
}

// final tells whether a job is final.
func final(t *testing.T, w *worker, id uuid.UUID) bool {
	return fixture.Job(t, w.db, id).State.Final()
}
