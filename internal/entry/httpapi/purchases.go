package httpapi

import (
	"context"
	"encoding/json"

	"github.com/google/uuid"

	"triprize/internal/domain/fault"
	"triprize/internal/domain/metadata"
	"triprize/internal/entry/httpapi/contract"
	"triprize/internal/entry/httpapi/resource"
	"triprize/internal/service/sale"
	"triprize/internal/store/inventory"
	"triprize/internal/store/job"
	"triprize/internal/store/purchase"
)

// RequestPurchase accepts a purchase as a job.
func (s handlers) RequestPurchase(ctx context.Context, r contract.RequestPurchaseRequestObject) (contract.RequestPurchaseResponseObject, error) {
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
	selection, err := s.selectionOf(body.Selection)
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
	if err := s.known.require(ctx, r.Campaign); err != nil {
		return nil, err
	}
	payload, err := json.Marshal(sale.Order{UserID: body.UserID, Selection: selection, Payment: payment, Metadata: metadata.Map(body.Metadata)})
	if err != nil {
		return nil, err
	}
	return s.accept(ctx, job.Request{Kind: job.KindPurchase, CampaignID: r.Campaign, UserID: body.UserID, Payload: payload,
		Keep: s.settings.Retention.Purchases}, also...)
}

// selectionOf checks the selection of a purchase, of which the contract has let exactly one
// way through. The sale checks what depends on the campaign.
func (s *Server) selectionOf(body contract.Selection) (selection sale.Selection, err error) {
	selection = sale.Selection{Selection: inventory.Selection{Quantity: body.Quantity, Positions: positionsOf(body.Positions)}}
	if body.Layer != nil {
		selection.Layer = *body.Layer
	}
	if body.HoldID != nil {
		selection.HoldID = *body.HoldID
	}
	return selection, s.checkSelection(body.Positions, body.Quantity, "/selection", s.settings.Campaigns.MaxQuantity)
}

// GetPurchase answers with a purchase that the caller may see.
func (s handlers) GetPurchase(ctx context.Context, r contract.GetPurchaseRequestObject) (contract.GetPurchaseResponseObject, error) {
	who, err := callOf(ctx)
	if err != nil {
		return nil, err
	}
	p, err := s.visiblePurchase(ctx, r.Purchase)
	if err != nil {
		return nil, err
	}
	details, err := resource.ReadPurchaseDetails(ctx, s.db, p)
	if err != nil {
		return nil, err
	}
	return contract.GetPurchase200JSONResponse{Body: details.Purchase(p, who.role)}, nil
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
func (s handlers) ListPurchases(ctx context.Context, r contract.ListPurchasesRequestObject) (contract.ListPurchasesResponseObject, error) {
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
	details, err := resource.ReadPurchaseDetails(ctx, s.db, list...)
	if err != nil {
		return nil, err
	}
	answer := contract.PurchasePage{Purchases: make([]contract.Purchase, len(list))}
	for i, p := range list {
		answer.Purchases[i] = details.Purchase(p, who.role)
	}
	answer.NextCursor = nextCursor(len(list), limit, func() uuid.UUID { return list[len(list)-1].ID })
	return contract.ListPurchases200JSONResponse{Body: answer}, nil
}
