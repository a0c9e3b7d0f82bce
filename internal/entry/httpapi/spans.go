package httpapi

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/gofiber/fiber/v2"
	"github.com/google/uuid"

	"triprize/internal/platform/telemetry"
	"triprize/internal/platform/tracing"
)

// spanKey is where a request has its span.
type spanKey struct{}

// beginSpan begins the span of a request for an operation. end ends it, once the answer is known;
// that of a stream, once it begins.
func beginSpan(c *fiber.Ctx, known *logged) (end func(route string, status int)) {
	if !tracing.On() || !strings.HasPrefix(c.Path(), "/v1/") {
		return func(string, int) {}
	}
	_, span := tracing.Serve(context.Background(), telemetry.Traceparent(c.Get(traceParentHeader)))
	if span == (tracing.Span{}) {
		return func(string, int) {}
	}
	c.Locals(spanKey{}, span)
	return func(route string, status int) {
		if !span.Recorded() {
			return
		}
		method := c.Method()
		span.Rename(method + " " + route)
		span.Set("http.request.method", method, "http.route", route, "http.response.status_code", strconv.Itoa(status), tracing.RequestID, requestID(c))
		if known.job != uuid.Nil {
			span.Set(tracing.JobID, known.job.String())
		}
		var err error
		if status >= http.StatusInternalServerError {
			err = fmt.Errorf("status %d", status)
		}
		span.End(err)
	}
}

// traceparent returns the trace that a request is in, with our sampled flag: that of its span or,
// while tracing is off, that of its sender; "": none.
func traceparent(c *fiber.Ctx) string {
	if span, ok := c.Locals(spanKey{}).(tracing.Span); ok {
		return span.Traceparent()
	}
	sent := telemetry.Traceparent(c.Get(traceParentHeader))
	if sent == "" {
		return ""
	}
	return sent[:len(sent)-len("01")] + "00"
}

// contextOf is context with the span of the request.
func (s *Server) contextOf(c *fiber.Ctx) (context.Context, context.CancelFunc) {
	ctx, cancel := s.context()
	if span, ok := c.Locals(spanKey{}).(tracing.Span); ok {
		ctx = tracing.Into(ctx, span)
	}
	return ctx, cancel
}
