package httpapi

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/gofiber/fiber/v2"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/valyala/fasthttp"

	"triprize/internal/approval"
	"triprize/internal/domain/access"
	"triprize/internal/domain/fault"
	"triprize/internal/entry/httpapi/call"
	"triprize/internal/entry/httpapi/resource"
	"triprize/internal/job"
	"triprize/internal/platform/postgres"
	"triprize/internal/trail"
	"triprize/internal/wallet"
)

// ownKeys begin the idempotency keys of what was approved.
const ownKeys = "approval:"

const (
	walletCredit, walletDebit = "wallet.credit", "wallet.debit"
	paymentResolve            = "payment.resolve"
	booksClose                = "books.close"
)

// approvable are the operations that may need an approval: by which name of approvals.required, and what they do.
var approvable = map[string]struct{ name, does string }{
	"cancelCampaign":       {"campaign.cancel", "Cancel the campaign, and refund every purchase"},
	"voidDraw":             {"draw.void", "Void the draw, cancel the campaign, and refund every purchase"},
	"resolvePayment":       {paymentResolve, "Resolve the payment by hand"},
	"resolveRefund":        {"refund.resolve", "Mark the refund as made by hand"},
	"resolveRefunds":       {"refunds.resolve-campaign", "Mark refunds of the campaign as made by hand"},
	"closeMonth":           {booksClose, "Close the month of the books, for ever"},
	"openWallet":           {walletCredit, "Open a wallet with a balance"},
	"creditWallet":         {walletCredit, "Credit the wallet"},
	"debitWallet":          {walletDebit, "Debit the wallet"},
	"transfer":             {walletDebit, "Transfer to another wallet"},
	"authorize":            {walletDebit, "Authorize an amount of the wallet"},
	"captureAuthorization": {walletDebit, "Capture an authorization of the wallet"},
}

// approvableRequest is a request that may need an approval: who makes it, and what is read of its body.
type approvableRequest struct {
	by   trail.Actor
	path string
	body []byte

	Amount         int64     `json:"amount"`
	InitialBalance int64     `json:"initial_balance"`
	Currency       string    `json:"currency"`
	OwnerID        string    `json:"owner_id"`
	Client         string    `json:"client"`
	From           uuid.UUID `json:"from"`
	To             uuid.UUID `json:"to"`
	Description    string    `json:"description"`
	Reference      string    `json:"reference"`
	Outcome        string    `json:"outcome"`
	Zone           string    `json:"zone"`
	Reason         string    `json:"reason"`
	Refunds        []struct {
		Amount int64 `json:"amount"`
	} `json:"refunds"`
}

// approvableOf reads a body that the contract has checked.
func approvableOf(by trail.Actor, path string, body []byte) (o approvableRequest) {
	_ = json.Unmarshal(body, &o)
	o.by, o.path, o.body = by, path, bytes.Clone(body)
	o.by.Reason = cmp.Or(o.by.Reason, o.Reason)
	switch by.Operation {
	case "transfer":
		o.by.Target = o.From.String()
	case "openWallet":
		o.by.Target, o.Amount, o.Client = o.OwnerID, o.InitialBalance, cmp.Or(o.Client, by.Client)
	}
	return o
}

func (o approvableRequest) name() string { return approvable[o.by.Operation].name }

// needing runs an operation, or makes a request for another person's approval of it.
func (s *server) needing(p *passage, operation fiber.Handler) error {
	name, ctx := approvable[p.operation.ID].name, p.UserContext()
	if name == "" || p.request.Role != resource.Operator || p.sent != nil || !slices.Contains(s.settings.Approvals.Required, name) {
		return operation(p.Ctx)
	}
	o := approvableOf(*p.actor, p.OriginalURL(), p.Body())
	if p.operation.ID == "openWallet" && o.Amount == 0 {
		return operation(p.Ctx)
	}
	earlier, known, err := job.OfKey(ctx, s.db, job.Request{Client: p.request.App, Key: p.request.Key, Hash: p.request.Fingerprint})
	if err != nil {
		return err
	}
	if known { // its answer is given again, and nothing is done
		return s.repeat(p, earlier)
	}
	if s.settings.Approvals.By == "persons" && p.request.KeyPrefix != "" {
		return fault.New(fault.Forbidden, "%s is for persons only (approvals.by): sign in to the console with your account", name)
	}
	if done, err := s.within(p, o, operation); done || err != nil {
		return err
	}
	return s.ask(p, o)
}

func (s *server) repeat(p *passage, earlier job.Accepted) error {
	if earlier.Reused {
		return reused(earlier.Job)
	}
	answer, err := s.answerAgain(p.UserContext(), p.Ctx, p.request, earlier)
	if err != nil {
		return err
	}
	return answer.Send(p.Ctx)
}

// within runs an operation on a wallet whose amount, with what the requester has moved before, is within the threshold of the
// currency. done reports that it was.
func (s *server) within(p *passage, o approvableRequest, operation fiber.Handler) (done bool, err error) {
	if o.name() != walletCredit && o.name() != walletDebit {
		return false, nil
	}
	ctx := p.UserContext()
	m, err := s.movementOf(ctx, s.db, o)
	most, named := s.above[m.Currency]
	if err != nil || !named {
		return false, err
	}
	var after []func()
	var refusal error
	err = postgres.InTx(ctx, s.approvals, func(tx pgx.Tx) (err error) {
		if done, err = m.Fits(ctx, tx, most); err != nil || !done {
			return err
		}
		p.SetUserContext(postgres.Join(ctx, tx, &after))
		if refusal = operation(p.Ctx); refusal == nil && len(p.Response().Header.Peek("Idempotent-Replayed")) == 0 {
			err = m.Add(ctx, tx)
		}
		return err // a refusal may be recorded
	})
	p.SetUserContext(ctx)
	if err != nil {
		return false, err
	}
	follow(after)
	return done, refusal
}

