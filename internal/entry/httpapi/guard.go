package httpapi

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/google/uuid"

	"triprize/api"
	"triprize/internal/campaign"
	"triprize/internal/domain/fault"
	"triprize/internal/entry/httpapi/body"
	"triprize/internal/entry/httpapi/call"
	"triprize/internal/entry/httpapi/contract/operations"
	"triprize/internal/entry/httpapi/resource"
	"triprize/internal/entry/httpapi/response"
	"triprize/internal/job"
	"triprize/internal/platform/openapi"
	"triprize/internal/platform/postgres"
	"triprize/internal/platform/ratelimit"
	"triprize/internal/purchase"
	"triprize/internal/trail"
)

// mount registers every operation of the contract behind its guard.
func (s *server) mount(router fiber.Router) {
	guarded := make(map[string]*openapi.Operation)
	for i := range s.contract.Operations {
		o := &s.contract.Operations[i]
		guarded[o.Method+o.Path] = o
		if o.ID == "stripeWebhook" { // its guard is a signature
			router.Add(o.Method, o.Path, func(c *fiber.Ctx) error { return s.stripeWebhook(c, o) })
		}
	}
	operations.Register(s, func(method, path string, operation fiber.Handler) {
		handler := s.guard(guarded[method+path], operation)
		path = strings.NewReplacer("{", ":", "}", "").Replace(path)
		router.Add(method, path, handler)
		if method == http.MethodGet { // RFC 9110, section 9.3.2
			router.Add(http.MethodHead, path, handler)
		}
	})
}

// passage is a request on its way through the steps of its guard.
type passage struct {
	*fiber.Ctx

	operation *openapi.Operation
	within    body.Bounds
	ctx       context.Context //nolint:containedctx // renewed by steps
	cancel    context.CancelFunc
	request   *call.Call
	charged   ratelimit.Verdict // the limit of its sender
	actsFor   string            // the user that the body names
	actor     *trail.Actor
	sent      *onBehalf // nil: by its sender
}

// steps decide about a request before its operation. Their order is a promise:
// first it is known who asks, then the request is charged to the rate limit of that
// client, and only then anything else is checked, the body last. So an unknown
// caller learns nothing, and a request that fails costs its sender as much as a good one.
var steps = []func(s *server, p *passage) error{
	func(s *server, p *passage) error {
		if p.sent != nil {
			p.request.Caller, p.request.Operation = p.sent.caller, p.operation.ID
			return nil
		}
		who, err := s.identify(p.ctx, p.Ctx, p.operation)
		if err == nil {
			p.request.Caller, p.request.Operation = who, p.operation.ID
		}
		return err
	},
	func(s *server, p *passage) error {
		if p.sent != nil { // who has asked and who approves have paid
			p.charged = ratelimit.Verdict{Allowed: true}
			return nil
		}
		p.charged = s.charge(p.ctx, p.request.Caller, p.isRead())
		err := overLimit(p.Ctx, p.charged)
		if err != nil && p.request.User != "" { // one person, and not the backend of many
			err = s.slowDown(p.ctx, err)
		}
		return err
	},
	func(_ *server, p *passage) error {
		if p.request.Role == resource.Anonymous {
			return nil
		}
		return p.request.May(p.operation.Roles)
	},
	func(s *server, p *passage) (err error) {
		p.request.Prefer, p.request.IsRead, p.request.WantsLines = p.Get("Prefer"), p.isRead(), p.isRead() && response.Accepted(p.Ctx, mimeCSV, mimeLines) == mimeLines
		p.request.Connection, p.request.Watch = p.Context().Conn(), s.keys.Watch
		p.actsFor, err = s.check(p.ctx, p.Ctx, p.operation, p.request, p.within)
		if err == nil && p.sent == nil && strings.HasPrefix(p.Get(idempotencyKeyHeader), ownKeys) {
			err = fault.New(fault.KeyInvalid, "an Idempotency-Key must not begin with %s", ownKeys)
		}
		return err
	},
	func(s *server, p *passage) (err error) {
		if p.sent != nil {
			p.actor = &p.sent.actor
			return nil
		}
		p.actor, err = s.actorOf(p.Ctx, p.operation, p.request.Caller)
		return err
	},
	func(s *server, p *passage) error {
		p.renew(s) // the body may have taken long to arrive
		if p.isRead() || p.request.User != "" || p.actsFor == "" {
			return nil
		}
		return overLimit(p.Ctx, s.limiter.User(p.ctx, p.request.Client, p.actsFor).Stricter(p.charged))
	},
	func(s *server, p *passage) (err error) {
		p.request.Leave, err = s.shares.enterRequest(p.ctx, p.isRead(), p.request.Caller)
		return err
	},
	func(s *server, p *passage) error {
		p.renew(s) // its turn may have taken long to come
		return s.requirePublished(p.ctx, p.Ctx, p.operation, p.request.Caller)
	},
}

