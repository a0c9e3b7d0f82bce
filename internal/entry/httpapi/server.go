// Package httpapi is the entry point for HTTP ([New]).
//
// It authenticates the caller, charges it to its rate limit, reads the body within its
// bound, checks the request against the contract (api/openapi.yaml), and then accepts a
// job, runs a command, or reads. The order of these steps is a promise (docs/adr/0007-connections-and-requests.md).
//
// A request for a job is answered only after the job is committed. It waits for a
// worker only if the client wants it (Prefer: wait), and for Redis only within the
// limits of the settings. Every error is a problem document. The status of
// each kind of error is in package resource; the roles that may call an operation are
// in the contract (x-roles).
package httpapi

import (
	"cmp"
	"context"
	"fmt"
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
	"golang.org/x/sync/semaphore"

	"triprize.example/draw/beacon"
	"triprize/internal/campaign"
	"triprize/internal/domain/payprovider"
	"triprize/internal/drawing"
	"triprize/internal/drawing/progress"
	"triprize/internal/entry/console"
	"triprize/internal/entry/httpapi/body"
	"triprize/internal/entry/httpapi/contract"
	"triprize/internal/entry/httpapi/positions"
	"triprize/internal/entry/httpapi/resource"
	"triprize/internal/entry/httpapi/response"
	"triprize/internal/entry/pages"
	"triprize/internal/entry/upkeep"
	"triprize/internal/inventory"
	"triprize/internal/job"
	"triprize/internal/key"
	"triprize/internal/lifecycle"
	"triprize/internal/payment"
	"triprize/internal/payment/cards"
	"triprize/internal/payment/reconciliation"
	"triprize/internal/payment/refunds"
	"triprize/internal/platform/callerlimit"
	"triprize/internal/platform/config"
	"triprize/internal/platform/httpconn"
	"triprize/internal/platform/keyring"
	"triprize/internal/platform/lock"
	"triprize/internal/platform/openapi"
	"triprize/internal/platform/postgres"
	"triprize/internal/platform/queue"
	"triprize/internal/platform/ratelimit"
	"triprize/internal/platform/readcache"
	"triprize/internal/platform/sweep"
	"triprize/internal/platform/telemetry"
	"triprize/internal/platform/token"
	"triprize/internal/wallet"
	"triprize/internal/webhook"
	"triprize/internal/webhook/sender"
)

// server is the HTTP API: the operations of the contract (its exported methods), and what stands before them.
type server struct {
	settings config.Settings
	db       *pgxpool.Pool
	logger   *slog.Logger
	registry *prometheus.Registry
	health   *telemetry.Health
	metrics  *httpMetrics
	app      *fiber.App
	contract *openapi.Document
	proxies  httpconn.Proxies // whose X-Forwarded-For is believed
	inFlight atomic.Int64     // requests being served
	draining context.Context  // ends at shutdown: waits and streams end with it
	drain    context.CancelFunc
	sending  context.Context // ends after shutdown: bodies that are still coming are cut off
	cutOff   context.CancelFunc

	keys     *key.Verifier
	tokens   *token.Verifier
	sessions *key.Sessions
	limiter  *ratelimit.Limiter
	shares   *shares
	slowed   *semaphore.Weighted // answers that wait
	bodies   body.Bodies
	answers  *response.Sending // long ones that are being sent
	streams  slots
	waits    *callerlimit.Limit

	intake     *job.Intake
	triggers   *drawing.Triggers
	queueWaits *job.QueueWaits
	dispatcher *queue.Dispatcher
	jobs       *job.Jobs
	changes    *progress.Campaigns

	above         map[string]int64 // thresholds of wallets: see config.Approvals
	approvals     postgres.Pool    // for transactions in which operations run: each takes a second connection, so these are fewer than all
	terms         *campaign.TermsCache
	campaigns     *readcache.Cache[campaignCopy, response.Tagged]
	lists         *readcache.Cache[listCopy, response.Tagged]
	boards        *readcache.Cache[boardCopy, *positions.Board]
	ownerBoards   *readcache.Cache[boardCopy, *positions.Board]
	draws         *readcache.Cache[uuid.UUID, drawAnswer] // for anonymous callers
	proof         *drawing.Proofs
	proofs        documents
	exports       documents
	reader        *postgres.Reader // of exports
	lifecycle     *lifecycle.Service
	holds         *inventory.Holds
	payments      *cards.Service // of buyers
	cardPayments  *cards.Service // of operators
	discrepancies *reconciliation.Service
	refunds       *refunds.Service
	wallets       *wallet.Batcher
	endpoints     *webhook.Endpoints
	sweeper       *upkeep.Sweeper
	status        *readcache.Cache[struct{}, contract.Status]
	failures      *readcache.Cache[struct{}, []job.Failures]
	curves        *console.Curves
	webhooks      *webhooks // nil: no cards
}

