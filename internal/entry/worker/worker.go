// Package worker is the entry point for tasks: it finalizes the jobs of outbox messages.
//
//	task ─▶ its key ────────┬─▶ shards (batches of sales, of cancellations) ─┬─▶ announce ─▶ delete the message
//	                        ├─▶ redelivery (tried before) ───────────────────┤
//	                        └─▶ serially (draws) ────────────────────────────┘
//
// Every kind has its own queue and slots, so a flood of one takes no slot of another. A handler holds its
// task until all its jobs are final. A campaign always belongs to the same shard, so one process does not
// compete with itself for the campaign's row, and the batches of the kinds alternate. shards.go has the
// waits for locked rows. Jobs whose rows stay locked for about a second go back to the outbox, without a
// task, until the sweep lost-jobs issues them.
//
// A redelivered job may be one that kills workers. Redelivered jobs are tried together, then one by one, those
// with the fewest attempts first. No batch runs meanwhile, and each attempt is counted and committed before
// it begins, and not if a transient fault ends it. So such a job delays few others, and fails after
// job.MaxDeliveries (attempts.go). Draws keep running meanwhile, because one may take a minute. So a draw
// that kills its worker may cost another job one attempt; from its third delivery on no batch runs beside it.
//
// Payments at a provider are leased items, and a task only starts them earlier (payments.go). They
// have their own slots and connections, and are settled through the shards.
//
// A worker that does not reach Postgres takes no tasks, and releases those in hand for others (outage.go).
//
// A worker has no state that must not be lost: jobs and messages are in Postgres.
package worker

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"triprize/internal/domain/money"
	"triprize/internal/drawing"
	"triprize/internal/inventory"
	"triprize/internal/job"
	"triprize/internal/lifecycle"
	"triprize/internal/platform/batch"
	"triprize/internal/platform/config"
	"triprize/internal/platform/keyring"
	"triprize/internal/platform/postgres"
	"triprize/internal/platform/queue"
	"triprize/internal/sale"
	"triprize/internal/webhook/sender"
)

// Worker finalizes jobs.
type Worker struct {
	id       string
	settings config.Worker
	db       *pgxpool.Pool
	logger   *slog.Logger
	metrics  *metrics
	holds    *inventory.HoldMetrics
	triggers *drawing.Triggers

	rdb                      redis.UniversalClient
	namespace                string
	redisTimeout             time.Duration // of each optional call to Redis
	consumers                []queue.Consumer
	heartbeat                *queue.Heartbeat
	dispatcher               *queue.Dispatcher
	announcements, deletions *batch.Coalescer[uuid.UUID, struct{}] // of jobs and messages, after a commit
	cards                    *cardTasks                            // nil: this worker processes no payments
	seller                   *sale.Seller
	drawer                   *drawing.Drawer
	saleEnder                *sale.Seller // ends sales for draw jobs
	canceller                *lifecycle.Canceller
	gate                     *postgres.Gate
	sender                   *sender.Sender // nil: this worker delivers no webhooks

	purchases, cancellations *finalizer
	shards                   []*shard

	locked     lockedCampaigns
	exclusive  sync.RWMutex // batches hold the read lock, exclusively the write lock
	groupWaits waitBackoff  // of redelivered jobs; guarded by exclusive
	outages    *outages

	draining context.Context //nolint:containedctx // ends when handlers must stop waiting and release their tasks: no further call begins
	drain    context.CancelFunc
}

