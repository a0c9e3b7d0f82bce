package httpapi

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"net"
	"net/http"
	"strings"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"
	"github.com/valyala/fasthttp/fasthttpadaptor"

	"triprize/internal/domain/fault"
	"triprize/internal/entry/console"
	"triprize/internal/key"
)

// mountConsole registers the pages for operators. They are a client of the API in the same process, so a form is
// checked, limited, done once and recorded as a request is.
func (s *server) mountConsole() {
	s.sessions, s.curves = key.NewSessions(s.db, s.keys, s.settings.Draw.SecretKey), &console.Curves{}
	accounts := console.NewAccounts(s.settings.Console, s.settings.Draw.SecretKey)
	console.Mount(s.app, console.Options{
		Sessions: s.sessions, Accounts: accounts, ByKey: s.settings.Console.ByKey(), ByKeys: s.metrics.signInsByKey, Curves: s.curves,
		Logger: s.logger, Timeout: s.settings.API.RequestTimeout, Address: s.addressOf, Secure: s.isSecure,
		API: func(c *fiber.Ctx, session key.Session) http.RoundTripper {
			forwarded := bytes.Join(c.Request().Header.PeekAll(fiber.HeaderXForwardedFor), []byte(","))
			return inProcess{s.app.Handler(), session, c.Context().RemoteAddr(), string(forwarded)}
		},
		DB: s.db, Charge: func(ctx context.Context, c *fiber.Ctx, err error) error {
			if err == nil || fault.CodeOf(err) == fault.Unauthenticated {
				return s.chargeWrong(ctx, c, err)
			}
			return cmp.Or(s.slowDown(ctx, overLimit(c, s.limiter.Address(s.addressOf(c)))), err)
		},
	})
}

// isSecure reports whether a browser asks over https: a proxy that is trusted says so, the outermost of several first.
// ok is false where a cookie would travel in the clear: over http from another machine.
func (s *server) isSecure(c *fiber.Ctx) (secure, ok bool) {
	remote, isTCP := c.Context().RemoteAddr().(*net.TCPAddr)
	if isTCP && s.proxies.Trust(remote.AddrPort().Addr().Unmap()) && c.Get(fiber.HeaderXForwardedFor) != "" {
		first, _, _ := strings.Cut(c.Get(fiber.HeaderXForwardedProto), ",")
		secure = strings.EqualFold(strings.TrimSpace(first), "https")
		return secure, secure
	}
	return false, isTCP && remote.IP.IsLoopback() && !isForwarded(c) // another proxy is no browser
}

// isForwarded reports whether a request has a header that a proxy adds: Forwarded, Via, X-Forwarded-…, or an address,
// such as X-Real-IP and True-Client-IP.
func isForwarded(c *fiber.Ctx) bool {
	for name := range c.Request().Header.All() {
		if at := strings.ToLower(string(name)); at == "forwarded" || at == "via" || strings.HasPrefix(at, "x-forwarded") || strings.HasSuffix(at, "-ip") {
			return true
		}
	}
	return false
}

// inProcess sends the requests of a session to the API in this process.
type inProcess struct {
	handle    fasthttp.RequestHandler
	session   key.Session
	from      net.Addr // of the browser's connection
	forwarded string   // X-Forwarded-For of the browser's request
}

// RoundTrip implements http.RoundTripper.
func (p inProcess) RoundTrip(r *http.Request) (*http.Response, error) {
	var sent fasthttp.RequestCtx
	sent.Init(new(fasthttp.Request), p.from, nil)
	fasthttpadaptor.ConvertNetHTTPRequestToFastHTTPRequest(r, &sent.Request)
	sent.Request.Header.Del(fiber.HeaderAuthorization) // the session is who asks
	if p.forwarded != "" {
		sent.Request.Header.Set(fiber.HeaderXForwardedFor, p.forwarded)
	}
	console.ActFor(&sent, p.session)
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		p.handle(&sent)
	}()
	select { // an api whose Postgres hangs answers within its own bounds; nobody may wait for them
	case <-answered:
	case <-r.Context().Done():
		go func() {
			<-answered
			_ = sent.Response.CloseBodyStream() // its room is free again
		}()
		return nil, context.Cause(r.Context())
	}
	return http.ReadResponse(bufio.NewReader(strings.NewReader(sent.Response.String())), r)
}
