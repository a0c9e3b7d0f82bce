package httpapi

import (
	"cmp"
	"errors"
	"net/http"
	"strconv"

	"github.com/gofiber/fiber/v2"

	"triprize/internal/domain/fault"
	"triprize/internal/entry/httpapi/resource"
	"triprize/internal/platform/batch"
	"triprize/internal/platform/postgres"
)

// handleError answers a request whose handler returned an error.
func (s *Server) handleError(c *fiber.Ctx, err error) error {
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
		c.Set(fiber.HeaderRetryAfter, strconv.Itoa(s.backlog.retryAfterError(err)))
	case http.StatusTooManyRequests:
		if len(c.Response().Header.Peek(fiber.HeaderRetryAfter)) == 0 { // too many streams: it is not known when one ends
			c.Set(fiber.HeaderRetryAfter, strconv.Itoa(minRetryAfter))
		}
	case http.StatusUnauthorized:
		c.Set(fiber.HeaderWWWAuthenticate, challenge(c, err))
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

// classify turns any error of a handler into a fault.Error.
func classify(err error) *fault.Error {
	if f, ok := errors.AsType[*fault.Error](err); ok {
		return f
	}
	if f, ok := errors.AsType[*fiber.Error](err); ok {
		return ofFramework(f)
	}
	switch {
	case errors.Is(err, batch.ErrFull), errors.Is(err, postgres.ErrCrowded):
		return fault.Wrap(fault.Overloaded, err, "too many requests are waiting; retry with the same Idempotency-Key")
	case errors.Is(err, batch.ErrClosed):
		return fault.Wrap(fault.Unavailable, err, "this server is shutting down; retry with the same Idempotency-Key")
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

// ofFramework translates errors of Fiber.
func ofFramework(f *fiber.Error) *fault.Error {
	if known, ok := framework[f.Code]; ok {
		return known
	}
	if f.Code == http.StatusInternalServerError {
		return fault.From(f)
	}
	return fault.Wrap(fault.InvalidRequest, f, "the request cannot be read: its header, path or query is not valid HTTP, it has no Host, or something twice")
}

// requireStarted refuses requests while the process waits for Postgres.
func (s *Server) requireStarted(c *fiber.Ctx) error {
	if what, starting := s.health.Starting(); starting {
		return fault.New(fault.Unavailable, "this process is starting and waits for %s; retry with the same Idempotency-Key", cmp.Or(what, "postgres"))
	}
	return c.Next()
}
