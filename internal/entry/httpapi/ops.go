package httpapi

import (
	"cmp"
	"net/http"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/gofiber/fiber/v2/middleware/adaptor"
	"github.com/hibiken/asynq"
	"github.com/hibiken/asynq/x/metrics"
	"github.com/hibiken/asynqmon"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/redis/go-redis/v9"

	"triprize/internal/domain/fault"
	"triprize/internal/platform/telemetry"
)

const (
	asynqmonPath = "/asynqmon"
	// collectPatience bounds how long /metrics waits for the metrics of the queues, from Redis.
	collectPatience = 2 * time.Second
)

// mountOperations registers what operators and orchestrators use.
func (s *Server) mountOperations(app *fiber.App) {
	app.Get("/healthz", func(c *fiber.Ctx) error { return c.JSON(fiber.Map{"status": telemetry.StatusOK}) })
	app.Get("/readyz", s.readyz)
	app.Get("/metrics", adaptor.HTTPHandler(promhttp.HandlerFor(s.registry, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError})))
}

// requireStarted refuses requests while the process waits for Postgres.
func (s *Server) requireStarted(c *fiber.Ctx) error {
	if what, starting := s.health.Starting(); starting {
		return fault.New(fault.Unavailable, "this process is starting and waits for %s; retry with the same Idempotency-Key", cmp.Or(what, "postgres"))
	}
	return c.Next()
}

// mountDashboard registers asynqmon and the metrics of the queues.
func (s *Server) mountDashboard(app *fiber.App, rdb redis.UniversalClient) {
	if client, ok := rdb.(*redis.Client); ok {
		options := asynq.RedisClientOpt{Addr: client.Options().Addr, Username: client.Options().Username,
			Password: client.Options().Password, DB: client.Options().DB, TLSConfig: client.Options().TLSConfig}
		s.registry.MustRegister(telemetry.Bounded(metrics.NewQueueMetricsCollector(asynq.NewInspectorFromRedisClient(rdb)), collectPatience))
		dashboard := asynqmon.New(asynqmon.Options{RootPath: asynqmonPath, RedisConnOpt: options, ReadOnly: s.settings.API.AsynqmonReadOnly})
		app.Use(asynqmonPath, s.authenticateBrowser, s.bounded)
		// A browser that remembers an operator's key would also send it with a form on
		// another site's page.
		app.All(asynqmonPath+"*", adaptor.HTTPHandler(http.NewCrossOriginProtection().Handler(dashboard)))
	}
}

// readyz answers 200 when Postgres answers and has the schema. Without Redis the
// process is degraded, but ready.
func (s *Server) readyz(c *fiber.Ctx) error {
	ctx, cancel := s.context()
	defer cancel()
	ready := s.health.Probe(ctx)
	return c.Status(ready.HTTPStatus()).JSON(ready)
}