// New makes a server and returns its Run. provider is nil where cards are not accepted.
func New(settings config.Settings, db *pgxpool.Pool, rdb redis.UniversalClient, locks *lock.Locker, access keyring.Keyring, provider payprovider.Provider, logger *slog.Logger,
	registry *prometheus.Registry, health *telemetry.Health,
) (run func(context.Context) error, err error) {
	namespace := settings.Redis.Namespace
	settings.API.BodyLimitBytes = cmp.Or(settings.API.BodyLimitBytes, 1<<20) // most operations allow much less (x-max-body-bytes in the contract)
	settings.Accept.Timeout, settings.Streams.Interval = cmp.Or(settings.Accept.Timeout, job.AcceptTimeout), cmp.Or(settings.Streams.Interval, 500*time.Millisecond)
	settings.API.RequestTimeout = cmp.Or(settings.API.RequestTimeout, 10*time.Second) // then 503. What is done in batches has a timeout of its own.
	document, err := LoadContract()
	if err != nil {
		return nil, err
	}
	tokens, err := token.NewVerifier(settings.Tokens, time.Now, logger)
	if err != nil {
		return nil, err
	}
	s := &server{
		settings:   settings,
		db:         db,
		logger:     logger,
		registry:   registry,
		health:     health,
		contract:   document,
		proxies:    settings.API.Proxies(),
		keys:       key.NewVerifier(db, key.CacheTTL),
		tokens:     tokens,
		limiter:    ratelimit.New(rdb, namespace, settings.Limits, registry),
		bodies:     body.New(body.Room, settings.API.RequestTimeout, 0),
		answers:    response.NewSending(registry),
		slowed:     semaphore.NewWeighted(mostSlowed),
		shares:     newShares(settings, registry),
		streams:    newSlots("event streams", cmp.Or(settings.Streams.MaxOpen, maxStreams(settings.API))),
		waits:      callerlimit.New("waiting requests", settings.API.MaxConnections),
		terms:      campaign.NewTermsCache(),
		triggers:   drawing.NewTriggers(registry, logger),
		changes:    progress.NewCampaigns(db, settings.Streams.Interval, logger),
		dispatcher: queue.NewDispatcher(queue.NewClient(rdb, namespace), settings.Redis.Timeout, logger, registry),
	}
	s.jobs = job.NewJobs(db, job.NewAnnouncements(rdb, namespace), 250*time.Millisecond, logger, s.shares.announced) // without announcements
	s.draining, s.drain = context.WithCancel(context.Background())
	s.sending, s.cutOff = context.WithCancel(context.Background())
	longest := make(map[job.Kind]time.Duration)
	for _, kind := range job.QueueKinds {
		longest[kind] = cmp.Or(settings.Accept.LongestWait, 2*time.Minute) // beyond it 503
	}
	delete(longest, job.KindCampaignCancellation) // the end of a campaign is always accepted
	delete(longest, job.KindErasure)              // one may wait for long
	var payments func(ctx context.Context) (time.Duration, error)
	if settings.Payments.Stripe.Enabled() {
		longest[job.KindPayment] = settings.Payments.Reservation / 10 * 9
		payments = func(ctx context.Context) (time.Duration, error) { return payment.QueueWait(ctx, db) }
	}
	s.queueWaits = job.NewQueueWaits(queue.NewFinder(rdb, namespace), longest, payments, registry)
	s.intake = job.NewIntake(settings.Accept, job.IntakeOptions{DB: db, Dispatcher: s.dispatcher, Jobs: s.jobs, Waits: s.queueWaits, Health: health, Triggered: s.triggers.Note,
		Closed: func(ctx context.Context, id uuid.UUID) bool {
			known, err := s.terms.Of(ctx, db, id)
			return err == nil && known.Closed
		},
		Reread:  func(ctx context.Context, id uuid.UUID) { _, _ = s.terms.Read(ctx, db, id) },
		Explain: campaign.Refusals}, registry)
	s.metrics = newHTTPMetrics(registry, &s.inFlight, s.jobs.Waiting, s.streams.taken)
	if s.reader, err = postgres.NewReader(context.Background(), settings.Postgres, db, "triprize-api"); err != nil {
		return nil, err
	}
	if err := s.openHandlers(postgres.NewGate(db, registry), rdb, locks, access, provider); err != nil {
		return nil, err
	}
	s.app = s.newApp()
	s.app.Server().HeaderReceived = s.beginBody
	s.app.Server().Handler = s.frame(s.app.Server().Handler)
	s.app.Use(s.observe, protect) // what every request passes
	if settings.API.CORSOrigins != "" {
		s.app.Use("/v1", shareAcrossOrigins(settings.API.AllowsOrigin))
	}
	s.app.Use(recover.New(recover.Config{EnableStackTrace: true, StackTraceHandler: func(c *fiber.Ctx, e any) {
		logger.Error("handler panicked", "request_id", requestID(c), "path", c.Path(), "panic", e)
	}}))
	s.app.Get("/healthz", func(c *fiber.Ctx) error { return c.JSON(fiber.Map{"status": telemetry.StatusOK}) })
	s.app.Get("/readyz", func(c *fiber.Ctx) error { // 200 when Postgres answers and has the schema. Without Redis the process is degraded, but ready.
		ready := health.Ready()
		return c.Status(ready.HTTPStatus()).JSON(ready)
	})
	if err := pages.Mount(s.app, s.pages()); err != nil {
		return nil, err
	}
	s.app.Use(s.requireStarted)
	s.mountDashboard(s.app, rdb)
	s.mountConsole()
	s.mount(s.app)
	return s.Run, nil
}

