package httpapi

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"net/url"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"triprize/internal/domain/fault"
	"triprize/internal/entry/console"
	"triprize/internal/entry/httpapi/call"
	"triprize/internal/entry/httpapi/resource"
	"triprize/internal/key"
	"triprize/internal/platform/httpconn"
	"triprize/internal/platform/openapi"
	"triprize/internal/platform/telemetry"
	"triprize/internal/platform/token"
)

// authenticate returns the sender of a request by its Authorization header: Bearer,
// and an API key or a JSON Web Token.
func (s *server) authenticate(ctx context.Context, authorization string) (call.Caller, error) {
	scheme, credentials, _ := strings.Cut(authorization, " ")
	credentials = strings.TrimSpace(credentials)
	if !strings.EqualFold(scheme, "Bearer") || credentials == "" {
		return call.Caller{}, fault.New(fault.Unauthenticated, "send an API key or a token: Authorization: Bearer tp_…")
	}
	if strings.Count(credentials, ".") == 2 { // API keys have no dot
		claims, err := s.tokens.Verify(ctx, credentials)
		if err != nil {
			if why, ok := errors.AsType[*token.Refusal](err); ok {
				s.metrics.refusedTokens.WithLabelValues(why.Reason).Inc()
				s.logger.InfoContext(telemetry.Sampled(""), "a token is refused", "reason", why.Reason) //nolint:contextcheck // it only says how the line is written
			}
			return call.Caller{}, err
		}
		who := call.Caller{Role: resource.Role(claims.Role), Client: claims.Client(), App: cmp.Or(s.settings.Tokens.Client, claims.Client())}
		if who.Role == resource.User {
			who.User = claims.Subject
		}
		return who, nil
	}
	return s.ofKey(ctx, credentials)
}

// ofKey returns the sender of a request by its API key.
func (s *server) ofKey(ctx context.Context, credentials string) (call.Caller, error) {
	key, err := s.keys.Verify(ctx, credentials)
	return call.Caller{Role: resource.Role(key.Role), Client: key.Client, App: key.Client, KeyPrefix: key.Prefix}, err
}

// identify returns the sender of a request: as authenticate does, or an anonymous caller where
// the operation is open to them. An anonymous caller has paid for the request by the limit of
// its address.
func (s *server) identify(ctx context.Context, c *fiber.Ctx, o *openapi.Operation) (who call.Caller, err error) {
	if session := console.SessionOf(c); session.Client != "" {
		who = callerOf(session)
		who.Console = true
		return who, nil
	}
	authorization := c.Get(fiber.HeaderAuthorization)
	if o.Open && authorization == "" {
		address := s.addressOf(c)
		return call.Caller{Role: resource.Anonymous, Client: address}, s.slowDown(ctx, overLimit(c, s.limiter.Address(address)))
	}
	who, err = s.authenticate(ctx, authorization)
	return who, s.chargeWrong(ctx, c, err)
}

// callerOf returns who acts in a session of the console. Who has no role but that of an approver reads as a viewer does.
func callerOf(session key.Session) call.Caller {
	who := call.Caller{Role: resource.Viewer, Client: session.Client, App: session.Client, KeyPrefix: session.KeyPrefix, Approves: session.Has(key.Approver)}
	if session.Has(key.Operator) {
		who.Role = resource.Operator
	}
	return who
}

// addressOf returns the address of a caller.
func (s *server) addressOf(c *fiber.Ctx) string {
	if len(s.proxies) == 0 {
		return httpconn.AddressOf(c.Context().Conn()).String()
	}
	return s.proxies.AddressOf(c.Context().Conn(), c.Request().Header.PeekAll(fiber.HeaderXForwardedFor)).String()
}

