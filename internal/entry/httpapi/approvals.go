package httpapi

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/approval"
	"triprize/internal/books"
	"triprize/internal/domain/access"
	"triprize/internal/domain/fault"
	"triprize/internal/domain/money"
	"triprize/internal/entry/httpapi/call"
	"triprize/internal/entry/httpapi/contract"
	"triprize/internal/entry/httpapi/contract/operations"
	"triprize/internal/entry/httpapi/resource"
	"triprize/internal/entry/httpapi/response"
	"triprize/internal/job"
	"triprize/internal/key"
	"triprize/internal/lifecycle"
	"triprize/internal/payment"
	"triprize/internal/platform/failpoint"
	"triprize/internal/platform/postgres"
	"triprize/internal/trail"
	"triprize/internal/wallet"
)

// describe returns the members of what a request is about that decide, and what its approver must know.
func (s *server) describe(ctx context.Context, db postgres.DB, o approvableRequest) (deciding map[string]string, facts []approval.Fact, err error) { //nolint:funlen // a case for each operation
	add := func(name, format string, args ...any) {
		if text := fmt.Sprintf(format, args...); text != "" {
			facts = append(facts, approval.Fact{Name: name, Value: text})
		}
	}
	deciding = make(map[string]string)
	id, _ := uuid.Parse(o.by.Target) // of a new wallet there is none
	add("Request", "%s", approvable[o.by.Operation].does)
	switch o.name() {
	case "campaign.cancel", "draw.void", "refunds.resolve-campaign":
		c, err := lifecycle.Get(ctx, db, id)
		if err != nil {
			return nil, nil, err
		}
		deciding["state"], deciding["paused"], deciding["sale_ends_at"] = string(c.State), strconv.FormatBool(c.PausedAt != nil), timeText(c.SaleEndsAt)
		var sold, sum int64
		for i, l := range c.Layers[:min(len(c.Layers), len(c.Counts))] {
			sold, sum = sold+int64(c.Counts[i].Sold), sum+int64(c.Counts[i].Sold)*int64(l.Price)
		}
		add("Campaign", "%s (%s)", c.Name, c.State)
		add("Sold", "%d positions, %s", sold, c.Currency.Format(money.Amount(sum)))
		if len(o.Refunds) > 0 {
			sum = 0
			for _, one := range o.Refunds {
				sum += one.Amount
			}
			add("Refunds", "%d, together %s", len(o.Refunds), c.Currency.Format(money.Amount(sum)))
		}
	case paymentResolve:
		p, _, err := payment.Get(ctx, db, id)
		if err != nil {
			return nil, nil, err
		}
		deciding["phase"], deciding["amount"] = string(p.Phase), fmt.Sprint(int64(p.Amount))
		add("Amount", "%s", money.Currency(p.Currency).Format(p.Amount))
		add("At the provider", "%s", response.ValueOf(p.IntentID))
		add("Its status there", "%s", response.ValueOf(p.IntentStatus))
		add("Phase", "%s", p.Phase)
		add("Why it waits", "%s", response.ValueOf(p.Reason()))
		add("Outcome", "%s", o.Outcome)
	case booksClose:
		zone, open, err := books.ToClose(ctx, db, o.by.Target, o.Zone, s.settings.Payments.Stripe.Enabled())
		if err != nil {
			return nil, nil, err
		}
		deciding["open"] = fmt.Sprint(open)
		add("Month", "%s, %s", o.by.Target, zone)
		add("Carried as open", "%d payments and refunds", len(open))
	case "refund.resolve":
		r, err := payment.GetRefund(ctx, db, access.Everything(), id)
		if err != nil {
			return nil, nil, err
		}
		deciding["state"], deciding["amount"] = string(r.State), fmt.Sprint(int64(r.Due))
		add("Purchase", "%s", r.PurchaseID)
		add("Amount", "%s", money.Currency(r.Currency).Format(money.Amount(o.Amount)))
		add("State", "%s", r.State)
	default:
		m, err := s.movementOf(ctx, db, o)
		if err != nil {
			return nil, nil, err
		}
		client, owner, _ := strings.Cut(m.Owner, "\n")
		currency := money.Currency(m.Currency)
		add("Owner", "%s of %s", owner, client)
		if id != uuid.Nil && o.by.Operation != "openWallet" {
			w, err := wallet.Get(ctx, db, access.Everything(), id)
			if err != nil {
				return nil, nil, err
			}
			add("Balance", "%s, %s of it held by authorizations", currency.Format(w.Balance), currency.Format(w.Held))
		}
		add("Amount", "%s", currency.Format(money.Amount(m.Amount)))
		if o.To != uuid.Nil {
			payee, err := wallet.Get(ctx, db, access.Everything(), o.To)
			if err != nil {
				return nil, nil, err
			}
			add("To", "%s, of %s of %s", o.To, payee.Owner.ID, payee.Client)
		}
	}
	add("Reason, as it is stored", "%s", o.Reason)
	add("Reference", "%s", o.Reference)
	add("Description", "%s", o.Description)
	return deciding, facts, nil
}

