package httpapi

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/gofiber/fiber/v2/middleware/recover"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"triprize/internal/domain/payprovider"
	"triprize/internal/entry/httpapi/resource"
	"triprize/internal/maintenance/recovery"
	"triprize/internal/platform/callerlimit"
	"triprize/internal/platform/config"
	"triprize/internal/platform/idempotency"
	"triprize/internal/platform/keyring"
	"triprize/internal/platform/lock"
	"triprize/internal/platform/openapi"
	"triprize/internal/platform/postgres"
	"triprize/internal/platform/queue"
	"triprize/internal/platform/ratelimit"
	"triprize/internal/platform/readcache"
	"triprize/internal/platform/telemetry"
	"triprize/internal/platform/token"
	"triprize/internal/service/endpoints"
	"triprize/internal/service/holds"
	"triprize/internal/service/lifecycle"
	"triprize/internal/service/listeners"
	"triprize/internal/service/payments"
	"triprize/internal/service/proof"
	"triprize/internal/service/refunds"
	"triprize/internal/service/subscription"
	"triprize/internal/service/wallets"
	"triprize/internal/store/apikey"
	"triprize/internal/store/inventory"
	"triprize/internal/store/payment"
	"triprize/internal/store/refund"
)

// Server is the HTTP API.
type Server struct {
	settings config.Settings
	db       *pgxpool.Pool
	logger   *slog.Logger
	registry *prometheus.Registry
	health   *telemetry.Health

	app        *fiber.App
	contract   *openapi.Document
	keys       *apikey.Verifier
	tokens     *token.Verifier
	limiter    *ratelimit.Limiter
	bodies     bodies
	known      *knownCampaigns
	offers     *offers
	read       *campaignsCache
	positions  *positionsCache
	draws      *readcache.Cache[uuid.UUID, drawAnswer]
	proofs     *proofs
	exports    *exports
	strangers  *strangers
	backlog    *backlog
	streams    *callerlimit.Limit
	waits      *callerlimit.Limit
	campaigns  *subscription.Campaigns
	sweeper    *recovery.Sweeper
	lifecycle  *lifecycle.Service
	holds      *holds.Service
	wallets    *wallets.Batcher
	refunds    *refunds.Service
	payments   *payments.Service
	endpoints  *endpoints.Service
	listeners  *listeners.Service
	webhooks   *webhooks // nil, and the next two: no cards
	provider   payprovider.Provider
	acceptor   *acceptor
	dispatcher *queue.Dispatcher
	jobs       *subscription.Jobs
	metrics    *httpMetrics
	inFlight   atomic.Int64    // requests being served
	draining   context.Context // ends at shutdown: waits and streams end with it
	drain      context.CancelFunc
	sending    context.Context // ends after shutdown: what is still sent then is cut off
	cutOff     context.CancelFunc
}

