package httpapi

import (
	"context"
	"net/http"
	"strings"

	"github.com/google/uuid"

	"triprize/internal/domain/fault"
	"triprize/internal/entry/httpapi/contract"
	"triprize/internal/entry/httpapi/contract/operations"
	"triprize/internal/entry/httpapi/resource"
	"triprize/internal/store/job"
	"triprize/internal/store/refund"
)

// ListRefunds answers with one page of a campaign's refunds, in the order of their making.
func (s handlers) ListRefunds(ctx context.Context, r operations.ListRefundsRequestObject) (operations.ListRefundsResponseObject, error) {
	who, err := callOf(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.known.require(ctx, r.Campaign); err != nil {
		return nil, err
	}
	var state refund.State
	if r.Params.State != nil {
		state = refund.State(*r.Params.State)
	}
	var after uuid.UUID
	if r.Params.Cursor != nil {
		after = *r.Params.Cursor
	}
	limit := pageSize(r.Params.Limit)
	list, err := refund.OfCampaign(ctx, s.db, r.Campaign, state, after, limit)
	if err != nil {
		return nil, err
	}
	answer := contract.RefundPage{Refunds: make([]contract.Refund, len(list))}
	for i, one := range list {
		answer.Refunds[i] = resource.Refund(one, who.role)
	}
	answer.NextCursor = nextCursor(len(list), limit, func() uuid.UUID { return list[len(list)-1].ID })
	return operations.ListRefunds200JSONResponse{Body: answer}, nil
}

// ListWaitingRefunds answers with one page of the refunds that wait for an
// operator.
func (s handlers) ListWaitingRefunds(ctx context.Context, r operations.ListWaitingRefundsRequestObject) (operations.ListWaitingRefundsResponseObject, error) {
	who, err := callOf(ctx)
	if err != nil {
		return nil, err
	}
	var after uuid.UUID
	if r.Params.Cursor != nil {
		after = *r.Params.Cursor
	}
	limit := pageSize(r.Params.Limit)
	list, err := refund.WaitingForOperator(ctx, s.db, after, limit)
	if err != nil {
		return nil, err
	}
	answer := contract.RefundPage{Refunds: make([]contract.Refund, len(list))}
	for i, one := range list {
		answer.Refunds[i] = resource.Refund(one, who.role)
	}
	answer.NextCursor = nextCursor(len(list), limit, func() uuid.UUID { return list[len(list)-1].ID })
	return operations.ListWaitingRefunds200JSONResponse{Body: answer}, nil
}

// GetRefund answers with a refund that the caller may see.
func (s handlers) GetRefund(ctx context.Context, r operations.GetRefundRequestObject) (operations.GetRefundResponseObject, error) {
	who, err := callOf(ctx)
	if err != nil {
		return nil, err
	}
	found, err := refund.Get(ctx, s.db, r.Refund)
	if err != nil {
		return nil, err
	}
	if !who.mayActFor(found.UserID) {
		return nil, fault.New(fault.NotFound, "there is no refund %s", r.Refund)
	}
	return operations.GetRefund200JSONResponse{Body: resource.Refund(found, who.role)}, nil
}

// RetryRefund has a refund made again that the provider has refused.
func (s handlers) RetryRefund(ctx context.Context, r operations.RetryRefundRequestObject) (operations.RetryRefundResponseObject, error) {
	who, err := callOf(ctx)
	if err != nil {
		return nil, err
	}
	request, err := s.command(ctx, job.KindRefundRetry, http.StatusOK)
	if err != nil {
		return nil, err
	}
	done, err := s.refunds.Retry(ctx, request, r.Refund, who.signature())
	return s.commandDone(done, err, "")
}

// ResolveRefund notes that a refund was made by hand.
func (s handlers) ResolveRefund(ctx context.Context, r operations.ResolveRefundRequestObject) (operations.ResolveRefundResponseObject, error) {
	who, err := callOf(ctx)
	if err != nil {
		return nil, err
	}
	if strings.TrimSpace(r.Body.Reason) == "" {
		return nil, fault.Invalid(fault.Field{Pointer: "/reason", Detail: "must say how the money was given back, for the records"})
	}
	request, err := s.command(ctx, job.KindRefundResolve, http.StatusOK)
	if err != nil {
		return nil, err
	}
	done, err := s.refunds.Resolve(ctx, request, r.Refund, who.signature(), r.Body.Reason, who.role == app)
	return s.commandDone(done, err, "")
}