func (s *server) newApp() *fiber.App {
	return fiber.New(fiber.Config{
		AppName:                  "Triprize",
		DisableStartupMessage:    true,
		Immutable:                true, // strings of a request are used after its handler has returned
		BodyLimit:                s.settings.API.BodyLimitBytes,
		ReadBufferSize:           maxHead,
		Concurrency:              2 * s.settings.API.MaxConnections, // the listener bounds connections, and how long they take
		ErrorHandler:             s.handleError,
		JSONDecoder:              body.DecodeStrictly,
		StreamRequestBody:        true, // bodies reads them, when it is known who sends them
		DisableHeaderNormalizing: false,
		CaseSensitive:            true, // or another spelling of a path would get past a proxy that blocks it
		StrictRouting:            true,

		DisablePreParseMultipartForm: true, // the parser would read the rest of a form as the next request
	})
}

func (s *server) openHandlers(gate *postgres.Gate, rdb redis.UniversalClient, locks *lock.Locker, key keyring.Keyring, provider payprovider.Provider) error {
	var chain *beacon.Chain
	if s.settings.Beacon.Enabled() {
		named, err := s.settings.Beacon.Chain()
		if err != nil {
			return err
		}
		chain = &named
	}
	guard, err := sender.NewGuard(s.settings.Webhooks.AllowNetworks)
	if err != nil {
		return fmt.Errorf("setting webhooks.allow_networks: %w", err)
	}
	if s.above, err = s.settings.Approvals.Thresholds(); err != nil {
		return err
	}
	s.approvals = gate.Retry(0)
	s.endpoints = webhook.NewEndpoints(gate.Retry(0), key, guard, webhookDocuments)
	metrics := inventory.NewHoldMetrics(s.registry)
	s.sweeper = upkeep.New(s.settings, gate.Retry(sweep.RowWait), rdb, s.logger,
		upkeep.Options{Holds: metrics, Draws: s.triggers, Events: s.openPayments(provider), Provider: provider})
	cards := func(render func(payment.Payment) any) *cards.Service {
		return cards.NewService(gate.Retry(0), provider, s.dispatchDue, render)
	}
	s.payments, s.cardPayments = cards(func(p payment.Payment) any { return resource.Payment(p) }), cards(func(p payment.Payment) any { return cardPaymentJSON(p) })
	s.openCaches()
	s.openStatus(rdb)
	s.proof = drawing.NewProofs(s.db)
	s.proofs = newDocuments("proofs", mostProofs, s.registry, "triprize_proofs_total",
		"Proof and list documents by outcome: sent, cut (the reader was gone or too slow), failed (Postgres), or false-list: the stored list is not the frozen one.",
		"sent", "cut", "failed", "false-list")
	s.exports = newDocuments("exports", mostExports, s.registry, "triprize_exports_total",
		"Exports by outcome: sent, cut (the reader was gone or too slow, or its key was revoked), failed (Postgres).", "sent", "cut", "failed")
	s.lifecycle = lifecycle.New(gate, key, s.settings.Campaigns.MaxPositions, chain, func(c lifecycle.Details) any { return resource.Campaign(c, resource.Operator) })
	s.holds = inventory.NewHolds(gate, s.settings.Holds, s.terms, locks.AcquireFunc(), metrics, func(h inventory.Hold, viewer string) any { return resource.Hold(h, resource.Role(viewer)) })
	s.discrepancies = reconciliation.NewService(gate.Retry(0), func(d reconciliation.Discrepancy) any { return discrepancyJSON(d) })
	s.refunds = refunds.NewService(gate.Retry(0), func(r payment.Refund) any { return resource.Refund(r, resource.Operator) })
	executor := wallet.NewExecutor(gate.FirstTry(0), gate.Retry(0), walletDocuments)
	s.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "triprize_wallet_races_lost_total",
		Help: "Batches of wallet commands that found a version taken and were tried again."}, func() float64 { return float64(executor.Lost()) }))
	s.wallets = wallet.NewBatcher(executor, s.settings.Wallets)
	return nil
}

