package httpapi

import (
	"context"
	"encoding/base64"
	"slices"
	"strings"

	"github.com/google/uuid"

	"triprize/internal/domain/fault"
	"triprize/internal/entry/httpapi/contract"
	"triprize/internal/entry/httpapi/contract/operations"
	"triprize/internal/entry/httpapi/resource"
	"triprize/internal/platform/postgres"
	"triprize/internal/store/inventory"
	"triprize/internal/store/job"
	"triprize/internal/store/payment"
	"triprize/internal/store/purchase"
)

// listPage reads cursor and limit of a list. The contract has checked the form of both.
func listPage(cursor *contract.ListCursor, limit *int) (p postgres.ListPage, err error) {
	p.Limit = pageSize(limit)
	if cursor == nil {
		return p, nil
	}
	raw, err := base64.RawURLEncoding.DecodeString(*cursor)
	if err == nil {
		p.Before, err = uuid.FromBytes(raw)
	}
	if err != nil {
		return p, fault.Invalid(fault.Field{Pointer: "?cursor", Detail: "must be the next_cursor of an earlier page"})
	}
	return p, nil
}

// listCursor writes where the next page begins; nil after the last one.
func listCursor(next uuid.UUID) *contract.NextCursor {
	if next == uuid.Nil {
		return nil
	}
	text := base64.RawURLEncoding.EncodeToString(next[:])
	return &text
}

// valueOf returns what a parameter says; of one that was not sent, the zero value.
func valueOf[T any](parameter *T) (value T) {
	if parameter != nil {
		value = *parameter
	}
	return value
}

// ListJobs answers with one page of the jobs of the caller's client; for operators, of all.
func (s handlers) ListJobs(ctx context.Context, r operations.ListJobsRequestObject) (operations.ListJobsResponseObject, error) {
	who, err := callOf(ctx)
	if err != nil {
		return nil, err
	}
	page, err := listPage(r.Params.Cursor, r.Params.Limit)
	if err != nil {
		return nil, err
	}
	f := job.Filter{CampaignID: valueOf(r.Params.CampaignID), UserID: valueOf(r.Params.UserID), Kind: job.Kind(valueOf(r.Params.Kind)),
		State: job.State(valueOf(r.Params.State)), Code: fault.Code(valueOf(r.Params.Code))}
	if r.Params.Code != nil && !f.Code.Known() {
		return nil, fault.Invalid(fault.Field{Pointer: "?code", Detail: "must be one of: " + strings.Join(codes(), ", ")})
	}
	if f.Code != "" && f.State != "" && f.State != job.Failed {
		return nil, fault.Invalid(fault.Field{Pointer: "?code", Detail: "goes with state failed only: no other job has a problem"})
	}
	if f.Code != "" {
		f.State = job.Failed
	}
	if who.role != operator {
		f.Client = who.client
	}
	list, next, err := job.List(ctx, s.db, f, page)
	if err != nil {
		return nil, err
	}
	answer := contract.JobList{Jobs: make([]contract.Job, len(list)), NextCursor: listCursor(next)}
	for i, j := range list {
		answer.Jobs[i] = resource.Job(j)
	}
	if r.Params.Include != nil {
		if err := s.includePurchases(ctx, who.caller, answer.Jobs); err != nil {
			return nil, err
		}
	}
	return operations.ListJobs200JSONResponse{Body: answer}, nil
}

// codes lists the codes of problems for people.
func codes() []string {
	var list []string
	for _, code := range fault.Codes() {
		list = append(list, string(code))
	}
	slices.Sort(list)
	return list
}

// ListCampaignPurchases answers with one page of a campaign's purchases, or with all of
// them as CSV.
func (s handlers) ListCampaignPurchases(ctx context.Context, r operations.ListCampaignPurchasesRequestObject) (operations.ListCampaignPurchasesResponseObject, error) {
	who, err := callOf(ctx)
	if err != nil {
		return nil, err
	}
	page, err := listPage(r.Params.Cursor, r.Params.Limit)
	if err != nil {
		return nil, err
	}
	if err := s.known.require(ctx, r.Campaign); err != nil {
		return nil, err
	}
	f := purchase.Filter{CampaignID: r.Campaign, UserID: valueOf(r.Params.UserID), State: purchase.State(valueOf(r.Params.State)),
		Method: purchase.PaymentMethod(valueOf(r.Params.Method))}
	if err := s.ofReference(ctx, &f, valueOf(r.Params.Reference)); err != nil {
		return nil, err
	}
	if who.wantsCSV {
		if r.Params.Cursor != nil || r.Params.Limit != nil {
			return nil, fault.Invalid(fault.Field{Pointer: "?cursor", Detail: "and limit are for JSON: text/csv has all pages"})
		}
		return s.exportPurchases(who.caller, f)
	}
	answer, err := s.purchaseList(ctx, who.caller, f, page)
	return purchaseListAnswer{answer}, err
}