func timeText(at *time.Time) string {
	if at == nil {
		return ""
	}
	return at.UTC().Format(time.RFC3339Nano)
}

// approvalDone answers with the request that a command has made or ended, as it is now.
func (s *server) approvalDone(ctx context.Context, done job.Accepted) (response.Result, error) {
	answer := response.Result{Status: *done.Job.HTTPStatus, Body: done.Job.Result, Replayed: done.Replayed}
	var known contract.Approval
	err := json.Unmarshal(answer.Body, &known)
	if err == nil && done.Replayed {
		var now approval.Request
		if now, err = approval.Get(ctx, s.db, known.ID); err == nil {
			answer.Body, err = json.Marshal(resource.Approval(now))
		}
	}
	if answer.Status == http.StatusAccepted {
		answer.Location = "/v1/approvals/" + known.ID.String()
	}
	return answer, err
}

func (s *server) ListApprovals(ctx context.Context, r operations.ListApprovalsRequestObject) (operations.Answer, error) {
	page, err := response.ListPage(r.Params.Cursor, r.Params.Limit)
	if err != nil {
		return nil, err
	}
	list, next, err := approval.List(ctx, s.db, approval.State(response.ValueOf(r.Params.State)), page)
	return operations.ListApprovals200(contract.ApprovalPage{Approvals: response.Documents(list, resource.Approval), NextCursor: response.ListCursor(next)}, err)
}

// GetApproval answers with a request; of a pending one with what it is about now.
func (s *server) GetApproval(ctx context.Context, r operations.GetApprovalRequestObject) (operations.Answer, error) {
	known, err := approval.Get(ctx, s.db, r.Approval)
	if err == nil && known.State == approval.Pending {
		_, known.Preview, err = s.describe(ctx, s.db, approvableOf(known.RequestedBy, known.Path, known.Body))
	}
	return operations.GetApproval200(resource.Approval(known), err)
}

func (s *server) RejectRequest(ctx context.Context, r operations.RejectRequestRequestObject) (operations.Answer, error) {
	return s.decide(ctx, r.Approval, r.Body.Reason, func(tx pgx.Tx, known *approval.Request, by *trail.Actor) error {
		return known.End(ctx, tx, approval.Rejected, *by, nil)
	})
}

func (s *server) WithdrawRequest(ctx context.Context, r operations.WithdrawRequestRequestObject) (operations.Answer, error) {
	return s.decide(ctx, r.Approval, r.Body.Reason, func(tx pgx.Tx, known *approval.Request, by *trail.Actor) error {
		if known.Requester != approval.RequesterOf(*by) {
			return fault.New(fault.Forbidden, "only who has asked for it can withdraw it")
		}
		return known.End(ctx, tx, approval.Withdrawn, *by, nil)
	})
}

// ApproveRequest sends what was asked for, in the transaction that ends the request.
func (s *server) ApproveRequest(ctx context.Context, r operations.ApproveRequestRequestObject) (operations.Answer, error) {
	call.Of(ctx).EndShare() // the request that is sent takes one
	var after []func()
	answer, err := s.decide(ctx, r.Approval, r.Body.Reason, func(tx pgx.Tx, known *approval.Request, by *trail.Actor) error {
		if known.Requester == approval.RequesterOf(*by) {
			return fault.New(fault.Forbidden, "nobody approves their own request")
		}
		o := approvableOf(known.RequestedBy, known.Path, known.Body)
		var err error
		if o.name() == paymentResolve { // its phase and amount decide, and not how often it was looked at
			if o.body, err = withVersion(ctx, tx, o); err != nil {
				return err
			}
		}
		why, err := s.whyOutdated(ctx, tx, known, o)
		if err != nil {
			return err
		}
		if why != "" {
			by.Operation = "outdateRequest"
			problem, _ := json.Marshal(resource.Problem(fault.New(fault.StateConflict, "%s: ask again", why)))
			return known.End(ctx, tx, approval.Outdated, *by, &approval.Result{Problem: problem})
		}
		failpoint.Hit("approvals.sending", nil)
		result, followed, err := s.perform(ctx, tx, known, o, *by)
		if err != nil {
			return err
		}
		after = followed
		failpoint.Hit("approvals.sent", nil)
		return known.End(ctx, tx, approval.Approved, *by, result)
	})
	if err == nil {
		follow(after)
	}
	return answer, err
}