// Run listens until ctx ends, and for the drain delay after it. It then finishes the requests in flight, within
// the shutdown timeout.
func (s *server) Run(ctx context.Context) error {
	listener, err := s.listen(ctx)
	if err != nil {
		return err
	}
	s.logger.Info("listening", "address", listener.Addr().String())
	var background sync.WaitGroup
	watching, stopWatching := context.WithCancel(context.WithoutCancel(ctx))
	background.Go(func() { s.jobs.Run(watching) })
	background.Go(func() { s.changes.Run(watching) })
	background.Go(func() { s.queueWaits.Run(watching, s.logger) })
	background.Go(func() { s.curves.Run(watching, s.sample) })
	background.Go(func() {
		<-ctx.Done()
		s.awaitDrain()
		s.logger.Info("shutting down: taking no new requests, finishing those in flight")
		s.drain()
		s.shutdown() //nolint:contextcheck // ctx has ended
		s.cutOff()
		s.intake.Close()
		s.holds.Close()
		s.wallets.Close()
		if s.webhooks != nil {
			s.webhooks.events.Close()
			s.webhooks.provider.Close()
		}
		s.limiter.Close()
		s.tokens.Close()
		s.keys.Close() //nolint:contextcheck // the last uses are written after ctx has ended
		s.dispatcher.Close()
		s.reader.Close()
		stopWatching()
	})
	err = s.app.Listener(listener)
	if ctx.Err() == nil && err != nil {
		return err
	}
	background.Wait()
	return nil
}

// awaitDrain waits while balancers learn from /readyz that they must send no more requests.
func (s *server) awaitDrain() {
	delay := s.settings.API.DrainDelay
	if _, starting := s.health.Starting(); starting || delay == 0 {
		return
	}
	s.logger.Info("draining: not ready, serving requests", "for", delay.String())
	s.health.Drain()
	time.Sleep(delay)
}

// quiet is how long no request must be in flight before shutdown ends, although
// idle connections are still open.
const quiet = 500 * time.Millisecond

// shutdown stops listening and waits for the requests in flight. Fiber would wait
// for every open connection; one that was never used stays open until its read
// timeout.
func (s *server) shutdown() {
	ctx, cancel := context.WithTimeout(context.Background(), cmp.Or(s.settings.API.ShutdownTimeout, config.ShutdownTimeout))
	defer cancel()
	closed := make(chan struct{})
	go func() { defer close(closed); _ = s.app.ShutdownWithContext(ctx) }() // it fails when ctx ends, which is seen below
	ticker := time.NewTicker(quiet / 10)
	defer ticker.Stop()
	for silent := 0; silent < 10; {
		select {
		case <-closed:
			silent = 10
		case <-ctx.Done():
			silent = 10
		case <-ticker.C:
			if silent++; s.inFlight.Load() > 0 || s.streams.taken() > 0 || s.proofs.taken() > 0 || s.exports.taken() > 0 {
				silent = 0
			}
		}
	}
	if n := s.inFlight.Load(); n > 0 && ctx.Err() != nil {
		s.logger.Warn("requests were cut off at shutdown", "requests", n)
	}
}