// FindPurchases answers with one page of the purchases with a reference; for a user, of its
// own.
func (s handlers) FindPurchases(ctx context.Context, r operations.FindPurchasesRequestObject) (operations.FindPurchasesResponseObject, error) {
	who, err := callOf(ctx)
	if err != nil {
		return nil, err
	}
	page, err := listPage(r.Params.Cursor, r.Params.Limit)
	if err != nil {
		return nil, err
	}
	f := purchase.Filter{UserID: who.user}
	if err := s.ofReference(ctx, &f, r.Params.Reference); err != nil {
		return nil, err
	}
	answer, err := s.purchaseList(ctx, who.caller, f, page)
	if err == nil && r.Params.Include != nil {
		err = s.includeCampaigns(ctx, who.caller, answer.Purchases)
	}
	return operations.FindPurchases200JSONResponse{Body: answer}, err
}

// ofReference makes a filter select by the reference of a payment: that of the app, or that
// of the provider for a payment by card.
func (s *Server) ofReference(ctx context.Context, f *purchase.Filter, reference string) error {
	f.Reference = reference
	if !strings.HasPrefix(reference, intentPrefix) {
		return nil
	}
	found, err := payment.OfIntents(ctx, s.db, []string{reference})
	if p, ok := found[reference]; err == nil && ok {
		f.Reference, f.ID = "", p.PurchaseID
	}
	return err
}

// intentPrefix begins the ids of payments at the provider.
const intentPrefix = "pi_"

// purchaseList reads a page of purchases as a caller sees them.
func (s *Server) purchaseList(ctx context.Context, who caller, f purchase.Filter, page postgres.ListPage) (answer contract.PurchaseList, err error) {
	list, next, err := purchase.List(ctx, s.db, f, page)
	if err != nil {
		return answer, err
	}
	answer.NextCursor = listCursor(next)
	answer.Purchases, err = s.purchaseDocuments(ctx, who, list)
	return answer, err
}

// purchaseDocuments are purchases as a caller sees them.
func (s *Server) purchaseDocuments(ctx context.Context, who caller, list []purchase.Purchase) ([]contract.Purchase, error) {
	details, err := resource.ReadPurchaseDetails(ctx, s.db, list...)
	if err != nil {
		return nil, err
	}
	documents := make([]contract.Purchase, len(list))
	for i, p := range list {
		documents[i] = details.Purchase(p, who.role)
	}
	return documents, nil
}

// ListHolds answers with one page of a campaign's holds; for a user, of its own.
func (s handlers) ListHolds(ctx context.Context, r operations.ListHoldsRequestObject) (operations.ListHoldsResponseObject, error) {
	who, err := callOf(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.known.require(ctx, r.Params.CampaignID); err != nil {
		return nil, err
	}
	f := inventory.HoldFilter{CampaignID: r.Params.CampaignID, UserID: who.user, State: inventory.HoldState(valueOf(r.Params.State))}
	answer, err := s.holdList(ctx, f, r.Params.Cursor, r.Params.Limit)
	return operations.ListHolds200JSONResponse{Body: answer}, err
}

// ListUserHolds answers with one page of a user's holds.
func (s handlers) ListUserHolds(ctx context.Context, r operations.ListUserHoldsRequestObject) (operations.ListUserHoldsResponseObject, error) {
	who, err := callOf(ctx)
	if err != nil {
		return nil, err
	}
	if !who.mayActFor(r.User) {
		return nil, fault.New(fault.NotFound, "there is no user %s", r.User)
	}
	answer, err := s.holdList(ctx, inventory.HoldFilter{UserID: r.User, State: inventory.HoldState(valueOf(r.Params.State))}, r.Params.Cursor, r.Params.Limit)
	return operations.ListUserHolds200JSONResponse{Body: answer}, err
}

func (s *Server) holdList(ctx context.Context, f inventory.HoldFilter, cursor *contract.ListCursor, limit *int) (answer contract.HoldList, err error) {
	who, err := callOf(ctx)
	if err != nil {
		return answer, err
	}
	page, err := listPage(cursor, limit)
	if err != nil {
		return answer, err
	}
	list, next, err := inventory.ListHolds(ctx, s.db, f, page)
	if err != nil {
		return answer, err
	}
	answer = contract.HoldList{Holds: make([]contract.Hold, len(list)), NextCursor: listCursor(next)}
	for i, h := range list {
		answer.Holds[i] = resource.Hold(h, who.role)
	}
	return answer, nil
}
