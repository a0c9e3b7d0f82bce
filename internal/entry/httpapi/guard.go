package httpapi

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/gofiber/fiber/v2"
	"github.com/gowebpki/jcs"

	"triprize/internal/domain/fault"
	"triprize/internal/entry/httpapi/contract"
	"triprize/internal/platform/openapi"
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
		router.Add(o.Method, path, s.guard(o))
		if o.Method == http.MethodGet { // Fiber also sends HEAD requests to the handlers of GET
			router.Add(http.MethodHead, path, s.guard(o))
		}
	}
	contract.RegisterHandlers(router, contract.NewStrictHandler(handlers{s}, nil))
}

// handlers implements the operations.
type handlers struct{ *Server }

// guard lets a request through to its operation if the caller is known and has the
// right role, the request fits the contract, and the rate limits allow it. It checks
// in this order, so that an unknown caller learns nothing else.
func (s *Server) guard(o *openapi.Operation) fiber.Handler {
	return func(c *fiber.Ctx) error {
		ctx, cancel := s.context()
		defer cancel()
		who, err := s.authenticate(ctx, c.Get(fiber.HeaderAuthorization))
		if err != nil {
			return err
		}
		if err := who.may(o.Roles); err != nil {
			return err
		}
		request := &call{caller: who, prefer: c.Get("Prefer"), connection: c.Context().Conn()}
		actsFor, err := s.check(c, o, request)
		if err != nil {
			return err
		}
		if o.Method != http.MethodGet {
			if err := s.limit(ctx, c, who, actsFor); err != nil {
				return err
			}
		}
		c.SetUserContext(context.WithValue(ctx, callKey{}, request))
		return c.Next()
	}
}

// check checks a request against the contract and fills in the call. It returns the
// user whom the request is for, if any.
func (s *Server) check(c *fiber.Ctx, o *openapi.Operation, request *call) (actsFor string, err error) {
	parameter := func(in, name string) (text string, sent bool) {
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
	faults, noSuchPath := o.CheckParameters(parameter)
	switch {
	case noSuchPath:
		return "", fault.New(fault.NotFound, "there is no such thing: %s %s", faults[0].Pointer, faults[0].Detail)
	case o.NeedsKey:
		if request.key, err = idempotencyKey(c.Get("Idempotency-Key")); err != nil {
			return "", err
		}
	}
	if len(faults) > 0 {
		return "", fault.Invalid(faults...)
	}
	var canonical []byte
	for _, encoding := range c.Request().Header.PeekAll(fiber.HeaderContentEncoding) {
		if o.HasBody && len(encoding) > 0 && !strings.EqualFold(string(encoding), "identity") {
			return "", fault.New(fault.UnsupportedMediaType, "send the body as it is, without Content-Encoding")
		}
	}
	if o.HasBody {
		if canonical, actsFor, err = readBody(c, o); err != nil {
			return "", err
		}
	} else if o.Method != http.MethodGet && len(c.Request().Body()) > 0 {
		return "", fault.New(fault.InvalidRequest, "this request has no body")
	}
	if o.NeedsKey {
		target := o.Target(parameter)
		if precondition := c.Get(fiber.HeaderIfMatch); precondition != "" { // with another If-Match it is another request
			target = append(target, fiber.HeaderIfMatch, precondition)
		}
		request.fingerprint = fingerprint(o.ID, target, canonical)
	}
	if request.user != "" { // a user acts for itself, whatever the body says
		actsFor = request.user
	}
	return actsFor, nil
}

// readBody checks a JSON body and replaces it by its canonical form (RFC 8785), so
// that the same bytes are checked, fingerprinted and read. Repeated names and
// invalid UTF-8 have no such form and are refused.
func readBody(c *fiber.Ctx, o *openapi.Operation) (canonical []byte, actsFor string, err error) {
	if o.BodyOptional && len(c.Request().Body()) == 0 {
		c.Request().Header.SetContentType(fiber.MIMEApplicationJSON)
		c.Request().SetBodyRaw([]byte("{}"))
	}
	media, parameters, err := mime.ParseMediaType(c.Get(fiber.HeaderContentType))
	if err != nil || media != fiber.MIMEApplicationJSON || !strings.EqualFold(cmp.Or(parameters["charset"], "utf-8"), "utf-8") {
		return nil, "", fault.New(fault.UnsupportedMediaType, "send the body as application/json, in UTF-8")
	}
	body := c.Request().Body() // as sent: this does not decompress it
	switch {
	case len(body) == 0:
		return nil, "", fault.New(fault.InvalidRequest, "the body is empty")
	case !json.Valid(body): // it also bounds the depth, before any recursive code sees the body
		return nil, "", fault.New(fault.InvalidRequest, "the body is not one valid JSON value")
	}
	canonical, err = jcs.Transform(body)
	if err != nil {
		return nil, "", fault.Wrap(fault.InvalidRequest, err, "the body is not JSON with distinct names, valid UTF-8 and numbers that a double can hold")
	}
	value, faults, err := o.CheckBody(canonical)
	if err != nil {
		return nil, "", fault.Wrap(fault.InvalidRequest, err, "the body is not one valid JSON value")
	}
	if len(faults) > 0 {
		return nil, "", fault.Invalid(faults...)
	}
	c.Request().SetBodyRaw(canonical)
	if fields, ok := value.(map[string]any); ok {
		actsFor, _ = fields["user_id"].(string)
	}
	return canonical, actsFor, nil
}

// decodeStrictly decodes a body that readBody has checked. A field that its type
// does not have is an error: the contract and the type differ.
func decodeStrictly(body []byte, target any) error {
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.DisallowUnknownFields()
	return decoder.Decode(target)
}

// limit refuses a request that exceeds a rate limit.
func (s *Server) limit(ctx context.Context, c *fiber.Ctx, who caller, actsFor string) error {
	verdict := s.limiter.Allow(ctx, who.client, actsFor)
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