// New returns a Server; Run runs it. provider is nil where cards are not accepted.
func New(settings config.Settings, db *pgxpool.Pool, rdb redis.UniversalClient, locks *lock.Locker, key keyring.Keyring, provider payprovider.Provider, logger *slog.Logger,
	registry *prometheus.Registry, health *telemetry.Health,
) (*Server, error) {
	namespace := settings.Redis.Namespace
	document, err := LoadContract()
	if err != nil {
		return nil, err
	}
	tokens, err := token.NewVerifier(settings.Tokens, time.Now, logger)
	if err != nil {
		return nil, err
	}
	terms, err := termsOf(settings)
	if err != nil {
		return nil, err
	}
	holdMetrics := inventory.NewHoldMetrics(registry)
	var walletOptions wallets.Options
	gate := postgres.NewGate(db, registry)
	walletOptions.Retry = gate.Retry(0)
	executor := wallets.NewExecutor(gate.FirstTry(0), walletDocuments, walletOptions)
	registerWallets(registry, executor)
	s := &Server{
		settings: settings, db: db, logger: logger, registry: registry, health: health,
		contract:  document,
		keys:      apikey.NewVerifier(db, settings.API.KeyCacheTTL),
		tokens:    tokens,
		limiter:   ratelimit.New(rdb, namespace, settings.Limits, registry),
		bodies:    newBodies(settings.API.RequestTimeout, roomForBodies),
		known:     newKnownCampaigns(db),
		offers:    newOffers(db),
		backlog:   newBacklog(queue.NewFinder(rdb, namespace), settings, func(ctx context.Context) (time.Duration, error) { return payment.QueueWait(ctx, db) }, registry),
		streams:   callerlimit.New("event streams", settings.Streams.MaxOpen),
		waits:     callerlimit.New("waiting requests", settings.API.MaxConnections),
		campaigns: subscription.NewCampaigns(db, settings.Streams.Interval, logger),
		sweeper:   recovery.New(settings, gate.Retry(recovery.RowWait), rdb, holdMetrics, logger),
		lifecycle: lifecycle.New(gate, key, campaignBounds(settings), terms,
			func(c lifecycle.Details) any { return resource.Campaign(c, operator) }),
		holds:   holds.New(gate, settings.Holds, locks.AcquireFunc(), holdMetrics, func(h inventory.Hold, viewer string) any { return resource.Hold(h, role(viewer)) }),
		wallets: wallets.NewBatcher(executor, settings.Wallets),
		refunds: refunds.NewService(gate.Retry(0), func(r refund.Refund) any { return resource.Refund(r, operator) }),

		dispatcher: queue.NewDispatcher(queue.NewClient(rdb, namespace, settings.Worker.TaskTimeout), logger, registry),
		jobs:       subscription.NewJobs(db, subscription.NewAnnouncements(rdb, namespace), settings.API.WaitPollInterval, logger),
	}
	s.draining, s.drain = context.WithCancel(context.Background())
	s.openToStrangers(registry)
	s.read = newCampaignsCache(db, settings.API.RequestTimeout, s.campaigns.ChangedAt)
	s.positions = newPositionsCache(db, settings.API.RequestTimeout, s.campaigns.ChangedAt)
	s.metrics = newHTTPMetrics(registry, &s.inFlight, s.jobs.Waiting, s.streams.Open)
	s.acceptor = newAcceptor(db, settings.Accept, s.dispatcher,
		idempotency.NewRequests(rdb, namespace, settings.Idempotency, registry), registry)
	s.openPayments(provider, rdb, registry)
	s.payments = payments.NewService(gate.Retry(0), provider != nil, s.dispatchDue, func(p payment.Payment) any { return cardPaymentJSON(p) })
	s.app = s.newApp()
	s.app.Server().HeaderReceived = s.refuseLong
	s.app.Server().Handler = s.unambiguous(s.settle(s.app.Server().Handler))
	s.mountFirst()
	s.mountOperations(s.app)
	if err := errors.Join(s.openWebhooks(gate, key), s.mountDocs(s.app)); err != nil {
		return nil, err
	}
	s.app.Use(s.requireStarted)
	if err := s.mountDashboard(s.app, rdb); err != nil {
		return nil, err
	}
	s.mountWebhooks(s.app)
	s.mount(s.app)
	return s, nil
}

// newApp makes the Fiber app, without routes.
func (s *Server) newApp() *fiber.App {
	return fiber.New(fiber.Config{
		AppName:                  "Triprize",
		DisableStartupMessage:    true,
		Immutable:                true, // strings of a request are used after its handler has returned
		BodyLimit:                s.settings.API.BodyLimitBytes,
		ReadBufferSize:           maxHead,
		Concurrency:              2 * s.settings.API.MaxConnections, // the listener bounds connections, and how long they take
		ErrorHandler:             s.handleError,
		JSONDecoder:              decodeStrictly,
		StreamRequestBody:        true, // bodies reads them, when it is known who sends them
		DisableHeaderNormalizing: false,
		CaseSensitive:            true, // or another spelling of a path would get past a proxy that blocks it
		StrictRouting:            true,

		DisablePreParseMultipartForm: true, // the parser would read the rest of a form as the next request
	})
}

