package httpapi

import (
	"context"
	"encoding/json"
	"strings"

	"triprize/internal/domain/fault"
	"triprize/internal/entry/httpapi/contract"
	"triprize/internal/service/sale"
	"triprize/internal/store/job"
	"triprize/internal/store/purchase"
)

// CancelPurchase accepts the cancellation of a purchase as a job. Whether it can
// be cancelled is for the job to find out, in its turn.
func (s handlers) CancelPurchase(ctx context.Context, r contract.CancelPurchaseRequestObject) (contract.CancelPurchaseResponseObject, error) {
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

// signature is what a caller's deeds are signed with: role:client, and /user when
// one is signed in. It has at most 181 characters.
func (who caller) signature() string {
	signature := string(who.role) + ":" + who.client
	if who.user != "" {
		signature += "/" + who.user
	}
	return signature
}

// cancellationJSON tells users who cancelled by the role alone: the names of
// clients are not theirs to know.
func cancellationJSON(c purchase.Cancellation, who caller) *contract.Cancellation {
	by := c.By
	if who.role == user {
		by, _, _ = strings.Cut(by, ":")
	}
	return &contract.Cancellation{At: c.At, By: by, Reason: c.Reason}
}
