package worker

import (
	"context"
	"log/slog"
	"sync"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"triprize/internal/platform/config"
	"triprize/internal/platform/idempotency"
	"triprize/internal/platform/queue"
	"triprize/internal/platform/seal"
	"triprize/internal/service/draw"
	"triprize/internal/service/sale"
	"triprize/internal/store/hold"
	"triprize/internal/store/job"
)

// Worker settles jobs.
type Worker struct {
	id       string
	settings config.Worker
	db       *pgxpool.Pool
	logger   *slog.Logger
	metrics  *metrics
	holds    *hold.Metrics

	server    *queue.Server
	presence  *queue.Presence
	claims    *claims
	ringer    *job.Ringer
	aftermath *aftermath
	seller    *sale.Seller
	drawer    *draw.Drawer
	lanes     []*lane

	crowd    sync.RWMutex  // batches hold it for reading; a suspect's attempt, alone, for writing
	draining chan struct{} // closed when handlers should give back what they only wait for
}

// New returns a Worker; Run runs it.
func New(settings config.Settings, db *pgxpool.Pool, rdb redis.UniversalClient, key seal.Key, logger *slog.Logger, registry prometheus.Registerer) *Worker {
	namespace := settings.Redis.Namespace
	client := queue.NewClient(rdb, namespace, settings.Worker.TaskTimeout)
	w := &Worker{
		id: uuid.NewString(), settings: settings.Worker, db: db, logger: logger, metrics: newMetrics(registry), holds: hold.NewMetrics(registry),
		ringer:   job.NewRinger(client, logger, registry),
		seller:   sale.NewSeller(db, sale.Keep{Draws: settings.Retention.Jobs}),
		drawer:   draw.NewDrawer(db, key, settings.Draw, logger),
		draining: make(chan struct{}),
	}
	w.presence = queue.NewPresence(rdb, namespace, w.id, settings.Worker.HeartbeatInterval, settings.Worker.HeartbeatTTL)
	w.claims = newClaims(idempotency.NewClaims(rdb, namespace, settings.Idempotency), settings.Idempotency.ClaimTTL, logger)
	w.aftermath = newAftermath(rdb, db, w.claims, job.NewAnnouncements(rdb, namespace), logger)
	for range settings.Worker.Lanes {
		w.lanes = append(w.lanes, newLane(w))
	}
	kinds := make([]string, len(job.Kinds))
	for i, kind := range job.Kinds {
		kinds[i] = string(kind)
	}
	w.server = queue.NewServer(rdb, namespace, settings.Worker, logger,
		kinds, map[string]queue.Handler{
			string(job.KindDraw):         w.handle(w.settleDraws),
			string(job.KindCancellation): w.handle(w.settleCancellations),
			string(job.KindPurchase):     w.handle(w.settlePurchases),
		})
	return w
}

// Run takes tasks until ctx ends, then finishes what it holds, within the
// shutdown timeout, and gives back the rest.
func (w *Worker) Run(ctx context.Context) error {
	alive, farewell := context.WithCancel(context.WithoutCancel(ctx))
	var background sync.WaitGroup
	background.Go(func() { w.presence.Run(alive, w.logger) })
	background.Go(func() { w.claims.run(alive) })
	err := w.server.Start()
	if err == nil {
		<-ctx.Done()
		w.logger.Info("shutting down: taking no new tasks, finishing those at hand")
		close(w.draining)
		w.server.Shutdown()
	}
	for _, l := range w.lanes {
		l.close()
	}
	w.ringer.Close()
	w.aftermath.close()
	farewell()
	background.Wait()
	return err
}
