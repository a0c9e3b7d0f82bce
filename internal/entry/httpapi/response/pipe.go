package response

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/gofiber/fiber/v2"
)

// Pipe sends a body as slowly as its reader reads it, within a time. When it cannot be
// finished, the connection is cut, so that nobody takes a part for the whole.
type Pipe struct {
	Sending context.Context // ends when what is still sent at shutdown is cut off
	Timeout time.Duration
	Release func() // called when nothing is sent any more
	Write   func(ctx context.Context, w io.Writer) error
	Ended   func(outcome string, err error) // sent, cut (the reader was gone or too slow) or failed
}

// Send sends the body. To HEAD it sends none.
func (p Pipe) Send(c *fiber.Ctx) error {
	if c.Method() == http.MethodHead {
		p.Release()
		c.Response().Header.SetContentLength(-1) // unknown
		return nil
	}
	reader, writer := io.Pipe()
	go p.run(writer)
	c.Context().SetBodyStream(reader, -1)
	return nil
}

// run writes the body. The server closes the pipe when the connection is gone, and waits at
// shutdown until every place is released.
func (p Pipe) run(w *io.PipeWriter) {
	defer p.Release()
	ctx, cancel := context.WithTimeout(p.Sending, p.Timeout)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = w.CloseWithError(context.Cause(ctx)) })
	defer stop()
	err := p.Write(ctx, w)
	_ = w.CloseWithError(err) // nil: the end
	outcome := "sent"
	switch {
	case err == nil:
	case errors.Is(err, io.ErrClosedPipe), ctx.Err() != nil:
		outcome = "cut"
	default:
		outcome = "failed"
	}
	p.Ended(outcome, err)
}