// mountFirst registers what every request passes before anything else.
func (s *Server) mountFirst() {
	s.app.Use(s.observe, protect)
	if origins := s.settings.API.CORSOrigins; origins != "" {
		s.app.Use("/v1", shareAcrossOrigins(origins))
	}
	s.app.Use(recover.New(recover.Config{EnableStackTrace: true, StackTraceHandler: s.logPanic}))
}

// openToStrangers prepares what outsiders may read.
func (s *Server) openToStrangers(registry *prometheus.Registry) {
	s.sending, s.cutOff = context.WithCancel(context.Background())
	s.draws = newDrawsCache(s.db, s.settings.API.RequestTimeout)
	s.proofs = newProofs(proof.NewService(s.db), s.settings.Proofs.MaxOpen, registry)
	s.strangers = newStrangers(s.settings.Limits.AddressRate)
	s.exports = newExports(s.settings.Exports.MaxOpen, registry)
}

// Run listens until ctx ends. It then finishes the requests in flight, within the
// shutdown timeout.
func (s *Server) Run(ctx context.Context) error {
	listener, err := s.listen(ctx)
	if err != nil {
		return err
	}
	s.logger.Info("listening", "address", listener.Addr().String())
	var background sync.WaitGroup
	watching, stopWatching := context.WithCancel(context.WithoutCancel(ctx))
	background.Go(func() { s.jobs.Run(watching) })
	background.Go(func() { s.campaigns.Run(watching) })
	background.Go(func() { s.backlog.run(watching, s.logger) })
	background.Go(func() {
		<-ctx.Done()
		s.logger.Info("shutting down: taking no new requests, finishing those in flight")
		s.drain()
		s.shutdown() //nolint:contextcheck // ctx has ended
		s.cutOff()
		s.acceptor.close()
		s.holds.Close()
		s.wallets.Close()
		s.closePayments()
		s.limiter.Close()
		s.tokens.Close()
		s.keys.Close()
		s.dispatcher.Close()
		stopWatching()
	})
	err = s.app.Listener(listener)
	if ctx.Err() == nil && err != nil {
		return err
	}
	background.Wait()
	return nil
}

// quiet is how long no request must be in flight before shutdown ends, although
// idle connections are still open.
const quiet = 500 * time.Millisecond

// shutdown stops listening and waits for the requests in flight. Fiber would wait
// for every open connection; one that was never used stays open until its read
// timeout.
func (s *Server) shutdown() {
	ctx, cancel := context.WithTimeout(context.Background(), s.settings.API.ShutdownTimeout)
	defer cancel()
	closed := make(chan struct{})
	go func() { defer close(closed); _ = s.app.ShutdownWithContext(ctx) }() // it fails when ctx ends, which is seen below
	ticker := time.NewTicker(quiet / 10)
	defer ticker.Stop()
	for silent := 0; silent < 10; {
		select {
		case <-closed:
			s.logCutOff(ctx)
			return
		case <-ctx.Done():
			s.logCutOff(ctx)
			return
		case <-ticker.C:
			if silent++; s.inFlight.Load() > 0 || s.streams.Open() > 0 || s.proofs.open.Open() > 0 || s.exports.open.Open() > 0 {
				silent = 0
			}
		}
	}
}

// logCutOff logs how many requests were still running at the shutdown timeout.
func (s *Server) logCutOff(ctx context.Context) {
	if n := s.inFlight.Load(); n > 0 && ctx.Err() != nil {
		s.logger.Warn("requests were cut off at shutdown", "requests", n)
	}
}

// context returns the context for the database work of one request.
func (s *Server) context() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), s.settings.API.RequestTimeout)
}

func (s *Server) logPanic(c *fiber.Ctx, e any) {
	s.logger.Error("handler panicked", identified(c, "panic", e)...)
}