// chargeWrong charges a wrong credential to the address that it comes from, and makes the
// sender wait when that has sent too many. A right one is never refused.
func (s *server) chargeWrong(ctx context.Context, c *fiber.Ctx, err error) error {
	if fault.CodeOf(err) != fault.Unauthenticated {
		return err
	}
	if overLimit(c, s.limiter.WrongKey(s.addressOf(c))) == nil {
		return err
	}
	return s.slowDown(ctx, fault.Wrap(fault.RateLimited, err, "too many invalid credentials from your address; valid ones are still accepted"))
}

const (
	slowedDown = time.Second // how long an address, or a user with a token, that is over its limit waits for its answer
	mostSlowed = 1024        // answers that wait; others are given at once
)

// slowDown makes the sender wait for a refusal. So a flood costs what its
// connections can send in this time, and not what the processor can refuse.
func (s *server) slowDown(ctx context.Context, refusal error) error {
	if refusal == nil || !s.slowed.TryAcquire(1) {
		return refusal
	}
	defer s.slowed.Release(1)
	wait := time.NewTimer(slowedDown)
	defer wait.Stop()
	select {
	case <-wait.C:
	case <-ctx.Done():
	case <-s.draining.Done():
	}
	return refusal
}

// authenticateBrowser lets operators and viewers through: with a session of the console, or, unless accounts sign in, with
// their API key as the password of HTTP Basic authentication. The user name does not matter.
func (s *server) authenticateBrowser(c *fiber.Ctx) error {
	known, _ := callOf(c)
	byAccount := s.settings.Console.ByAccount()
	if byAccount || c.Get(fiber.HeaderAuthorization) == "" {
		polls := c.Method() == fiber.MethodGet && strings.HasPrefix(c.Path(), asynqmonPath+"/api/") // by itself: it keeps no session alive
		session, err := console.Options{Sessions: s.sessions, ByKey: s.settings.Console.ByKey(), Secure: s.isSecure, Timeout: s.settings.API.RequestTimeout}.Session(c, !polls)
		to := console.Path + "/sign-in?to=" + url.QueryEscape(c.OriginalURL())
		switch {
		case err == nil && !console.IsStale(c, session):
			known.Caller = callerOf(session)
			return c.Next()
		case err == nil:
			to = console.Renewal(c.OriginalURL())
		case fault.CodeOf(err) != fault.Unauthenticated:
			return err
		}
		if byAccount && c.Method() == fiber.MethodGet && !polls {
			return c.Redirect(to, fiber.StatusSeeOther)
		} else if byAccount {
			return fault.New(fault.Unauthenticated, "sign in at %s", console.Path)
		}
	}
	scheme, encoded, _ := strings.Cut(c.Get(fiber.HeaderAuthorization), " ")
	plain, err := base64.StdEncoding.DecodeString(encoded)
	_, password, ok := strings.Cut(string(plain), ":")
	if !strings.EqualFold(scheme, "Basic") || err != nil || !ok {
		return fault.New(fault.Unauthenticated, "sign in at /console, or with any user name and an operator's API key as the password")
	}
	ctx, cancel := s.context()
	defer cancel()
	who, err := s.ofKey(ctx, password)
	if err != nil {
		return s.chargeWrong(ctx, c, err)
	}
	known.Caller = who
	if err := who.May([]string{string(resource.Operator), string(resource.Viewer)}); err != nil {
		return err
	}
	return c.Next()
}

// challenge returns the WWW-Authenticate header: on the pages for operators it makes
// browsers ask for a password; of a token with a right signature it says what is wrong (RFC 6750).
func (s *server) challenge(c *fiber.Ctx, err error) string {
	if strings.HasPrefix(c.Path(), asynqmonPath) && !s.settings.Console.ByAccount() {
		return `Basic realm="Triprize operators", charset="UTF-8"`
	}
	if why, ok := errors.AsType[*token.Refusal](err); ok && why.Claim != "" {
		return `Bearer realm="Triprize", error="invalid_token", error_description="` + why.Claim + `"`
	}
	return `Bearer realm="Triprize"`
}
