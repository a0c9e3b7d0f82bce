package httpapi

import (
	"context"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/gofiber/fiber/v2/middleware/recover"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"triprize/internal/apikey"
	"triprize/internal/config"
	"triprize/internal/idempotency"
	"triprize/internal/job"
	"triprize/internal/queue"
	"triprize/internal/seal"
	"triprize/internal/telemetry"
)

// Server is the HTTP API.
type Server struct {
	settings config.Settings
	db       *pgxpool.Pool
	key      seal.Key
	logger   *slog.Logger
	registry *prometheus.Registry
	checks   []telemetry.Check

	app      *fiber.App
	keys     *apikey.Verifier
	known    *knownCampaigns
	acceptor *acceptor
	ringer   *job.Ringer
	watch    *job.Watch
	metrics  *httpMetrics
	draining chan struct{} // closed when waits should end
}

// requestTimeout bounds what one request does in the database, waits apart.
const requestTimeout = 10 * time.Second

// New returns a Server; Run runs it.
func New(settings config.Settings, db *pgxpool.Pool, rdb redis.UniversalClient, key seal.Key, logger *slog.Logger,
	registry *prometheus.Registry, checks []telemetry.Check,
) *Server {
	namespace := settings.Redis.Namespace
	s := &Server{
		settings: settings, db: db, key: key, logger: logger, registry: registry, checks: checks,
		keys:     apikey.NewVerifier(db, settings.API.KeyCacheTTL),
		known:    newKnownCampaigns(db),
		metrics:  newHTTPMetrics(registry),
		ringer:   job.NewRinger(queue.NewClient(rdb, namespace, settings.Worker.TaskTimeout), logger, registry),
		watch:    job.NewWatch(db, job.NewAnnouncements(rdb, namespace), settings.API.WaitPollInterval, logger),
		draining: make(chan struct{}),
	}
	s.acceptor = newAcceptor(db, settings.Accept, s.ringer,
		idempotency.NewRequests(rdb, namespace, settings.Idempotency, registry), registry)
	s.app = fiber.New(fiber.Config{
		AppName:                  "Triprize",
		DisableStartupMessage:    true,
		Immutable:                true, // strings of a request are kept beyond its handler
		BodyLimit:                settings.API.BodyLimitBytes,
		ReadTimeout:              settings.API.ReadTimeout,
		IdleTimeout:              settings.API.IdleTimeout,
		Concurrency:              settings.API.MaxConnections,
		ErrorHandler:             s.handleError,
		StreamRequestBody:        false,
		DisableHeaderNormalizing: false,
	})
	s.app.Use(s.observe, recover.New(recover.Config{EnableStackTrace: true, StackTraceHandler: s.logPanic}))
	s.mountOperations(s.app, rdb)
	s.mount(s.app)
	return s
}

// Run listens until ctx ends, then finishes what was begun, within the shutdown timeout.
func (s *Server) Run(ctx context.Context) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.settings.API.Listen)
	if err != nil {
		return err
	}
	s.logger.Info("listening", "address", listener.Addr().String())
	var background sync.WaitGroup
	watching, stopWatching := context.WithCancel(context.WithoutCancel(ctx))
	background.Go(func() { s.watch.Run(watching) })
	background.Go(func() {
		<-ctx.Done()
		s.logger.Info("shutting down: taking no new requests, finishing those at hand")
		close(s.draining)
		if err := s.app.ShutdownWithTimeout(s.settings.API.ShutdownTimeout); err != nil {
			s.logger.Warn("requests were cut off at shutdown", "error", err)
		}
		s.acceptor.close()
		s.ringer.Close()
		stopWatching()
	})
	err = s.app.Listener(listener)
	if ctx.Err() == nil && err != nil {
		return err
	}
	background.Wait()
	return nil
}

// context returns the context of one request's work in the database.
func (s *Server) context() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), requestTimeout)
}

func (s *Server) logPanic(c *fiber.Ctx, e any) {
	s.logger.Error("handler panicked", "method", c.Method(), "path", c.Path(), "request_id", requestID(c), "panic", e)
}
