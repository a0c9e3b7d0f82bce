package httpapi

import (
	"context"
	"encoding/json"

	"github.com/google/uuid"

	"triprize/internal/domain/fault"
	"triprize/internal/domain/metadata"
	"triprize/internal/entry/httpapi/contract"
	"triprize/internal/entry/httpapi/contract/operations"
	"triprize/internal/service/sale"
	"triprize/internal/store/job"
	"triprize/internal/store/purchase"
)

// RequestPurchase accepts a purchase as a job.
func (s handlers) RequestPurchase(ctx context.Context, r operations.RequestPurchaseRequestObject) (operations.RequestPurchaseResponseObject, error) {
	who, err := callOf(ctx)
	if err != nil {
		return nil, err
	}
	body := r.Body
	if !who.mayActFor(body.UserID) {
		return nil, fault.New(fault.Forbidden, "user_id must be the sub of your token")
	}
	if err := who.mayPayBy(string(body.Payment.Method)); err != nil {
		return nil, err
	}
	if err := who.mayWrite(body.Metadata); err != nil {
		return nil, err
	}
	selection, err := s.selectionOf(ctx, r.Campaign, body.Selection)
	if err != nil {
		return nil, err
	}
	payment, err := paymentOf(body.Payment, s.settings.Payments)
	if err != nil {
		return nil, err
	}
	var also []job.Kind
	if payment.Method == purchase.Card {
		if !s.settings.Payments.Stripe.Enabled() {
			return nil, errNoCards
		}
		also = []job.Kind{job.KindPayment}
	}
	payload, err := json.Marshal(sale.Order{UserID: body.UserID, Selection: selection, Payment: payment, Metadata: metadata.Map(body.Metadata)})
	if err != nil {
		return nil, err
	}
	return s.accept(ctx, job.Request{Kind: job.KindPurchase, CampaignID: r.Campaign, UserID: body.UserID, Payload: payload,
		Keep: s.settings.Retention.Purchases}, also...)
}

// selectionOf checks the selection of a purchase, of which the contract has let exactly one
// way through. The sale checks what can change.
func (s *Server) selectionOf(ctx context.Context, campaignID uuid.UUID, body contract.Selection) (selection sale.Selection, err error) {
	want := wanted{positions: body.Positions, quantity: body.Quantity, at: "/selection", most: s.settings.Campaigns.MaxQuantity}
	if body.Layer != nil {
		want.layer = *body.Layer
	}
	if body.HoldID != nil {
		selection.HoldID = *body.HoldID
	}
	selection.Selection, err = s.offers.selection(ctx, campaignID, want)
	return selection, err
}

// GetPurchase answers with a purchase that the caller may see.
func (s handlers) GetPurchase(ctx context.Context, r operations.GetPurchaseRequestObject) (operations.GetPurchaseResponseObject, error) {
	who, err := callOf(ctx)
	if err != nil {
		return nil, err
	}
	p, err := s.visiblePurchase(ctx, r.Purchase)
	if err != nil {
		return nil, err
	}
	document, err := s.purchaseDocuments(ctx, who.caller, []purchase.Purchase{p})
	if err != nil {
		return nil, err
	}
	if r.Params.Include != nil {
		if err := s.includeCampaigns(ctx, who.caller, document); err != nil {
			return nil, err
		}
	}
	return operations.GetPurchase200JSONResponse{Body: document[0]}, nil
}

// visiblePurchase returns a purchase that the caller may see, or a not-found Error.
func (s *Server) visiblePurchase(ctx context.Context, id uuid.UUID) (purchase.Purchase, error) {
	who, err := callOf(ctx)
	if err != nil {
		return purchase.Purchase{}, err
	}
	p, err := purchase.Get(ctx, s.db, id)
	if err != nil {
		return purchase.Purchase{}, err
	}
	if !who.mayActFor(p.UserID) {
		return purchase.Purchase{}, fault.New(fault.NotFound, "there is no purchase %s", id)
	}
	return p, nil
}

// ListPurchases answers with one page of a user's purchases, newest first.
func (s handlers) ListPurchases(ctx context.Context, r operations.ListPurchasesRequestObject) (operations.ListPurchasesResponseObject, error) {
	who, err := callOf(ctx)
	if err != nil {
		return nil, err
	}
	if !who.mayActFor(r.User) {
		return nil, fault.New(fault.NotFound, "there is no user %s", r.User)
	}
	var after uuid.UUID
	if r.Params.Cursor != nil {
		after = *r.Params.Cursor
	}
	limit := pageSize(r.Params.Limit)
	list, err := purchase.OfUser(ctx, s.db, r.User, after, limit)
	if err != nil {
		return nil, err
	}
	answer := contract.PurchasePage{}
	if answer.Purchases, err = s.purchaseDocuments(ctx, who.caller, list); err != nil {
		return nil, err
	}
	if r.Params.Include != nil {
		if err := s.includeCampaigns(ctx, who.caller, answer.Purchases); err != nil {
			return nil, err
		}
	}
	answer.NextCursor = nextCursor(len(list), limit, func() uuid.UUID { return list[len(list)-1].ID })
	return operations.ListPurchases200JSONResponse{Body: answer}, nil
}
