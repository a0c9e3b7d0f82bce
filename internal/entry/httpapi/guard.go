package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/gofiber/fiber/v2"

	"triprize/internal/domain/fault"
	"triprize/internal/entry/httpapi/contract/operations"
	"triprize/internal/platform/openapi"
	"triprize/internal/platform/ratelimit"
	"triprize/internal/platform/telemetry"
)

// mount registers every operation of the contract behind its guard. The
// generated handlers take over from there.
func (s *Server) mount(router fiber.Router) {
	for i := range s.contract.Operations {
		o := &s.contract.Operations[i]
		if len(o.Roles) == 0 {
			continue // open to anybody: mountOperations and mountDocs register these
		}
		path := strings.NewReplacer("{", ":", "}", "").Replace(o.Path)
		guarded := s.guard(o)
		router.Add(o.Method, path, guarded)
		if o.Method == http.MethodGet { // Fiber also sends HEAD requests to the handlers of GET
			router.Add(http.MethodHead, path, guarded)
		}
	}
	operations.RegisterHandlers(router, operations.NewStrictHandler(handlers{s}, nil))
}

// handlers implements the operations.
type handlers struct{ *Server }

// guard lets a request through to its operation. The order of its steps is a promise:
// first it is known who asks, then the request is charged to the rate limit of that
// client, and only then anything else is looked at, the body last. So an unknown
// caller learns nothing, and a request that fails costs its sender as much as a good one.
func (s *Server) guard(o *openapi.Operation) fiber.Handler {
	within := boundsOf(o, s.settings)
	return func(c *fiber.Ctx) error {
		ctx, cancel := s.context()
		defer cancel()
		who, leave, err := s.identify(ctx, c, o)
		if err != nil {
			return err
		}
		defer leave()
		var charged ratelimit.Verdict
		if o.Method != http.MethodGet {
			charged = s.charge(ctx, who)
			if err := overLimit(c, charged); err != nil {
				return err
			}
		}
		if who.role != stranger {
			if err := who.may(o.Roles); err != nil {
				return err
			}
		}
		request := &call{caller: who, prefer: c.Get("Prefer"), wantsCSV: c.Accepts(fiber.MIMEApplicationJSON, mimeCSV) == mimeCSV,
			trace: telemetry.TraceID(c.Get(traceParentHeader)), connection: c.Context().Conn()}
		actsFor, err := s.check(ctx, c, o, request, within)
		if err != nil {
			return err
		}
		ctx, cancel = s.context() // the body may have taken long to arrive
		defer cancel()
		if o.Method != http.MethodGet && who.user == "" && actsFor != "" {
			if err := overLimit(c, s.limiter.User(ctx, who.client, actsFor).Stricter(charged)); err != nil {
				return err
			}
		}
		c.SetUserContext(context.WithValue(ctx, callKey{}, request))
		return c.Next()
	}
}

// charge charges a request to its sender: to the user of a token, or else to the client.
func (s *Server) charge(ctx context.Context, who caller) ratelimit.Verdict {
	if who.user != "" && s.settings.Limits.UserRate > 0 {
		return s.limiter.User(ctx, who.client, who.user)
	}
	return s.limiter.Client(ctx, who.client)
}

// overLimit writes what is left of a limit to the answer. The Error is rate-limited when
// nothing is.
func overLimit(c *fiber.Ctx, verdict ratelimit.Verdict) error {
	for name, value := range verdict.Headers() {
		c.Set(name, value)
	}
	if verdict.Allowed {
		return nil
	}
	seconds := strconv.Itoa(verdict.RetryAfterSeconds())
	c.Set(fiber.HeaderRetryAfter, seconds)
	return fault.New(fault.RateLimited, "too many requests; retry after %s s with the same Idempotency-Key", seconds)
}

// check checks a request against the contract and fills in the call. It returns the
// user that the body names, if any.
func (s *Server) check(ctx context.Context, c *fiber.Ctx, o *openapi.Operation, request *call, within bounds) (actsFor string, err error) {
	parameter := parametersOf(c)
	faults, noSuchPath := o.CheckParameters(parameter)
	switch {
	case noSuchPath:
		return "", fault.New(fault.NotFound, "there is no such thing: %s %s", faults[0].Pointer, faults[0].Detail)
	case o.NeedsKey:
		if request.key, err = idempotencyKey(c.Get(idempotencyKeyHeader)); err != nil {
			return "", err
		}
	}
	if len(faults) > 0 {
		return "", fault.Invalid(faults...)
	}
	var canonical []byte
	if err := checkMedia(c, o); err != nil {
		return "", err
	}
	if o.Method != http.MethodGet {
		err := s.bodies.read(ctx, c, within.length, func(body []byte) (err error) {
			canonical, actsFor, err = readBody(c, o, body, within.elements)
			return err
		})
		if err != nil {
			return "", err
		}
	}
	if o.NeedsKey {
		target := o.Target(parameter)
		if precondition := c.Get(fiber.HeaderIfMatch); precondition != "" { // with another If-Match it is another request
			target = append(target, fiber.HeaderIfMatch, precondition)
		}
		request.fingerprint = fingerprint(o.ID, target, canonical)
	}
	return actsFor, nil
}

// parametersOf returns how to get the parameters of a request.
func parametersOf(c *fiber.Ctx) func(in, name string) (text string, sent bool) {
	return func(in, name string) (text string, sent bool) {
		switch in {
		case "path":
			text, err := url.PathUnescape(c.Params(name))
			if err != nil {
				return c.Params(name), true
			}
			return text, true
		case "query":
			return c.Query(name), c.Context().QueryArgs().Has(name)
		default:
			return c.Get(name), c.Get(name) != ""
		}
	}
}

// decodeStrictly decodes a body that readBody has checked. A field that its type
// does not have is an error: the contract and the type differ.
func decodeStrictly(body []byte, target any) error {
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.DisallowUnknownFields()
	return decoder.Decode(target)
}
