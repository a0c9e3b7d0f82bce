package httpapi

import (
	"context"
	"net/http"
	"strings"

	"github.com/google/uuid"

	"triprize/internal/domain/fault"
	"triprize/internal/entry/httpapi/call"
	"triprize/internal/entry/httpapi/contract"
	"triprize/internal/entry/httpapi/contract/operations"
	"triprize/internal/entry/httpapi/response"
	"triprize/internal/store/job"
	"triprize/internal/store/payment"
)

// ListPayments answers with one page of the payments that wait.
func (s *Server) ListPayments(ctx context.Context, r operations.ListPaymentsRequestObject) (operations.Answer, error) {
	after, limit := response.ValueOf(r.Params.Cursor), response.PageSize(r.Params.Limit)
	list, err := payment.Waiting(ctx, s.db, payment.Waiter(response.ValueOf(r.Params.WaitingFor)), after, limit)
	return operations.ListPayments200(contract.CardPaymentPage{Payments: response.Documents(list, cardPaymentJSON),
		NextCursor: response.NextCursor(list, limit, func(last payment.Payment) uuid.UUID { return last.PurchaseID })}, err)
}

// RetryPayment has a payment that waits looked at now.
func (s *Server) RetryPayment(ctx context.Context, r operations.RetryPaymentRequestObject) (operations.Answer, error) {
	request := s.command(ctx, job.KindPaymentRetry, http.StatusOK)
	done, err := s.cardPayments.Retry(ctx, request, r.Purchase)
	return s.commandDone(ctx, done, err, "")
}

// ResolvePayment ends a payment with what an operator has found out about it.
func (s *Server) ResolvePayment(ctx context.Context, r operations.ResolvePaymentRequestObject) (operations.Answer, error) {
	who := call.Of(ctx)
	if strings.TrimSpace(r.Body.Reason) == "" {
		return nil, fault.Invalid(fault.Field{Pointer: "/reason", Detail: "must say what was found at the provider, for the records"})
	}
	request := s.command(ctx, job.KindPaymentResolve, http.StatusOK)
	done, err := s.cardPayments.Resolve(ctx, request, r.Purchase, payment.Finding(r.Body.Outcome), who.Signature(), r.Body.Reason)
	return s.commandDone(ctx, done, err, "")
}

// cardPaymentJSON is a payment as operators see it.
func cardPaymentJSON(p payment.Payment) contract.CardPayment {
	d := contract.CardPayment{PurchaseID: p.PurchaseID, CampaignID: p.CampaignID, JobID: p.JobID, Amount: int64(p.Amount), Currency: p.Currency,
		PaymentMethod: p.PaymentMethod, Reference: p.IntentID, Phase: contract.CardPaymentPhase(p.Phase), Status: p.IntentStatus, Reason: p.Reason(),
		NextLookAt: p.DueAt, ExpiresAt: p.OverAt(), CreatedAt: p.CreatedAt}
	if waiter := string(p.WaitsFor()); waiter != "" {
		d.WaitingFor = &waiter
	}
	if p.ResolvedAs != nil && p.ResolvedBy != nil && p.ResolveReason != nil { // the table has all or none
		d.Resolution = &contract.PaymentResolution{Outcome: contract.PaymentOutcome(*p.ResolvedAs), By: *p.ResolvedBy, Reason: *p.ResolveReason}
	}
	return d
}
