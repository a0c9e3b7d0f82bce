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
	"triprize/internal/entry/httpapi/resource"
	"triprize/internal/entry/httpapi/response"
	"triprize/internal/job"
	"triprize/internal/payment"
	"triprize/internal/payment/reconciliation"
)

func (s *server) ListPayments(ctx context.Context, r operations.ListPaymentsRequestObject) (operations.Answer, error) {
	after, limit := response.ValueOf(r.Params.Cursor), response.PageSize(r.Params.Limit)
	list, err := payment.Waiting(ctx, s.db, payment.BlockedBy(response.ValueOf(r.Params.WaitingFor)), after, limit)
	return operations.ListPayments200(contract.CardPaymentPage{Payments: response.Documents(list, cardPaymentJSON),
		NextCursor: response.NextCursor(list, limit, func(last payment.Payment) uuid.UUID { return last.PurchaseID })}, err)
}

func (s *server) RetryPayment(ctx context.Context, r operations.RetryPaymentRequestObject) (operations.Answer, error) {
	request := s.command(ctx, job.KindPaymentRetry, http.StatusOK)
	done, err := s.cardPayments.Retry(ctx, request, r.Purchase)
	return s.commandDone(ctx, done, err, "")
}

func (s *server) ResolvePayment(ctx context.Context, r operations.ResolvePaymentRequestObject) (operations.Answer, error) {
	who := call.Of(ctx)
	if strings.TrimSpace(r.Body.Reason) == "" {
		return nil, fault.Invalid(fault.Field{Pointer: "/reason", Detail: "must state what was found at the provider, for the records"})
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

func (s *server) ListRefunds(ctx context.Context, r operations.ListRefundsRequestObject) (operations.Answer, error) {
	who := call.Of(ctx)
	if err := s.requireCampaign(ctx, r.Campaign); err != nil {
		return nil, err
	}
	after, limit := response.ValueOf(r.Params.Cursor), response.PageSize(r.Params.Limit)
	list, err := payment.RefundsOfCampaign(ctx, s.db, who.Grant(), r.Campaign, payment.RefundState(response.ValueOf(r.Params.State)), after, limit)
	return operations.ListRefunds200(refundPage(list, limit, who.Role), err)
}

func (s *server) ListWaitingRefunds(ctx context.Context, r operations.ListWaitingRefundsRequestObject) (operations.Answer, error) {
	who := call.Of(ctx)
	after, limit := response.ValueOf(r.Params.Cursor), response.PageSize(r.Params.Limit)
	list, err := payment.RefundsWaitingForOperator(ctx, s.db, after, limit)
	return operations.ListWaitingRefunds200(refundPage(list, limit, who.Role), err)
}

func refundPage(list []payment.Refund, limit int, who resource.Role) contract.RefundPage {
	return contract.RefundPage{Refunds: response.Documents(list, func(one payment.Refund) contract.Refund { return resource.Refund(one, who) }),
		NextCursor: response.NextCursor(list, limit, func(last payment.Refund) uuid.UUID { return last.ID })}
}

func (s *server) GetRefund(ctx context.Context, r operations.GetRefundRequestObject) (operations.Answer, error) {
	who := call.Of(ctx)
	found, err := payment.GetRefund(ctx, s.db, who.Grant(), r.Refund)
	return operations.GetRefund200(resource.Refund(found, who.Role), err)
}

func (s *server) RetryRefund(ctx context.Context, r operations.RetryRefundRequestObject) (operations.Answer, error) {
	who := call.Of(ctx)
	request := s.command(ctx, job.KindRefundRetry, http.StatusOK)
	done, err := s.refunds.Retry(ctx, request, r.Refund, who.Signature())
	return s.commandDone(ctx, done, err, "")
}

func (s *server) ResolveRefund(ctx context.Context, r operations.ResolveRefundRequestObject) (operations.Answer, error) {
	who := call.Of(ctx)
	if err := checkResolution(r.Body); err != nil {
		return nil, err
	}
	request := s.command(ctx, job.KindRefundResolve, http.StatusOK)
	done, err := s.refunds.Resolve(ctx, request, who.Grant(), r.Refund, who.Signature(), r.Body.Reason)
	return s.commandDone(ctx, done, err, "")
}

func (s *server) ResolveRefunds(ctx context.Context, r operations.ResolveRefundsRequestObject) (operations.Answer, error) {
	who := call.Of(ctx)
	if err := s.requireCampaign(ctx, r.Campaign); err != nil {
		return nil, err
	}
	if err := checkResolution(r.Body); err != nil {
		return nil, err
	}
	request := s.command(ctx, job.KindRefundsResolve, http.StatusOK)
	request.CampaignID = r.Campaign
	done, err := s.refunds.ResolveCampaign(ctx, request, who.Grant(), who.Signature(), r.Body.Reason)
	return s.commandDone(ctx, done, err, "")
}

func checkResolution(body *contract.RefundResolutionRequest) error {
	if strings.TrimSpace(body.Reason) == "" {
		return fault.Invalid(fault.Field{Pointer: "/reason", Detail: "must state how the money was returned, for the records"})
	}
	return nil
}

func (s *server) ListPaymentDiscrepancies(ctx context.Context, r operations.ListPaymentDiscrepanciesRequestObject) (operations.Answer, error) {
	after, limit := response.ValueOf(r.Params.Cursor), response.PageSize(r.Params.Limit)
	list, err := reconciliation.List(ctx, s.db, reconciliation.State(response.ValueOf(r.Params.State)), after, limit)
	return operations.ListPaymentDiscrepancies200(contract.PaymentDiscrepancyPage{PaymentDiscrepancies: response.Documents(list, discrepancyJSON),
		NextCursor: response.NextCursor(list, limit, func(last reconciliation.Discrepancy) uuid.UUID { return last.ID })}, err)
}

func (s *server) ExplainPaymentDiscrepancy(ctx context.Context, r operations.ExplainPaymentDiscrepancyRequestObject) (operations.Answer, error) {
	who := call.Of(ctx)
	if strings.TrimSpace(r.Body.Reason) == "" {
		return nil, fault.Invalid(fault.Field{Pointer: "/reason", Detail: "must state the reason for the discrepancy, for the records"})
	}
	request := s.command(ctx, job.KindDiscrepancyExplain, http.StatusOK)
	done, err := s.discrepancies.Explain(ctx, request, r.Discrepancy, who.Signature(), r.Body.Reason)
	return s.commandDone(ctx, done, err, "")
}

func discrepancyJSON(d reconciliation.Discrepancy) contract.PaymentDiscrepancy {
	doc := contract.PaymentDiscrepancy{ID: d.ID, Kind: string(d.Kind), State: contract.PaymentDiscrepancyState(d.State()), Reference: d.ObjectID,
		Transaction: d.TransactionID, PurchaseID: d.PurchaseID, Here: contract.PaymentDiscrepancySide{Amount: d.HereAmount, Currency: d.HereCurrency},
		There: contract.PaymentDiscrepancySide{Amount: d.ThereAmount, Currency: d.ThereCurrency}, Detail: d.Detail, FoundAt: d.FoundAt, ClosedAt: d.ClosedAt}
	if d.ExplainedBy != nil && d.Explanation != nil && d.ExplainedAt != nil { // the table has all or none
		doc.Explanation = &contract.PaymentDiscrepancyExplanation{By: *d.ExplainedBy, Reason: *d.Explanation, At: *d.ExplainedAt}
	}
	return doc
}
