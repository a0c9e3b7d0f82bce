package httpapi

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"

	"triprize/internal/entry/console"
	"triprize/internal/entry/lookup"
	"triprize/internal/key"
)

// mountConsole registers the pages for operators. They are a client of the API in the same process, so a form is
// checked, limited, done once and recorded as a request is.
func (s *server) mountConsole() error {
	sessions, err := key.NewSessions(s.db, s.keys, s.settings.Draw.SecretKey)
	if err != nil {
		return err
	}
	s.sessions, s.curves = sessions, &console.Curves{}
	return console.Mount(s.app, console.Options{
		Sessions: sessions, Curves: s.curves, Logger: s.logger, Timeout: s.settings.API.RequestTimeout,
		API: func(c *fiber.Ctx, session key.Session) http.RoundTripper {
			return inProcess{s.app.Handler(), session, origin{remote: c.Context().RemoteAddr(), local: c.Context().LocalAddr()}, c.Get(fiber.HeaderXForwardedFor)}
		},
		As: func(c *fiber.Ctx, session key.Session) { c.Context().SetUserValue(sessionKey{}, session) },
		Find: func(ctx context.Context, text string, kinds ...string) ([]lookup.Hit, error) {
			return lookup.Find(ctx, s.db, text, kinds...)
		},
		Charge: func(c *fiber.Ctx, err error) error {
			ctx, cancel := s.context()
			defer cancel()
			return s.chargeWrong(ctx, c, err)
		},
		Secure: s.isSecure,
	})
}

// isSecure reports whether a browser asks over https: a proxy that is trusted says so. ok is false where a cookie
// would travel in the clear: over http from another machine.
func (s *server) isSecure(c *fiber.Ctx) (secure, ok bool) {
	remote, isTCP := c.Context().RemoteAddr().(*net.TCPAddr)
	if isTCP && s.proxies.Trust(remote.AddrPort().Addr().Unmap()) && c.Get(fiber.HeaderXForwardedFor) != "" {
		secure = c.Get(fiber.HeaderXForwardedProto) == "https"
		return secure, secure
	}
	return false, isTCP && remote.IP.IsLoopback()
}

// inProcess sends the requests of a session to the API in this process.
type inProcess struct {
	handle    fasthttp.RequestHandler
	session   key.Session
	from      origin
	forwarded string // X-Forwarded-For of the browser's request
}

// origin is the connection of a request that has none: it has the browser's address.
type origin struct {
	net.Conn
	remote, local net.Addr
}

// RemoteAddr implements net.Conn.
func (o origin) RemoteAddr() net.Addr { return o.remote }

// LocalAddr implements net.Conn.
func (o origin) LocalAddr() net.Addr { return o.local }

type sessionKey struct{}

// sessionOf returns the session of a request from the console.
func sessionOf(c *fiber.Ctx) (session key.Session, ok bool) {
	session, ok = c.Context().UserValue(sessionKey{}).(key.Session)
	return session, ok
}

// RoundTrip implements http.RoundTripper.
func (p inProcess) RoundTrip(r *http.Request) (*http.Response, error) {
	var sent fasthttp.RequestCtx
	sent.Init2(p.from, nil, false)
	request := &sent.Request
	request.Header.SetMethod(r.Method)
	request.SetRequestURI(r.URL.RequestURI())
	request.Header.SetHost(r.URL.Host)
	for name, values := range r.Header {
		for _, value := range values {
			request.Header.Add(name, value)
		}
	}
	request.Header.Del(fiber.HeaderAuthorization) // the session is who asks
	if p.forwarded != "" {
		request.Header.Set(fiber.HeaderXForwardedFor, p.forwarded)
	}
	if r.Body != nil {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		if len(body) > 0 {
			request.SetBodyStream(bytes.NewReader(body), len(body))
		}
	}
	sent.SetUserValue(sessionKey{}, p.session)
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		p.handle(&sent)
	}()
	select { // an api whose Postgres hangs answers within its own bounds; nobody may wait for them
	case <-answered:
	case <-r.Context().Done():
		return nil, context.Cause(r.Context())
	}
	answer := &http.Response{StatusCode: sent.Response.StatusCode(), Header: make(http.Header), Request: r, ProtoMajor: 1, ProtoMinor: 1}
	for name, value := range sent.Response.Header.All() {
		answer.Header.Add(string(name), string(value))
	}
	body := sent.Response.Body()
	answer.Body, answer.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	return answer, nil
}
