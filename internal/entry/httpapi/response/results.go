package response

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/google/uuid"

	"triprize/internal/entry/httpapi/call"
	"triprize/internal/entry/httpapi/contract"
	"triprize/internal/job"
	"triprize/internal/platform/stream"
)

// Result answers with a job, or with the result of a command; for a repeated request, with that of
// the first one. It is encoded already, because the answer of a final job may come from Redis.
type Result struct {
	Status     int
	Body       []byte
	Replayed   bool
	Location   string       // of the job, or of the created resource; empty: there is none
	Version    *int64       // of a wallet
	Job        uuid.UUID    // zero: it is no job's
	Problem    *job.Problem // of a job that has failed, unless it was replayed from Redis
	Wait       Wait         // as it was granted
	RetryAfter int          // seconds; 0 for what is final
}

// Send implements operations.Answer.
func (a Result) Send(c *fiber.Ctx) error {
	if a.Job != uuid.Nil {
		a.Location = "/v1/jobs/" + a.Job.String()
	}
	if a.Location != "" {
		c.Set(fiber.HeaderLocation, a.Location)
	}
	if a.Version != nil {
		c.Set(fiber.HeaderETag, VersionTag(*a.Version))
	}
	if a.Wait.Longest > 0 {
		c.Set("Preference-Applied", a.Wait.String())
	}
	if a.RetryAfter > 0 {
		c.Set(fiber.HeaderRetryAfter, strconv.Itoa(a.RetryAfter))
	}
	return SendJSON(c, a.Status, a.Replayed, a.Body)
}

// WithSecret adds a secret that was made just now to the answer, which is stored without.
func (a Result) WithSecret(secret string) (Result, error) {
	if secret == "" {
		return a, nil
	}
	var document contract.WebhookEndpoint
	if err := json.Unmarshal(a.Body, &document); err != nil {
		return Result{}, err
	}
	document.Secret = secret
	body, err := json.Marshal(document) //nolint:gosec // the maker of the secret is shown it, once
	a.Body = body
	return a, err
}

// VersionTag is the entity tag of a wallet: its version, for If-Match.
func VersionTag(version int64) string { return `"` + strconv.FormatInt(version, 10) + `"` }

// SendJSON answers with a document of JSON. Replayed: the answer of the first request with this key.
func SendJSON(c *fiber.Ctx, status int, replayed bool, body []byte) error {
	if replayed {
		c.Set("Idempotent-Replayed", "true")
	}
	c.Set(fiber.HeaderContentType, fiber.MIMEApplicationJSON)
	return c.Status(status).Send(body)
}

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