func (p *passage) isRead() bool { return p.operation.Method == http.MethodGet }

// renew leaves the steps behind one that took long the whole time.
func (p *passage) renew(s *server) {
	if end, _ := p.ctx.Deadline(); time.Until(end) < s.settings.API.RequestTimeout*9/10 {
		p.cancel()
		p.ctx, p.cancel = s.contextOf(p.Ctx)
	}
}

// guard lets a request through the steps to its operation.
func (s *server) guard(o *openapi.Operation, operation fiber.Handler) fiber.Handler {
	within, kind := body.BoundsOf(o, s.settings), transactionsOf(o.Path)
	return func(c *fiber.Ctx) (err error) {
		p := &passage{Ctx: c, operation: o, within: within, sent: sentOnBehalf(c)}
		if p.sent != nil {
			defer func() { p.sent.err = err }()
		}
		p.ctx, p.cancel = s.contextOf(c)
		defer func() { p.cancel() }()
		p.request, _ = callOf(c)
		defer p.request.EndShare()
		for _, pass := range steps {
			if err := pass(s, p); err != nil {
				return err
			}
		}
		ctx := postgres.As(trail.With(call.With(p.ctx, p.request), p.actor), kind)
		if p.sent != nil {
			ctx = postgres.Join(ctx, p.sent.tx, &p.sent.after)
		}
		c.SetUserContext(ctx)
		err = s.needing(p, operation)
		if o.NeedsKey && p.request.Job == uuid.Nil && mayHavePassed(err) {
			err = s.orEarlier(c, p.request, err)
		}
		s.answers.Bound(c)
		return err
	}
}

// mayHavePassed reports whether a refusal may be by a setting or a state that has changed since an
// earlier request with the same key, which passed. The other conflicts are of those who have asked
// for the key.
func mayHavePassed(refusal error) bool {
	code := fault.CodeOf(refusal)
	return refusal != nil && (code.Kind() == fault.KindInvalid || code.Kind() == fault.KindNotFound || code == fault.CardsNotAccepted)
}

// orEarlier answers a request that is refused with the answer of an earlier one that was the same,
// if there is one.
func (s *server) orEarlier(c *fiber.Ctx, request *call.Call, refusal error) error {
	ctx := c.UserContext()
	earlier, known, err := job.OfKey(ctx, s.db, job.Request{Client: request.App, Key: request.Key, Hash: request.Fingerprint})
	if err != nil {
		return err
	}
	if !known || earlier.Reused {
		return refusal
	}
	answer, err := s.answerAgain(ctx, c, request, earlier)
	if err != nil {
		return err
	}
	return answer.Send(c)
}

func (s *server) answerAgain(ctx context.Context, c *fiber.Ctx, request *call.Call, earlier job.Accepted) (operations.Answer, error) {
	wait, done, err := s.waitOf(request)
	if err != nil {
		return nil, err
	}
	defer done()
	switch earlier.Job.Kind {
	case job.KindPurchase, job.KindCancellation, job.KindDraw, job.KindCampaignCancellation, job.KindErasure:
		s.intake.Replayed()
		request.EndShare()
		return s.answerJob(ctx, request, earlier.Job, wait, nil, true)
	case job.KindPaymentTry: // its answer is the job of the purchase
	default:
		return s.commandDone(ctx, earlier, nil)
	}
	if _, err := s.commandDone(ctx, earlier, nil); err != nil {
		return nil, err
	}
	id, err := uuid.Parse(c.Params("purchase"))
	if err != nil {
		return nil, err // not possible: the contract was checked
	}
	p, err := purchase.Get(ctx, s.db, request.Grant(), id)
	if err != nil {
		return nil, err
	}
	return s.answerPurchase(ctx, request, p, wait, true)
}

// requirePublished returns a not-found Error when an operation is on a draft, and the caller
// is no operator.
func (s *server) requirePublished(ctx context.Context, c *fiber.Ctx, o *openapi.Operation, who call.Caller) error {
	if who.Role.SeesAll() || !strings.Contains(o.Path, "{campaign}") {
		return nil
	}
	text, _ := parametersOf(c)("path", "campaign")
	id, err := uuid.Parse(text)
	if err != nil {
		return err // not possible: the contract was checked
	}
	found, err := s.terms.Of(ctx, s.db, id)
	if err == nil && found.IsDraft {
		err = campaign.NotFound(id)
	}
	return err
}

