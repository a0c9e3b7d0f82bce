package httpapi

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/gofiber/fiber/v2/middleware/cors"
	"github.com/google/uuid"
	"github.com/valyala/fasthttp"

	"triprize/internal/domain/fault"
	"triprize/internal/entry/console"
	"triprize/internal/entry/httpapi/body"
	"triprize/internal/entry/httpapi/call"
	"triprize/internal/entry/httpapi/resource"
	"triprize/internal/job"
	"triprize/internal/platform/batch"
	"triprize/internal/platform/httpconn"
	"triprize/internal/platform/postgres"
)

// frame calls the handlers of each request and ends its body: bytes that they have left
// unread are not the next request. Those of a sender who is not known are not waited for: the
// connection is closed after the answer.
func (s *server) frame(next fasthttp.RequestHandler) fasthttp.RequestHandler {
	return func(r *fasthttp.RequestCtx) {
		if slices.Contains(fiber.DefaultMethods, string(r.Method())) {
			next(r)
		} else {
			c := s.app.AcquireCtx(r)
			_ = s.handleError(c, fault.New(fault.InvalidRequest, "the method is unknown")) // it fails only if a problem cannot be encoded
			s.app.ReleaseCtx(c)
		}
		connection, ok := r.Conn().(*httpconn.Conn)
		if !ok {
			return
		}
		known, _ := r.UserValue(callKey{}).(*call.Call)
		if rest := r.RequestBodyStream(); rest != nil && known != nil && known.Operation != "" {
			_, _ = io.Copy(io.Discard, rest) // it is not too long: see beginBody
		}
		if !connection.HasAll() {
			r.SetConnectionClose()
		}
		endWithConnection(r, connection)
	}
}

// endWithConnection frames an answer whose length is not known to a request of HTTP/1.0, which
// knows no chunks: the end of the connection is its end.
func endWithConnection(r *fasthttp.RequestCtx, connection *httpconn.Conn) {
	answer := &r.Response
	if r.Request.Header.IsHTTP11() || answer.Header.ContentLength() != -1 {
		return
	}
	answer.SetConnectionClose()
	answer.Header.Del(fiber.HeaderTransferEncoding)
	if r.IsHead() {
		return
	}
	r.HijackSetNoResponse(true)
	r.Hijack(func(net.Conn) {
		_, err := connection.Write(answer.Header.Header())
		if err == nil {
			_, err = io.Copy(connection, answer.BodyStream())
		}
		if err != nil {
			connection.Abort()
		}
	})
}

// beginBody is called with the head of each request. A body that is too long for any
// operation is not waited for, and neither is a long one that nobody known sends, or that is a
// sign-in: the request goes on without it, and is refused when it is known who sends it.
func (s *server) beginBody(h *fasthttp.RequestHeader) fasthttp.RequestConfig {
	length := h.ContentLength()
	if length > s.settings.API.BodyLimitBytes || length > body.AtOnce && (bytes.HasPrefix(h.RequestURI(), []byte("/v1/")) && !s.isKnown(h) ||
		bytes.HasPrefix(h.RequestURI(), []byte(console.Path+"/sign-in"))) {
		h.Del(fiber.HeaderExpect)
		h.SetContentLength(0)
		h.SetConnectionClose()
	}
	return fasthttp.RequestConfig{}
}

func (s *server) isKnown(h *fasthttp.RequestHeader) bool {
	ctx, cancel := s.context()
	defer cancel()
	_, err := s.authenticate(ctx, string(h.Peek(fiber.HeaderAuthorization)))
	return fault.CodeOf(err) != fault.Unauthenticated
}

// maxHead is how large the head of a request may be: a token of the longest kind
// that is accepted (package token), and as much for everything else.
const maxHead = 16 << 10

// slowest is how long the head of a request may take, and a body or the reading of an answer may be slower than 2 KiB/s.
const slowest = 10 * time.Second