// New returns a Worker; Run runs it. draws configures draws, takes reports in which currencies cards can
// pay, and at least how much.
func New(settings config.Settings, db *pgxpool.Pool, rdb redis.UniversalClient, key keyring.Keyring, draws drawing.DrawerOptions, takes func(money.Currency) (minimum money.Amount, ok bool), logger *slog.Logger, registry prometheus.Registerer) *Worker {
	namespace := settings.Redis.Namespace
	draws.Registry = registry
	settings.Worker.Concurrency = cmp.Or(settings.Worker.Concurrency, 128) // concurrent tasks of each kind; each only waits for its batch
	settings.Worker.MaxDeliveries = cmp.Or(settings.Worker.MaxDeliveries, job.MaxDeliveries)
	gate := postgres.NewGate(db, registry)
	w := &Worker{
		id: queue.NewID(), rdb: rdb, namespace: namespace, settings: settings.Worker, db: db, logger: logger, metrics: newMetrics(registry), holds: inventory.NewHoldMetrics(registry), triggers: drawing.NewTriggers(registry, logger),
		dispatcher: queue.NewDispatcher(queue.NewClient(rdb, namespace), settings.Worker.OptionalTimeout, logger, registry),
		seller: sale.NewSeller(gate.FirstTry(0), settings.Retention.Jobs,
			sale.Reservations{For: settings.Payments.Reservation, MaxExtension: cmp.Or(settings.Payments.MaxExtension, sale.MaxExtension), AfterSaleEnd: settings.Payments.AfterSaleEnd, MaxPerUser: settings.Payments.MaxPositionsPerUser,
				HoldQuota: inventory.HoldQuotaOf(settings.Holds), Takes: takes}),
		saleEnder: sale.NewSeller(gate.Retry(drawing.RowWait), settings.Retention.Jobs, sale.Reservations{}),
		gate:      gate, redisTimeout: cmp.Or(settings.Worker.OptionalTimeout, redisTimeout),
		locked:  newLockedCampaigns(),
		outages: newOutages(logger),
	}
	w.draining, w.drain = context.WithCancel(context.Background())
	draws.EndSale, draws.Holder = w.endSale, w.id
	draws.AtOnce = max(settings.Worker.Draws/2, 1) // relays that hang leave slots for other draws
	w.drawer = drawing.NewDrawer(gate.Retry(drawing.RowWait), key, settings.Draw, draws, logger)
	w.heartbeat = queue.NewHeartbeat(rdb, namespace, queue.RoleWorker, w.id, settings.Worker)
	w.announcements, w.deletions = newAnnouncements(job.NewAnnouncements(rdb, namespace), w.redisTimeout, logger), newDeletions(db, cmp.Or(settings.Worker.OptionalTimeout, deleteTimeout), logger)
	w.purchases = w.newFinalizer(job.KindPurchase, w.seller.Sell, settings.Worker.Concurrency)
	w.cancellations = w.newFinalizer(job.KindCancellation, w.seller.Cancel, settings.Worker.Concurrency)
	for range settings.Worker.Shards {
		l := &shard{worker: w, batches: make(map[job.Kind]*batch.Coalescer[*item, verdict])}
		l.add(w.purchases)
		l.add(w.cancellations)
		w.shards = append(w.shards, l)
	}
	w.canceller = lifecycle.NewCanceller(gate.Retry(lifecycle.RowWait), lifecycle.Observer{Advanced: w.changed, Due: w.dispatchDue}, logger)
	w.consumers = []queue.Consumer{
		{Kind: string(job.KindDraw), Concurrency: settings.Worker.Draws, Handle: w.handle(w.serially(job.KindDraw, w.draw))},
		{Kind: string(job.KindCancellation), Concurrency: settings.Worker.Concurrency, Handle: w.handle(w.cancellations.jobs)},
		{Kind: string(job.KindPurchase), Concurrency: settings.Worker.Concurrency, Handle: w.handle(w.purchases.jobs)},
		{Kind: string(job.KindCampaignCancellation), Concurrency: campaignCancellationTasks, Handle: w.handle(w.serially(job.KindCampaignCancellation, w.cancelCampaign))},
	}
	return w
}

// Describe sets what the worker says of itself with each heartbeat. Call it before Run.
func (w *Worker) Describe(describe func() queue.Description) { w.heartbeat.Describe = describe }

// Run consumes tasks until ctx ends. It then finishes running tasks within the shutdown timeout and
// requeues the rest. While probe fails it takes no tasks: see outages.
func (w *Worker) Run(ctx context.Context, probe func(ctx context.Context) error) error {
	w.outages.probe = probe
	for i, c := range w.consumers {
		w.consumers[i].Handle = w.outages.handler(c.Handle)
	}
	alive, end := context.WithCancel(context.WithoutCancel(ctx))
	var background sync.WaitGroup
	background.Go(func() { w.heartbeat.Run(alive, w.logger) })
	server := queue.NewServer(w.rdb, w.namespace, w.settings, w.logger, w.consumers...)
	err := server.Start(alive)
	if err == nil {
		background.Go(func() { w.outages.run(alive, server.Pause) })
		<-ctx.Done()
		w.logger.Info("shutting down: taking no new tasks, finishing those in progress")
		w.drawer.EndQuestions()
		w.drain()
		server.Shutdown()
	}
	w.closeShards()
	w.dispatcher.Close()
	if w.sender != nil {
		w.sender.Close()
	}
	w.announcements.Close()
	w.deletions.Close()
	w.drain() // also after a failed start
	end()
	background.Wait()
	return err
}

func (w *Worker) closeShards() {
	var all sync.WaitGroup
	for _, l := range w.shards {
		all.Go(l.close)
	}
	all.Wait()
}
