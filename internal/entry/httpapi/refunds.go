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
	"triprize/internal/store/job"
	"triprize/internal/store/refund"
)

// ListRefunds answers with one page of a campaign's refunds, in the order of their making.
func (s *Server) ListRefunds(ctx context.Context, r operations.ListRefundsRequestObject) (operations.Answer, error) {
	who := call.Of(ctx)
	if err := s.requireCampaign(ctx, r.Campaign); err != nil {
		return nil, err
	}
	after, limit := response.ValueOf(r.Params.Cursor), response.PageSize(r.Params.Limit)
	list, err := refund.OfCampaign(ctx, s.db, who.Grant(), r.Campaign, refund.State(response.ValueOf(r.Params.State)), after, limit)
	return operations.ListRefunds200(refundPage(list, limit, who.Role), err)
}

// ListWaitingRefunds answers with one page of the refunds that wait for an
// operator.
func (s *Server) ListWaitingRefunds(ctx context.Context, r operations.ListWaitingRefundsRequestObject) (operations.Answer, error) {
	who := call.Of(ctx)
	after, limit := response.ValueOf(r.Params.Cursor), response.PageSize(r.Params.Limit)
	list, err := refund.WaitingForOperator(ctx, s.db, after, limit)
	return operations.ListWaitingRefunds200(refundPage(list, limit, who.Role), err)
}

func refundPage(list []refund.Refund, limit int, who resource.Role) contract.RefundPage {
	return contract.RefundPage{Refunds: response.Documents(list, func(one refund.Refund) contract.Refund { return resource.Refund(one, who) }),
		NextCursor: response.NextCursor(list, limit, func(last refund.Refund) uuid.UUID { return last.ID })}
}

// GetRefund answers with a refund that the caller may see.
func (s *Server) GetRefund(ctx context.Context, r operations.GetRefundRequestObject) (operations.Answer, error) {
	who := call.Of(ctx)
	found, err := refund.Get(ctx, s.db, who.Grant(), r.Refund)
	return operations.GetRefund200(resource.Refund(found, who.Role), err)
}

// RetryRefund has a refund made again that the provider has refused.
func (s *Server) RetryRefund(ctx context.Context, r operations.RetryRefundRequestObject) (operations.Answer, error) {
	who := call.Of(ctx)
	request := s.command(ctx, job.KindRefundRetry, http.StatusOK)
	done, err := s.refunds.Retry(ctx, request, r.Refund, who.Signature())
	return s.commandDone(ctx, done, err, "")
}

// ResolveRefund notes that a refund was made by hand.
func (s *Server) ResolveRefund(ctx context.Context, r operations.ResolveRefundRequestObject) (operations.Answer, error) {
	who := call.Of(ctx)
	if err := checkResolution(r.Body); err != nil {
		return nil, err
	}
	request := s.command(ctx, job.KindRefundResolve, http.StatusOK)
	done, err := s.refunds.Resolve(ctx, request, who.Grant(), r.Refund, who.Signature(), r.Body.Reason)
	return s.commandDone(ctx, done, err, "")
}

// ResolveRefunds notes that refunds of a campaign were made by hand.
func (s *Server) ResolveRefunds(ctx context.Context, r operations.ResolveRefundsRequestObject) (operations.Answer, error) {
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
		return fault.Invalid(fault.Field{Pointer: "/reason", Detail: "must say how the money was given back, for the records"})
	}
	return nil
}