// decide ends a pending request by a command, exactly once. end may name another operation for the audit trail.
func (s *server) decide(ctx context.Context, id uuid.UUID, reason string, end func(tx pgx.Tx, known *approval.Request, by *trail.Actor) error) (operations.Answer, error) {
	if strings.TrimSpace(reason) == "" {
		return nil, fault.Invalid(fault.Field{Pointer: "/reason", Detail: "must state the reason, for the records"})
	}
	request := s.command(ctx, job.KindApproval)
	by := *request.Actor
	by.Reason, request.Actor = cmp.Or(by.Reason, reason), &by
	done, err := job.Once(ctx, s.approvals, request, func(tx pgx.Tx) (any, error) {
		known, err := approval.Lock(ctx, tx, id)
		if err != nil {
			return nil, err
		}
		before := resource.Approval(known)
		if err := end(tx, &known, &by); err != nil {
			return nil, err
		}
		return job.Answer{Body: resource.Approval(known), Before: before}, nil
	})
	return s.commandDone(ctx, done, err)
}

// whyOutdated returns why a request is not sent any more; empty: it is.
func (s *server) whyOutdated(ctx context.Context, tx pgx.Tx, known *approval.Request, o approvableRequest) (string, error) {
	may, err := key.MayOperate(ctx, tx, o.by.KeyPrefix, o.by.Issuer, o.by.Subject)
	if err != nil {
		return "", err
	}
	if !may {
		return "who has asked for it may not do it any more", nil
	}
	deciding, _, err := s.describe(ctx, tx, o)
	if err != nil {
		return "", err
	}
	for name, was := range known.Deciding {
		if was != deciding[name] {
			return fmt.Sprintf("%s has changed from %s to %s since it was asked for", name, cmp.Or(was, "none"), cmp.Or(deciding[name], "none")), nil
		}
	}
	return "", nil
}

// perform sends what was asked for, for its requester, and returns its result, and what follows the commit. A refusal by the
// state of things is a result; whatever may pass when it is tried again is an error.
func (s *server) perform(ctx context.Context, tx pgx.Tx, known *approval.Request, o approvableRequest, by trail.Actor) (*approval.Result, []func(), error) {
	approver, err := json.Marshal(resource.ApprovalActor(by))
	if err != nil {
		return nil, nil, err
	}
	var m approval.Movement
	if o.name() == walletCredit || o.name() == walletDebit { // before it: of a capture, what is held then
		if m, err = s.movementOf(ctx, tx, o); err != nil {
			return nil, nil, err
		}
	}
	sent := onBehalf{actor: o.by, tx: tx, caller: call.Caller{Role: resource.Operator, Client: o.by.Client, App: o.by.Client, KeyPrefix: o.by.KeyPrefix}}
	sent.actor.ApprovalID, sent.actor.ApprovedBy = &known.ID, string(approver)
	status, body := s.send(ctx, &sent, o, "", ownKeys+known.ID.String())
	switch kind := fault.CodeOf(sent.err).Kind(); {
	case sent.err == nil && status == http.StatusAccepted:
		return &approval.Result{Job: body}, sent.after, nil
	case sent.err == nil && status < http.StatusBadRequest:
		if m.Amount > 0 {
			err = m.Add(ctx, tx)
		}
		return &approval.Result{Answer: body}, sent.after, err
	case sent.err == nil:
		return nil, nil, fmt.Errorf("approval %s: its request was answered with %d", known.ID, status)
	case slices.Contains([]fault.Kind{fault.KindInvalid, fault.KindForbidden, fault.KindNotFound, fault.KindConflict, fault.KindMismatch}, kind):
		return &approval.Result{Problem: body}, sent.after, nil
	default:
		return nil, nil, fault.Wrap(fault.Unavailable, sent.err, "the request cannot be sent now, and still waits for approval: retry in a moment")
	}
}

// withVersion returns the body of a resolution with the version that the payment has now.
func withVersion(ctx context.Context, tx pgx.Tx, o approvableRequest) ([]byte, error) {
	id, err := uuid.Parse(o.by.Target)
	if err != nil {
		return nil, err // not possible: the contract was checked
	}
	p, err := payment.Lock(ctx, tx, id)
	if err != nil {
		return nil, err
	}
	var body map[string]any
	if err := json.Unmarshal(o.body, &body); err != nil {
		return nil, err
	}
	body["version"] = p.Version
	return json.Marshal(body)
}