func (s *server) listen(ctx context.Context) (net.Listener, error) {
	api := s.settings.API
	return httpconn.Listen(ctx, api.Listen, httpconn.Options{
		MaxOpen: api.MaxConnections, MaxPerAddress: api.MaxConnectionsPerAddress, MaxHead: maxHead,
		ReadTimeout: cmp.Or(api.ReadTimeout, slowest), WriteTimeout: cmp.Or(api.WriteTimeout, slowest), IdleTimeout: api.IdleTimeout, Refuse: refusal,
	}, s.registry)
}

// refusals are the problems of requests that no handler gets to see.
var refusals = map[httpconn.Reason]*fault.Error{
	httpconn.TooMany:        fault.New(fault.Overloaded, "too many connections are open; retry later, with the same Idempotency-Key"),
	httpconn.TooSlow:        fault.New(fault.RequestTimeout, "the request did not arrive in time"),
	httpconn.TooLarge:       fault.New(fault.HeadersTooLarge, "the request line and the header fields are larger than the %d KiB that this server accepts", maxHead>>10),
	httpconn.BadRequestLine: fault.New(fault.InvalidRequest, "the request line must be method, target, and HTTP/1.1 or HTTP/1.0, separated by one space, and end with CR LF"),
	httpconn.BadHeader:      fault.New(fault.InvalidRequest, "a header line must be a name, a colon and a value without control characters, end with CR LF, and not be folded"),
	httpconn.BadLength:      fault.New(fault.InvalidRequest, "a request must have one numeric Content-Length, and no Transfer-Encoding with it"),
	httpconn.Repeated:       fault.New(fault.InvalidRequest, "a header field that is allowed once was sent twice"),
	httpconn.LengthRequired: fault.New(fault.LengthRequired, "send Content-Length; Transfer-Encoding is not accepted"),
}

// refusal returns the answer to such a request, after which its connection is closed.
func refusal(reason httpconn.Reason) []byte {
	p := resource.Problem(refusals[reason])
	p.Instance, p.RequestID = "/", uuid.NewString() // what it asked for is not known
	body, _ := json.Marshal(p)                      // it has only strings and numbers
	retry := ""
	if p.Status == http.StatusServiceUnavailable {
		retry = fmt.Sprintf("Retry-After: %d\r\n", job.MinRetryAfter)
	}
	return fmt.Appendf(nil, "HTTP/1.1 %d %s\r\nContent-Type: application/problem+json\r\nContent-Length: %d\r\n%s: %s\r\n%s%s: %s\r\n%s: %s\r\nConnection: close\r\n\r\n%s",
		p.Status, http.StatusText(p.Status), len(body), requestIDHeader, p.RequestID, retry, "Cache-Control", notStored, "X-Content-Type-Options", nosniff, body)
}

// The headers that scripts of other origins may send and read, beside those of every script.
var (
	mayBeSent = []string{fiber.HeaderAuthorization, fiber.HeaderContentType, idempotencyKeyHeader, fiber.HeaderIfMatch, fiber.HeaderIfNoneMatch,
		"Last-Event-ID", "Prefer", requestIDHeader, "Triprize-Reason", "Triprize-Operator", "traceparent", "tracestate"}
	mayBeRead = []string{fiber.HeaderLocation, fiber.HeaderETag, fiber.HeaderRetryAfter, requestIDHeader, "Idempotent-Replayed", "Preference-Applied",
		"RateLimit", "RateLimit-Policy", fiber.HeaderWWWAuthenticate}
)

// shareAcrossOrigins lets scripts of the allowed origins call the API; browsers keep it from
// all others. Their users have tokens, which scripts send themselves: there are no cookies, and
// no credentials that a browser adds. It stands before everything that may refuse a request, so
// that a script can read why. A preflight is answered here: it reads nothing.
func shareAcrossOrigins(allows func(origin string) bool) fiber.Handler {
	return cors.New(cors.Config{
		AllowOriginsFunc: allows,
		AllowMethods:     strings.Join([]string{fiber.MethodGet, fiber.MethodHead, fiber.MethodPost, fiber.MethodPatch, fiber.MethodDelete}, ","),
		AllowHeaders:     strings.Join(mayBeSent, ","),
		ExposeHeaders:    strings.Join(mayBeRead, ","),
		MaxAge:           3600, // seconds: how long a browser may keep the answer to a preflight
	})
}

