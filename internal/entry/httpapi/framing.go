package httpapi

import (
	"bytes"
	"slices"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"

	"triprize/internal/domain/fault"
)

// onlyOnce are the header fields that a request may have only once: those that say
// for whom it is, who sends it and what it is. Package httpconn has refused what is
// no HTTP, and what could have two lengths.
var onlyOnce = [...]string{theHost: fiber.HeaderHost, 1: fiber.HeaderAuthorization, 2: fiber.HeaderContentType, 3: idempotencyKeyHeader}

const theHost = 0

// unambiguous refuses requests that a proxy may have read differently, before any
// other code sees them, and closes the connection.
func (s *Server) unambiguous(next fasthttp.RequestHandler) fasthttp.RequestHandler {
	return func(r *fasthttp.RequestCtx) {
		why := ambiguity(&r.Request.Header)
		if why == "" {
			next(r)
			return
		}
		c := s.app.AcquireCtx(r)
		defer s.app.ReleaseCtx(c)
		_ = s.handleError(c, fault.New(fault.InvalidRequest, "%s", why)) // it fails only if a problem cannot be encoded
		r.Response.SetConnectionClose()
	}
}

// ambiguity returns what is wrong with the head of a request, or "".
func ambiguity(h *fasthttp.RequestHeader) string {
	if !slices.Contains(fiber.DefaultMethods, string(h.Method())) {
		return "the method is not known here"
	}
	var times [len(onlyOnce)]int
	for line := range bytes.Lines(h.RawHeaders()) {
		name, _, _ := bytes.Cut(line, []byte(":"))
		for i, single := range onlyOnce {
			if bytes.EqualFold(name, []byte(single)) {
				times[i]++
			}
		}
	}
	switch {
	case slices.Max(times[:]) > 1:
		return "a header field that is allowed once is there twice"
	case times[theHost] == 0 && h.IsHTTP11():
		return "a request needs a Host"
	}
	return ""
}
