package httpapi

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"net"
	"slices"
	"strings"

	"github.com/gofiber/fiber/v2"

	"triprize/internal/domain/fault"
	"triprize/internal/entry/httpapi/resource"
	"triprize/internal/platform/httpconn"
	"triprize/internal/platform/openapi"
)

// role decides what a caller may do, and what it sees.
type role = resource.Role

const (
	operator = resource.Operator
	app      = resource.App
	user     = resource.User
	viewer   = resource.Viewer
	stranger = resource.Stranger
)

// caller is the sender of a request.
type caller struct {
	role   role
	client string // the scope of its idempotency keys, and of the jobs that it sees
	user   string // the one user it may act for; empty: any
}

// mayActFor tells whether the caller may see and change what belongs to a user.
func (who caller) mayActFor(userID string) bool {
	switch who.role {
	case operator, app:
		return true
	case user:
		return who.user == userID
	default:
		return false
	}
}

// mayPayBy returns a forbidden Error when the caller may not use a payment method:
// only apps and operators may say that they have collected the money (external).
func (who caller) mayPayBy(paymentMethod string) error {
	if paymentMethod == "external" && who.role == user {
		return fault.New(fault.Forbidden, "only an app may say that it has collected the money (payment.method external)")
	}
	return nil
}

// seesOwners tells whether the caller may see the owners of all positions.
func (who caller) seesOwners() bool { return who.role == operator }

// may returns a forbidden Error unless the caller has one of the roles.
func (who caller) may(roles []string) error {
	if slices.Contains(roles, string(who.role)) {
		return nil
	}
	return fault.New(fault.Forbidden, "the role %s may not do this", who.role)
}

// authenticate returns the sender of a request by its Authorization header: Bearer,
// and an API key or a JSON Web Token.
func (s *Server) authenticate(ctx context.Context, authorization string) (caller, error) {
	scheme, credentials, _ := strings.Cut(authorization, " ")
	credentials = strings.TrimSpace(credentials)
	if !strings.EqualFold(scheme, "Bearer") || credentials == "" {
		return caller{}, fault.New(fault.Unauthenticated, "send an API key or a token: Authorization: Bearer tp_…")
	}
	if strings.Count(credentials, ".") == 2 { // API keys have no dot
		claims, err := s.tokens.Verify(ctx, credentials)
		if err != nil {
			return caller{}, err
		}
		who := caller{role: role(claims.Role), client: claims.Client()}
		if who.role == user {
			who.user = claims.Subject
		}
		return who, nil
	}
	key, err := s.keys.Verify(ctx, credentials)
	return caller{role: role(key.Role), client: key.Client}, err
}

// identify returns the sender of a request: as authenticate does, or a stranger where the
// operation is open to them. A stranger has paid for the request by the limit of its
// address, and has one of the few places of strangers until it leaves.
func (s *Server) identify(ctx context.Context, c *fiber.Ctx, o *openapi.Operation) (who caller, leave func(), err error) {
	if authorization := c.Get(fiber.HeaderAuthorization); !o.Open || authorization != "" {
		who, err = s.authenticate(ctx, authorization)
		return who, func() {}, err
	}
	address := httpconn.AddressOf(c.Context().Conn()).String()
	if err := overLimit(c, s.limiter.Address(address)); err != nil {
		return caller{}, nil, err
	}
	leave, err = s.strangers.enter(ctx, address)
	return caller{role: stranger, client: address}, leave, err
}

// authenticateBrowser lets operators through: browsers send an operator's API key
// as the password of HTTP Basic authentication. The user name does not matter.
func (s *Server) authenticateBrowser(c *fiber.Ctx) error {
	scheme, encoded, _ := strings.Cut(c.Get(fiber.HeaderAuthorization), " ")
	plain, err := base64.StdEncoding.DecodeString(encoded)
	_, password, ok := strings.Cut(string(plain), ":")
	if !strings.EqualFold(scheme, "Basic") || err != nil || !ok {
		return fault.New(fault.Unauthenticated, "sign in with any user name and an operator's API key as the password")
	}
	ctx, cancel := s.context()
	defer cancel()
	key, err := s.keys.Verify(ctx, password)
	if err != nil {
		return err
	}
	if err := (caller{role: role(key.Role)}).may([]string{string(operator)}); err != nil {
		return err
	}
	return c.Next()
}

// challenge returns the WWW-Authenticate header: on the pages for operators it makes
// browsers ask for a password.
func challenge(c *fiber.Ctx) string {
	if strings.HasPrefix(c.Path(), asynqmonPath) {
		return `Basic realm="Triprize operators", charset="UTF-8"`
	}
	return `Bearer realm="Triprize"`
}

// call is what the guard knows about a request when its handler runs.
type call struct {
	caller
	key         string            // the idempotency key, without quotes
	fingerprint [sha256.Size]byte // distinguishes different requests with the same key
	prefer      string            // the Prefer header
	wantsCSV    bool              // it accepts text/csv rather than JSON
	trace       string            // the trace that the request is in (W3C Trace Context), as an id; empty: none
	connection  net.Conn
}

// whilePresent returns a context that ends with ctx, and when the client closes its
// connection. It is for requests that only wait, and whose connection nobody reads
// meanwhile. Call leave when the wait is over.
func (c *call) whilePresent(ctx context.Context) (present context.Context, leave func()) {
	present, cancel := context.WithCancel(ctx)
	connection, ok := c.connection.(*httpconn.Conn)
	if !ok {
		return present, cancel
	}
	stop := connection.Watch(cancel)
	return present, func() { stop(); cancel() }
}

type callKey struct{}

// callOf returns the call that the guard let through. A handler that was called
// without the guard gets an internal error.
func callOf(ctx context.Context) (*call, error) {
	found, ok := ctx.Value(callKey{}).(*call)
	if !ok {
		return nil, fault.New(fault.InternalError, "an operation without its guard")
	}
	return found, nil
}