func (s *server) handleError(c *fiber.Ctx, err error) error {
	f := classify(err)
	p := resource.Problem(f)
	p.Instance, p.RequestID = c.Path(), requestID(c)
	known, observed := callOf(c)
	known.Code = f.Code
	switch p.Status {
	case http.StatusInternalServerError:
		known.Err = err
	case http.StatusServiceUnavailable:
		known.Err = err
		c.Set(fiber.HeaderRetryAfter, strconv.Itoa(s.queueWaits.RetryAfterError(err)))
	case http.StatusTooManyRequests:
		if len(c.Response().Header.Peek(fiber.HeaderRetryAfter)) == 0 { // too many streams: it is not known when one ends
			c.Set(fiber.HeaderRetryAfter, strconv.Itoa(job.MinRetryAfter))
		}
	case http.StatusUnauthorized:
		c.Set(fiber.HeaderWWWAuthenticate, s.challenge(c, err))
	}
	if _, replayed := errors.AsType[*replayedRefusal](err); replayed {
		c.Set("Idempotent-Replayed", "true")
	}
	c.Set(fiber.HeaderCacheControl, notStored)
	c.Set(fiber.HeaderXContentTypeOptions, nosniff)
	c.Status(p.Status)
	if err := c.JSON(p); err != nil {
		return err
	}
	c.Set(fiber.HeaderContentType, "application/problem+json")
	if !observed {
		s.log(c, known, p.Status, 0)
	}
	return nil
}

func classify(err error) *fault.Error {
	if f, ok := errors.AsType[*fault.Error](err); ok {
		return f
	}
	if f, ok := errors.AsType[*fiber.Error](err); ok {
		if known, ok := framework[f.Code]; ok {
			return known
		}
		if f.Code != http.StatusInternalServerError {
			return fault.Wrap(fault.InvalidRequest, f, "the request cannot be read: its header, path or query is not valid HTTP, Host is missing, or a field was sent twice")
		}
	}
	switch {
	case errors.Is(err, batch.ErrFull), errors.Is(err, postgres.ErrNoPermit):
		return fault.Wrap(fault.Overloaded, err, "too many requests are waiting; retry with the same Idempotency-Key")
	case errors.Is(err, batch.ErrClosed):
		return fault.Wrap(fault.Unavailable, err, "this server is shutting down; retry with the same Idempotency-Key")
	case postgres.IsLockTimeout(err):
		return fault.Wrap(fault.Unavailable, err, "another transaction has locked what this needs; nothing was done, retry with the same Idempotency-Key")
	case postgres.IsTransient(err):
		return fault.Wrap(fault.Unavailable, err, "the outcome is unknown; retry with the same Idempotency-Key")
	default:
		return fault.From(err)
	}
}

// framework has the errors of Fiber that have a code of their own, by status.
var framework = map[int]*fault.Error{
	http.StatusNotFound:                    fault.New(fault.NotFound, "there is nothing at this path"),
	http.StatusMethodNotAllowed:            fault.New(fault.MethodNotAllowed, "this path does not allow this method; the Allow header lists those it does"),
	http.StatusRequestEntityTooLarge:       fault.New(fault.BodyTooLarge, "the request is larger than this server accepts"),
	http.StatusUnsupportedMediaType:        fault.New(fault.UnsupportedMediaType, "send the body as application/json"),
	http.StatusRequestTimeout:              fault.New(fault.RequestTimeout, "the request did not arrive in time"),
	http.StatusRequestHeaderFieldsTooLarge: fault.New(fault.HeadersTooLarge, "the header fields are larger than this server accepts"),
}

// requireStarted refuses requests while the process waits for Postgres.
func (s *server) requireStarted(c *fiber.Ctx) error {
	if what, starting := s.health.Starting(); starting {
		return fault.New(fault.Unavailable, "this process is starting and waits for %s; retry with the same Idempotency-Key", cmp.Or(what, "postgres"))
	}
	return c.Next()
}
