package httpapi

import (
	"bytes"
	"slices"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"

	"triprize/internal/domain/fault"
)

// onlyOnce are the header fields that a request may have only once: those that say
// where it ends, who sends it and what it is.
var onlyOnce = [...]string{theHost: fiber.HeaderHost, theLength: fiber.HeaderContentLength, theEncoding: fiber.HeaderTransferEncoding,
	3: fiber.HeaderAuthorization, 4: fiber.HeaderContentType, 5: "Idempotency-Key"}

const (
	theHost = iota
	theLength
	theEncoding
)

// unambiguous refuses requests that a proxy may have read differently, before any
// other code sees them, and closes the connection: the bytes that follow may be a
// part of the same request (request smuggling; RFC 9112, section 11.2).
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
	if version := string(h.Protocol()); version != "HTTP/1.1" && version != "HTTP/1.0" {
		return "the version of HTTP is not 1.1 or 1.0"
	}
	var times [len(onlyOnce)]int
	for line := range bytes.Lines(h.RawHeaders()) {
		line, whole := bytes.CutSuffix(line, []byte("\r\n"))
		name, value, _ := bytes.Cut(line, []byte(":"))
		if !whole || bytes.HasPrefix(line, []byte(" ")) || bytes.IndexFunc(line, func(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f }) >= 0 {
			return "header lines end with CR LF, are not folded, and have no control characters"
		}
		for i, single := range onlyOnce {
			if bytes.EqualFold(name, []byte(single)) {
				times[i]++
			}
		}
		if bytes.EqualFold(name, []byte(fiber.HeaderTransferEncoding)) && !bytes.EqualFold(bytes.Trim(value, " \t"), []byte("chunked")) {
			return "the only Transfer-Encoding known here is chunked"
		}
	}
	switch {
	case slices.Max(times[:]) > 1:
		return "a header field that is allowed once is there twice"
	case times[theLength] > 0 && times[theEncoding] > 0:
		return "a request has a Content-Length or a Transfer-Encoding, not both"
	case times[theHost] == 0 && h.IsHTTP11():
		return "a request needs a Host"
	}
	return ""
}
