package console

import (
	"context"
	"time"

	"github.com/gofiber/fiber/v2"

	"triprize.example/client"
)

// spans are those that a link of the page names. A week is the most that the API reads: it begins in the minute after.
var spans = map[string]time.Duration{"hour": time.Hour, "day": 24 * time.Hour, "week": 7*24*time.Hour - 2*time.Minute}

// mountFailed registers the page of the failures that are the installation's.
func (c *console) mountFailed(r fiber.Router) {
	r.Get("/failed", func(f *fiber.Ctx) error {
		length, known := spans[f.Query("span", "hour")]
		if !known {
			return fiber.ErrNotFound
		}
		ctx, cancel := context.WithTimeout(context.Background(), c.Timeout)
		defer cancel()
		since := time.Now().UTC().Truncate(time.Minute).Add(-length) // to the minute: all who look share one read
		list, err := c.api(f).ListFailures(ctx, client.ListFailuresParams{Since: since})
		if err != nil {
			return err
		}
		return c.show(f, "failed", view{Title: "Failed by us", Data: list})
	})
}
