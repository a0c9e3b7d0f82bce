// Package worker is the entry point for tasks: it registers their kinds and runs a [delivery.Processor].
// Each kind has a queue and slots of its own.
//
// Payments at a provider are leased items, and a task only starts them earlier (payments.go). They
// have their own slots and connections, and are settled through the shards.
//
// A worker has no state that must not be lost: jobs and messages are in Postgres.
package worker

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/redis/go-redis/v9"

	"triprize/internal/campaign"
	"triprize/internal/domain/money"
	"triprize/internal/drawing"
	"triprize/internal/inventory"
	"triprize/internal/job"
	"triprize/internal/job/delivery"
	"triprize/internal/lease"
	"triprize/internal/lifecycle"
	"triprize/internal/person"
	"triprize/internal/platform/config"
	"triprize/internal/platform/keyring"
	"triprize/internal/platform/postgres"
	"triprize/internal/platform/queue"
	"triprize/internal/sale"
	"triprize/internal/webhook/sender"
)

// Worker does the tasks of its kinds.
type Worker struct {
	id        string
	settings  config.Worker
	db        *pgxpool.Pool
	rdb       redis.UniversalClient
	namespace string
	logger    *slog.Logger
	holds     *inventory.HoldMetrics
	positions prometheus.Counter

	consumers  []queue.Consumer
	heartbeat  *queue.Heartbeat
	dispatcher *queue.Dispatcher
	processor  *delivery.Processor
	cards      *cardTasks // nil: this worker processes no payments
	seller     *sale.Seller
	drawer     *drawing.Drawer
	saleEnder  *sale.Seller // ends sales for draw jobs
	canceller  *lifecycle.Canceller
	eraser     *person.Eraser
	gate       *postgres.Gate
	sender     *sender.Sender // nil: this worker delivers no webhooks
	outages    *delivery.Outages
}

// New returns a Worker; Run runs it. stored is what is erased of persons, draws configures draws, takes reports in which currencies cards can
// pay, and at least how much.
func New(settings config.Settings, db *pgxpool.Pool, rdb redis.UniversalClient, key keyring.Keyring, stored person.Stored, draws drawing.DrawerOptions, takes func(money.Currency) (minimum money.Amount, ok bool), logger *slog.Logger, registry prometheus.Registerer) *Worker {
	namespace := settings.Redis.Namespace
	draws.Registry = registry
	slots := cmp.Or(settings.Worker.Concurrency, 128) // concurrent tasks of each kind; each only waits for its batch
	gate := postgres.NewGate(db, registry)
	w := &Worker{
		id: queue.NewID(), rdb: rdb, namespace: namespace, settings: settings.Worker, db: db, logger: logger, holds: inventory.NewHoldMetrics(registry),
		positions:  promauto.With(registry).NewCounter(prometheus.CounterOpts{Name: "triprize_positions_sold_total", Help: "Positions sold by this worker."}),
		dispatcher: queue.NewDispatcher(queue.NewClient(rdb, namespace), cmp.Or(settings.Worker.OptionalTimeout, settings.Redis.Timeout), logger, registry),
		seller: sale.NewSeller(gate.FirstTry(0), settings.Retention.Jobs,
			sale.Reservations{For: settings.Payments.Reservation, MaxExtension: cmp.Or(settings.Payments.MaxExtension, sale.MaxExtension), AfterSaleEnd: settings.Payments.AfterSaleEnd, MaxPerUser: settings.Payments.MaxPositionsPerUser,
				HoldQuota: inventory.HoldQuotaOf(settings.Holds), Takes: takes}),
		saleEnder: sale.NewSeller(gate.Retry(drawing.RowWait), settings.Retention.Jobs, sale.Reservations{}),
		gate:      gate,
		outages:   delivery.NewOutages(logger),
	}
	draws.EndSale, draws.Holder = w.endSale, w.id
	draws.AtOnce = max(settings.Worker.Draws/2, 1) // relays that hang leave slots for other draws
	w.drawer = drawing.NewDrawer(gate.Retry(drawing.RowWait), key, settings.Draw, draws, logger)
	w.heartbeat = queue.NewHeartbeat(rdb, namespace, queue.RoleWorker, w.id, settings.Worker)
	w.processor = delivery.New(settings.Worker, delivery.Options{DB: db, Redis: rdb, Namespace: namespace, Heartbeat: w.heartbeat, Dispatcher: w.dispatcher,
		Logger: logger, Triggered: drawing.NewTriggers(registry, logger).Note, Due: w.dispatchDue}, registry)
	w.canceller = lifecycle.NewCanceller(gate.Retry(lifecycle.RowWait), lifecycle.Observer{Advanced: w.processor.Announce, Due: w.dispatchDue}, logger)
	w.eraser = person.NewEraser(gate.Retry(0), db, stored, keyring.NewHasher(settings.Draw.SecretKey, settings.Draw.PreviousSecretKeys))
	w.consumers = []queue.Consumer{
		w.processor.OneByOne(job.KindDraw, postgres.TxDraw, settings.Worker.Draws, w.draw),
		w.processor.Batcher(job.KindCancellation, slots, 0, w.batch(w.seller.Cancel)).Consumer(),
		w.processor.Batcher(job.KindPurchase, slots, 0, w.batch(w.seller.Sell)).Consumer(),
		w.processor.OneByOne(job.KindCampaignCancellation, postgres.TxCampaign, campaignCancellationTasks, w.cancelCampaign),
		w.processor.OneByOne(job.KindErasure, postgres.TxOther, 1, w.erase),
	}
	return w
}