// charge charges a request to its sender: to the user of a token, or else to the client.
// Reads have limits of their own. An anonymous caller has paid by its address.
func (s *server) charge(ctx context.Context, who call.Caller, isRead bool) ratelimit.Verdict {
	isUser := who.User != "" && s.settings.Limits.UserRate > 0
	switch {
	case who.Role == resource.Anonymous:
		return ratelimit.Verdict{Allowed: true}
	case isRead && isUser:
		return s.limiter.UserRead(who.Client, who.User)
	case isRead:
		return s.limiter.ClientRead(who.Client)
	case isUser:
		return s.limiter.User(ctx, who.Client, who.User)
	}
	return s.limiter.Client(ctx, who.Client)
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
	return fault.New(fault.RateLimited, "too many requests; retry after %s s, with the same Idempotency-Key if there was one", seconds)
}

// check checks a request against the contract and fills in the call. It returns the
// user that the body names, if any.
func (s *server) check(ctx context.Context, c *fiber.Ctx, o *openapi.Operation, request *call.Call, within body.Bounds) (actsFor string, err error) {
	parameter := parametersOf(c)
	faults, noSuchPath := o.CheckParameters(parameter)
	if noSuchPath {
		return "", fault.New(fault.NotFound, "there is no such resource: %s %s", faults[0].Pointer, faults[0].Detail)
	}
	if unknown := o.CheckNames(c.Context().QueryArgs().All(), c.Request().Header.All()); len(unknown) > 0 {
		return "", fault.Invalid(unknown...)
	}
	if o.NeedsKey {
		if request.Key, err = call.IdempotencyKey(c.Get(idempotencyKeyHeader)); err != nil {
			return "", err
		}
		request.Key = request.KeyScope() + request.Key
	}
	if len(faults) > 0 {
		return "", fault.Invalid(faults...)
	}
	var canonical []byte
	if err := body.CheckMedia(c, o); err != nil {
		return "", err
	}
	if o.Method != http.MethodGet {
		err := s.bodies.Read(ctx, c, request.Client, within.Length, func(sent []byte) (err error) {
			canonical, actsFor, err = body.ReadJSON(c, o, sent, within.Elements)
			return err
		})
		if err != nil {
			return "", err
		}
	}
	if o.NeedsKey {
		target := o.Target(parameter)
		if precondition := c.Get(fiber.HeaderIfMatch); precondition != "" { // with another version it is another request
			target = append(target, fiber.HeaderIfMatch, response.StrongTag(precondition))
		}
		request.Fingerprint = call.Fingerprint(o.ID, target, canonical)
	}
	return actsFor, nil
}

func parametersOf(c *fiber.Ctx) func(in, name string) (text string, sent bool) {
	return func(in, name string) (text string, sent bool) {
		switch in {
		case "path":
			if text, err := url.PathUnescape(c.Params(name)); err == nil {
				return text, true
			}
			return c.Params(name), true
		case "query":
			return c.Query(name), c.Context().QueryArgs().Has(name)
		default:
			return c.Get(name), c.Get(name) != ""
		}
	}
}

// patterns has the error message for each regular expression in the contract.
var patterns = map[string]string{
	"^[^\x00-\x1f\x7f-\u009f]*$": "must not contain control characters",
	"^[ -~]*$":                   "must be printable ASCII characters",
	`^[A-Z]{3}$`:                 "must be three capital letters (ISO 4217)",
	"^pm_[A-Za-z0-9_]+$":         "must be the id of a payment method of the provider, such as pm_1Q0PsIJvEtkwdCNYMSaVuRz6",
	`^https?://([a-z0-9]([a-z0-9-]*[a-z0-9])?\.)*[a-z0-9]([a-z0-9-]*[a-z0-9])?(:[1-6]?[0-9]{1,4})?$`: "must be an origin in lower case, without a path: https://shop.example",
	"^https?://[!-~]+$":             "must be the address of a page: https://…",
	`^[A-Za-z0-9_-]{22}$`:           "must be the next_cursor of an earlier page",
	`^[1-9][0-9]{0,17}$`:            "must be the next_cursor of an earlier page",
	`^(W/)?"(0|[1-9][0-9]{0,17})"$`: `must be a version in quotes, such as "7"`,
}

// LoadContract returns the HTTP contract, ready to check requests. It is read once
// in a process; callers share it and must not change it.
var LoadContract = sync.OnceValues(func() (*openapi.Document, error) { return openapi.Load(api.OpenAPI, patterns) })

// transactionsOf tells what the transactions of an operation are for, by its path. Jobs, holds and
// wallets have batches of their own, which say it themselves.
func transactionsOf(path string) postgres.Transaction {
	for _, of := range []struct {
		part string
		kind postgres.Transaction
	}{
		{"/refund", postgres.TxRefund}, {"/payment", postgres.TxPayment}, {"/draw", postgres.TxDraw}, {"/hold", postgres.TxHold},
		{"/wallets", postgres.TxWallet}, {"/transfers", postgres.TxWallet}, {"/webhook", postgres.TxWebhook}, {"/campaigns", postgres.TxCampaign},
	} {
		if strings.Contains(path, of.part) {
			return of.kind
		}
	}
	return postgres.TxOther
}
