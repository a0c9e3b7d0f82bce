package response

import (
	"bufio"
	"context"
	"net/http"

	"github.com/gofiber/fiber/v2"

	"triprize/internal/entry/httpapi/call"
	"triprize/internal/platform/stream"
)

// Stream is an event stream, or 204 for a client that has seen the last
// event: browsers then stop reconnecting.
type Stream struct {
	Over     bool
	Call     *call.Call
	Draining context.Context
	Open     func() error                               // begins what the stream needs, and HEAD does not; nil: nothing
	Run      func(ctx context.Context, w *bufio.Writer) // returns when the stream ends: with ctx, if not before
	Stop     func()                                     // releases what the stream uses
}

// Send implements operations.Answer.
func (a Stream) Send(c *fiber.Ctx) error {
	if a.Over {
		return c.SendStatus(http.StatusNoContent)
	}
	if a.Open != nil && c.Method() != http.MethodHead {
		if err := a.Open(); err != nil {
			a.Stop()
			return err
		}
	}
	c.Set(fiber.HeaderContentType, stream.ContentType)
	c.Set(fiber.HeaderCacheControl, "no-store")
	c.Set("X-Accel-Buffering", "no")   // proxies must pass on events at once
	if c.Method() == http.MethodHead { // Fiber would write the end of a body although there must be none
		a.Stop()
		c.Response().Header.SetContentLength(-1) // unknown
		return nil
	}
	c.Context().SetBodyStreamWriter(func(w *bufio.Writer) {
		defer a.Stop()
		present, leave := a.Call.WhilePresent(a.Draining)
		defer leave()
		a.Run(present, w)
	})
	return nil
}