// batch counts what the transactions of the sale have done.
func (w *Worker) batch(do func(ctx context.Context, refs []job.Ref, wait job.LockWait) (sale.Report, error)) job.Batch {
	return func(ctx context.Context, refs []job.Ref, wait job.LockWait) (job.BatchResult, error) {
		report, err := do(ctx, refs, wait)
		w.positions.Add(float64(report.Sold))
		w.holds.Count(inventory.HoldsUsed, report.HoldsUsed)
		w.holds.Count(inventory.HoldsReclaimed, report.HoldsReclaimed)
		return report.BatchResult, err
	}
}

// Describe sets what the worker says of itself with each heartbeat. Call it before Run.
func (w *Worker) Describe(describe func() queue.Description) { w.heartbeat.Describe = describe }

// Run consumes tasks until ctx ends. It then finishes running tasks within the shutdown timeout and
// requeues the rest. While probe fails it takes no tasks: see [delivery.Outages].
func (w *Worker) Run(ctx context.Context, probe func(ctx context.Context) error) error {
	w.outages.Probe = probe
	for i, c := range w.consumers {
		w.consumers[i].Handle = w.outages.Handler(c.Handle)
	}
	alive, end := context.WithCancel(context.WithoutCancel(ctx))
	var background sync.WaitGroup
	background.Go(func() { w.heartbeat.Run(alive, w.logger) })
	server := queue.NewServer(w.rdb, w.namespace, w.settings, w.logger, w.consumers...)
	err := server.Start(alive)
	if err == nil {
		background.Go(func() { w.outages.Run(alive, server.Pause) })
		<-ctx.Done()
		w.logger.Info("shutting down: taking no new tasks, finishing those in progress")
		w.drawer.EndQuestions()
		w.processor.Drain()
		server.Shutdown()
	}
	w.close()
	end()
	background.Wait()
	return err
}

func (w *Worker) close() {
	w.processor.Close()
	if w.sender != nil {
		w.sender.Close()
	}
}

// dispatchDue enqueues items that a commit made due, if this worker consumes their kind.
func (w *Worker) dispatchDue(items []lease.Item) {
	for _, item := range items {
		if slices.ContainsFunc(w.consumers, func(s queue.Consumer) bool { return s.Kind == item.Kind }) {
			w.dispatcher.Dispatch(item.Task())
		}
	}
}

// campaignCancellationTasks is how many campaigns a worker cancels at once.
const campaignCancellationTasks = 2

// cancelCampaign advances a job as far as possible. While it waits for refunds its task holds no slot.
func (w *Worker) cancelCampaign(ctx context.Context, ref job.Ref) (job.Outcome, error) {
	outcome, err := w.canceller.Run(ctx, ref)
	if wait, ok := errors.AsType[*lifecycle.CancelSnoozed](err); ok {
		return job.Outcome{}, queue.SnoozeFor(err, wait.After)
	}
	if errors.Is(err, lifecycle.ErrSnoozed) {
		return job.Outcome{}, queue.Snooze(err)
	}
	return outcome, err
}

// erase erases a user, one at a time.
func (w *Worker) erase(ctx context.Context, ref job.Ref) (job.Outcome, error) {
	outcome, err := w.eraser.Run(ctx, ref)
	if errors.Is(err, person.ErrSnoozed) {
		return job.Outcome{}, queue.SnoozeFor(err, 10*time.Second)
	}
	return outcome, err
}

// draw advances one draw job as far as possible. It snoozes while another worker runs the draw or has
// taken it over, and while the draw is blocked.
func (w *Worker) draw(ctx context.Context, ref job.Ref) (job.Outcome, error) {
	outcome, err := w.drawer.Run(ctx, ref)
	if wait, ok := errors.AsType[*drawing.Snoozed](err); ok {
		w.processor.Announce(ref.ID)
		return job.Outcome{}, queue.SnoozeFor(err, wait.After)
	}
	if errors.Is(err, drawing.ErrBusy) || errors.Is(err, campaign.ErrFenced) {
		return job.Outcome{}, queue.Snooze(err)
	}
	return outcome, err
}

// endSale ends the sale of a campaign that is drawn at its end, if the draw is requested before the sweep
// has ended the sale.
func (w *Worker) endSale(ctx context.Context, campaignID uuid.UUID) (ended bool, err error) {
	end, err := w.saleEnder.EndSale(ctx, campaignID)
	job.LogFinal(ctx, w.logger, end.Outcomes)
	w.processor.Dispatch(end.Messages...)
	return end.Ended, err
}
