package httpapi

import (
	"bytes"
	"io"
	"net"
	"slices"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"

	"triprize/internal/domain/fault"
	"triprize/internal/entry/httpapi/body"
	"triprize/internal/platform/httpconn"
)

// frame calls the handlers of each request and ends its body: bytes that they have left
// unread are not the next request. Those of a sender who is not known are not waited for: the
// connection is closed after the answer.
func (s *Server) frame(next fasthttp.RequestHandler) fasthttp.RequestHandler {
	return func(r *fasthttp.RequestCtx) {
		if slices.Contains(fiber.DefaultMethods, string(r.Method())) {
			next(r)
		} else {
			c := s.app.AcquireCtx(r)
			_ = s.handleError(c, fault.New(fault.InvalidRequest, "the method is not known here")) // it fails only if a problem cannot be encoded
			s.app.ReleaseCtx(c)
		}
		connection, ok := r.Conn().(*httpconn.Conn)
		if !ok {
			return
		}
		known, _ := r.UserValue(loggedKey{}).(*logged)
		if rest := r.RequestBodyStream(); rest != nil && known != nil && known.operation != "" {
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
