package httpapi

import (
	"context"
	"encoding/json"
	"strings"

	"triprize/internal/domain/fault"
	"triprize/internal/entry/httpapi/contract/operations"
	"triprize/internal/service/campaigncancel"
	"triprize/internal/service/sale"
	"triprize/internal/store/job"
	"triprize/internal/store/purchase"
)

// CancelPurchase accepts the cancellation of a purchase as a job. The job checks
// whether the purchase can be cancelled.
func (s handlers) CancelPurchase(ctx context.Context, r operations.CancelPurchaseRequestObject) (operations.CancelPurchaseResponseObject, error) {
	who, err := callOf(ctx)
	if err != nil {
		return nil, err
	}
	p, err := purchase.Get(ctx, s.db, r.Purchase)
	if err != nil {
		return nil, err
	}
	if !who.mayActFor(p.UserID) {
		return nil, fault.New(fault.NotFound, "there is no purchase %s", r.Purchase)
	}
	payload, err := json.Marshal(sale.Cancellation{PurchaseID: p.ID, By: who.signature(), Reason: r.Body.Reason, AnyTime: who.role == operator})
	if err != nil {
		return nil, err
	}
	return s.accept(ctx, job.Request{Kind: job.KindCancellation, CampaignID: p.CampaignID, UserID: p.UserID, Payload: payload,
		Keep: s.settings.Retention.Purchases})
}

// CancelCampaign accepts the end of a campaign as a job. The job checks whether the
// campaign can be cancelled.
func (s handlers) CancelCampaign(ctx context.Context, r operations.CancelCampaignRequestObject) (operations.CancelCampaignResponseObject, error) {
	who, err := callOf(ctx)
	if err != nil {
		return nil, err
	}
	if strings.TrimSpace(r.Body.Reason) == "" {
		return nil, fault.Invalid(fault.Field{Pointer: "/reason", Detail: "must say why, for the records"})
	}
	if err := s.known.require(ctx, r.Campaign); err != nil {
		return nil, err
	}
	payload, err := json.Marshal(campaigncancel.Order{By: who.signature(), Reason: r.Body.Reason})
	if err != nil {
		return nil, err
	}
	answer, err := s.accept(ctx, job.Request{Kind: job.KindCampaignCancellation, CampaignID: r.Campaign, Payload: payload, Keep: s.settings.Retention.Purchases})
	s.read.forget(r.Campaign)
	return answer, err
}

// signature names the caller in the records of its actions: role:client, and /user
// when a user is signed in. It has at most 181 characters.
func (who caller) signature() string {
	signature := string(who.role) + ":" + who.client
	if who.user != "" {
		signature += "/" + who.user
	}
	return signature
}
