package httpapi

import (
	"encoding/base64"
	"strings"

	"github.com/gofiber/fiber/v2"

	"triprize/internal/apikey"
	"triprize/internal/fault"
)

// authenticate returns the API key of a request: Authorization: Bearer tp_….
func (s *Server) authenticate(c *fiber.Ctx) (apikey.Key, error) {
	scheme, token, _ := strings.Cut(c.Get(fiber.HeaderAuthorization), " ")
	if !strings.EqualFold(scheme, "Bearer") || token == "" {
		return apikey.Key{}, fault.New(fault.Unauthenticated, "send an API key: Authorization: Bearer tp_…")
	}
	ctx, cancel := s.context()
	defer cancel()
	return s.keys.Verify(ctx, strings.TrimSpace(token))
}

// authenticateBrowser returns the operator's key that a browser sends as the
// password of HTTP Basic authentication; the user name does not matter.
func (s *Server) authenticateBrowser(c *fiber.Ctx) error {
	scheme, encoded, _ := strings.Cut(c.Get(fiber.HeaderAuthorization), " ")
	plain, err := base64.StdEncoding.DecodeString(encoded)
	_, password, ok := strings.Cut(string(plain), ":")
	if !strings.EqualFold(scheme, "Basic") || err != nil || !ok {
		return fault.New(fault.Unauthenticated, "sign in with any user name and an operator's API key as the password")
	}
	ctx, cancel := s.context()
	defer cancel()
	who, err := s.keys.Verify(ctx, password)
	if err != nil {
		return err
	}
	if who.Role != apikey.Operator {
		return errForbidden(who.Role)
	}
	return c.Next()
}

func errForbidden(role apikey.Role) error {
	return fault.New(fault.Forbidden, "a key with the role %s may not do this", role)
}

// challenge tells a client how to authenticate: browsers get a prompt on the pages for operators.
func challenge(c *fiber.Ctx) string {
	if strings.HasPrefix(c.Path(), asynqmonPath) {
		return `Basic realm="Triprize operators", charset="UTF-8"`
	}
	return `Bearer realm="Triprize"`
}
