package console

import (
	"context"

	"github.com/gofiber/fiber/v2"

	"triprize.example/client"
)

// mountNow registers the page that says whether anything is wrong.
func (c *console) mountNow(r fiber.Router) {
	c.livePage(r, "/now", "now", "", "Now", func(ctx context.Context, api *client.Client, _ string) (any, error) {
		return api.ListSweeps(ctx)
	}, nil)
}
