package httpapi

import (
	"context"
	"net/http"
	"strings"

	"github.com/google/uuid"

	"triprize/internal/domain/fault"
	"triprize/internal/entry/httpapi/contract"
	"triprize/internal/entry/httpapi/contract/operations"
	"triprize/internal/store/job"
	"triprize/internal/store/payment"
)

// ListPayments answers with one page of the payments that wait.
func (s handlers) ListPayments(ctx context.Context, r operations.ListPaymentsRequestObject) (operations.ListPaymentsResponseObject, error) {
	var waiter payment.Waiter
	if r.Params.WaitingFor != nil {
		waiter = payment.Waiter(*r.Params.WaitingFor)
	}
	var after uuid.UUID
	if r.Params.Cursor != nil {
		after = *r.Params.Cursor
	}
	limit := pageSize(r.Params.Limit)
	list, err := payment.Waiting(ctx, s.db, waiter, after, limit)
	if err != nil {
		return nil, err
	}
	answer := contract.CardPaymentPage{Payments: make([]contract.CardPayment, len(list))}
	for i, p := range list {
		answer.Payments[i] = cardPaymentJSON(p)
	}
	answer.NextCursor = nextCursor(len(list), limit, func() uuid.UUID { return list[len(list)-1].PurchaseID })
	return operations.ListPayments200JSONResponse{Body: answer}, nil
}

// RetryPayment has a payment that waits looked at now.
func (s handlers) RetryPayment(ctx context.Context, r operations.RetryPaymentRequestObject) (operations.RetryPaymentResponseObject, error) {
	request, err := s.command(ctx, job.KindPaymentRetry, http.StatusOK)
	if err != nil {
		return nil, err
	}
	done, err := s.payments.Retry(ctx, request, r.Purchase)
	return s.commandDone(done, err, "")
}

// ResolvePayment ends a payment with what an operator has found out about it.
func (s handlers) ResolvePayment(ctx context.Context, r operations.ResolvePaymentRequestObject) (operations.ResolvePaymentResponseObject, error) {
	who, err := callOf(ctx)
	if err != nil {
		return nil, err
	}
	if strings.TrimSpace(r.Body.Reason) == "" {
		return nil, fault.Invalid(fault.Field{Pointer: "/reason", Detail: "must say what was found at the provider, for the records"})
	}
	request, err := s.command(ctx, job.KindPaymentResolve, http.StatusOK)
	if err != nil {
		return nil, err
	}
	done, err := s.payments.Resolve(ctx, request, r.Purchase, payment.Finding(r.Body.Outcome), who.signature(), r.Body.Reason)
	return s.commandDone(done, err, "")
}

// cardPaymentJSON is a payment as operators see it.
func cardPaymentJSON(p payment.Payment) contract.CardPayment {
	d := contract.CardPayment{PurchaseID: p.PurchaseID, CampaignID: p.CampaignID, JobID: p.JobID, Amount: int64(p.Amount), Currency: p.Currency,
		PaymentMethod: p.PaymentMethod, Reference: p.IntentID, Phase: contract.CardPaymentPhase(p.Phase), Status: p.IntentStatus, Reason: p.Reason(),
		NextLookAt: p.DueAt, ExpiresAt: p.Deadline, CreatedAt: p.CreatedAt}
	if waiter := string(p.WaitsFor()); waiter != "" {
		d.WaitingFor = &waiter
	}
	if p.ResolvedAs != nil && p.ResolvedBy != nil && p.ResolveReason != nil { // the table has all or none
		d.Resolution = &contract.PaymentResolution{Outcome: contract.PaymentOutcome(*p.ResolvedAs), By: *p.ResolvedBy, Reason: *p.ResolveReason}
	}
	return d
}