func follow(after []func()) {
	for _, do := range after {
		do()
	}
}

// movementOf is what an operation moves at a wallet.
func (s *server) movementOf(ctx context.Context, db postgres.DB, o approvableRequest) (m approval.Movement, err error) {
	m = approval.Movement{Requester: approval.RequesterOf(o.by), Operation: o.name(), Owner: o.Client + "\n" + o.OwnerID, Currency: o.Currency, Amount: o.Amount}
	if o.by.Operation == "openWallet" {
		return m, nil
	}
	id, err := uuid.Parse(o.by.Target)
	if err != nil {
		return m, err // not possible: the contract was checked
	}
	w, err := wallet.Get(ctx, db, access.Everything(), id)
	if err != nil {
		return m, err
	}
	m.Owner, m.Currency = w.Client+"\n"+w.Owner.ID, w.Currency
	if o.by.Operation == "captureAuthorization" && m.Amount == 0 { // all of it
		held, err := wallet.GetAuthorization(ctx, db, id, authorizationIn(o.path))
		if err != nil {
			return m, err
		}
		m.Amount = int64(held.Remaining())
	}
	return m, nil
}

// authorizationIn returns the authorization that is captured: /v1/wallets/{wallet}/authorizations/{authorization}/capture.
func authorizationIn(path string) uuid.UUID {
	_, rest, _ := strings.Cut(path, "/authorizations/")
	text, _, _ := strings.Cut(rest, "/")
	id, _ := uuid.Parse(text) // the contract was checked
	return id
}

// ask stores a request for an approval. What would be refused now is refused at once: the operation is tried in a
// transaction that is rolled back.
func (s *server) ask(p *passage, o approvableRequest) error {
	ctx := p.UserContext()
	request := s.command(ctx, job.KindApproval)
	recorded := o.by
	recorded.Operation, recorded.Target = "requestApproval", "" // the id of the request
	request.Actor, request.HTTPStatus = &recorded, http.StatusAccepted
	made := approval.Request{Requester: approval.RequesterOf(o.by), Operation: o.name(), Target: o.by.Target, Path: o.path, Body: o.body, RequestedBy: o.by}
	p.request.EndShare() // the trial takes one
	done, err := job.Once(ctx, s.approvals, request, func(tx pgx.Tx) (any, error) {
		if err := s.try(ctx, tx, p, o); err != nil {
			return nil, err
		}
		deciding, preview, err := s.describe(ctx, tx, o)
		if err != nil {
			return nil, err
		}
		made.Preview, made.Deciding = preview, deciding
		if err := approval.Insert(ctx, tx, &made); err != nil {
			return nil, err
		}
		return resource.Approval(made), nil
	})
	answer, err := s.commandDone(ctx, done, err)
	if err != nil {
		return err
	}
	return answer.Send(p.Ctx)
}

var errTried = errors.New("it would be done")

func (s *server) try(ctx context.Context, tx pgx.Tx, p *passage, o approvableRequest) error {
	err := pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error { // what would follow its commit does not
		sent := onBehalf{caller: p.request.Caller, actor: o.by, tx: tx}
		if status, _ := s.send(ctx, &sent, o, p.Get(fiber.HeaderIfMatch), uuid.NewString()); sent.err != nil || status >= http.StatusBadRequest {
			return cmp.Or(sent.err, fmt.Errorf("the trial of %s was answered with %d", o.path, status))
		}
		return errTried
	})
	if errors.Is(err, errTried) {
		return nil
	}
	return err
}

// onBehalf is a request that is sent in this process for who has asked for it, within a transaction.
type onBehalf struct {
	caller call.Caller
	actor  trail.Actor
	tx     pgx.Tx
	after  []func() // when tx is committed
	err    error    // why it was refused
}

type onBehalfKey struct{}

// send sends a request on behalf of a requester, and returns its answer. To the log and the metrics it is a part of the request of ctx.
func (s *server) send(ctx context.Context, o *onBehalf, of approvableRequest, ifMatch, key string) (status int, body []byte) {
	var sent fasthttp.RequestCtx
	sent.Init(new(fasthttp.Request), nil, nil)
	r := &sent.Request
	r.Header.SetMethod(http.MethodPost)
	r.SetRequestURI(of.path)
	r.Header.SetContentType(fiber.MIMEApplicationJSON)
	r.Header.Set(idempotencyKeyHeader, key)
	if ifMatch != "" {
		r.Header.Set(fiber.HeaderIfMatch, ifMatch)
	}
	if len(of.body) > 0 {
		r.SetBodyStream(bytes.NewReader(of.body), len(of.body))
	}
	known := call.Of(ctx)
	sent.SetUserValue(callKey{}, &call.Call{RequestID: known.RequestID, Traceparent: known.Traceparent})
	sent.SetUserValue(requestIDHeader, known.RequestID)
	sent.SetUserValue(onBehalfKey{}, o)
	s.app.Handler()(&sent) // it ends before the transaction does
	return sent.Response.StatusCode(), bytes.Clone(sent.Response.Body())
}

// sentOnBehalf returns what a request is on behalf of, or nil.
func sentOnBehalf(c *fiber.Ctx) *onBehalf {
	o, _ := c.Locals(onBehalfKey{}).(*onBehalf)
	return o
}
