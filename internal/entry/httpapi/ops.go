package httpapi

import (
	"cmp"

	"github.com/gofiber/fiber/v2"

	"triprize/internal/domain/fault"
	"triprize/internal/platform/telemetry"
)

// mountOperations registers what operators and orchestrators use.
func (s *Server) mountOperations(app *fiber.App) {
	app.Get("/healthz", func(c *fiber.Ctx) error { return c.JSON(fiber.Map{"status": telemetry.StatusOK}) })
	app.Get("/readyz", s.readyz)
}

// requireStarted refuses requests while the process waits for Postgres.
func (s *Server) requireStarted(c *fiber.Ctx) error {
	if what, starting := s.health.Starting(); starting {
		return fault.New(fault.Unavailable, "this process is starting and waits for %s; retry with the same Idempotency-Key", cmp.Or(what, "postgres"))
	}
	return c.Next()
}

// readyz answers 200 when Postgres answers and has the schema. Without Redis the
// process is degraded, but ready.
func (s *Server) readyz(c *fiber.Ctx) error {
	ready := s.health.Ready()
	return c.Status(ready.HTTPStatus()).JSON(ready)
}
