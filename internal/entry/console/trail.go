package console

import (
	"context"

	"github.com/gofiber/fiber/v2"

	"triprize.example/client"
	"triprize/internal/trail"
)

// mountTrail registers the page of the audit trail. It does not move: what operators do they do seldom.
func (c *console) mountTrail(r fiber.Router) {
	r.Get("/trail", func(f *fiber.Ctx) error {
		ctx, cancel := context.WithTimeout(context.Background(), c.Timeout)
		defer cancel()
		target := f.Query("target")
		page, err := c.api(f).ListAuditTrail(ctx, client.ListAuditTrailParams{Target: target, Cursor: f.Query("cursor"), Limit: 50})
		if err != nil {
			return err
		}
		return c.show(f, "trail", view{Title: "Trail", Data: fiber.Map{"Target": target, "Page": page, "Operations": trail.Operations}})
	})
}
