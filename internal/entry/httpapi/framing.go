package httpapi

import (
	"bytes"
	"io"
	"net/http"
	"slices"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"

	"triprize/internal/domain/fault"
	"triprize/internal/entry/httpapi/body"
	"triprize/internal/platform/httpconn"
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

// beginBody is called with the head of each request. A body that is too long for any
// operation is not waited for, and neither is a long one that nobody known sends: the
// request goes on without it, and is refused when it is known who sends it.
func (s *Server) beginBody(h *fasthttp.RequestHeader) fasthttp.RequestConfig {
	length := h.ContentLength()
	if length > s.settings.API.BodyLimitBytes || length > body.AtOnce && bytes.HasPrefix(h.RequestURI(), []byte("/v1/")) && !s.isKnown(h) {
		h.Del(fiber.HeaderExpect)
		h.SetContentLength(0)
		h.SetConnectionClose()
	}
	return fasthttp.RequestConfig{}
}

// isKnown tells whether a request has a right credential.
func (s *Server) isKnown(h *fasthttp.RequestHeader) bool {
	ctx, cancel := s.context()
	defer cancel()
	_, err := s.authenticate(ctx, string(h.Peek(fiber.HeaderAuthorization)))
	return fault.CodeOf(err) != fault.Unauthenticated
}

// endBody ends the body of each request: bytes that its handler has left unread are
// thrown away, so that they are not taken for the next request. When that would be too much,
// or their sender is not known and they are still to come, the connection is closed after the
// answer.
func (s *Server) endBody(next fasthttp.RequestHandler) fasthttp.RequestHandler {
	return func(r *fasthttp.RequestCtx) {
		next(r)
		length := body.Announced(&r.Request.Header)
		if length == 0 || length > 0 && !r.Request.IsBodyStream() && !r.IsGet() && !r.IsHead() {
			return // there is none, or it was read
		}
		rest, most := r.RequestBodyStream(), int64(s.settings.API.BodyLimitBytes)
		if rest == nil || length < 0 || int64(length) > most || r.IsGet() || r.IsHead() || !isWaitedFor(r) { // fasthttp does not read the body of a GET to its end, and where chunks end is not sure
			r.SetConnectionClose()
			return
		}
		if n, err := io.Copy(io.Discard, io.LimitReader(rest, most+1)); err != nil || n > most {
			r.SetConnectionClose()
		}
	}
}

// isWaitedFor tells whether the answer may wait for the rest of the body.
func isWaitedFor(r *fasthttp.RequestCtx) bool {
	if known, ok := r.UserValue(loggedKey{}).(*logged); ok && known.operation != "" { // its sender is known
		return true
	}
	connection, ok := r.Conn().(*httpconn.Conn)
	return ok && connection.HasAll()
}

// bounded reads the body of a request to a page of ours that checks it itself.
func (s *Server) bounded(c *fiber.Ctx) error {
	if c.Method() == http.MethodGet || c.Method() == http.MethodHead {
		return c.Next()
	}
	ctx, cancel := s.context()
	defer cancel()
	if err := s.bodies.Read(ctx, c, asynqmonPath, min(pageBody, s.settings.API.BodyLimitBytes), func([]byte) error { return nil }); err != nil {
		return err
	}
	return c.Next()
}

// pageBody is the longest body of a request to a page for operators.
const pageBody = 64 << 10
