package httpapi

import (
	"context"
	"slices"

	"github.com/google/uuid"

	"triprize/internal/entry/httpapi/contract"
	"triprize/internal/entry/httpapi/resource"
	"triprize/internal/store/campaign"
	"triprize/internal/store/purchase"
)

// includePurchases adds to jobs the purchases that they are about, as far as the caller may
// see them.
func (s *Server) includePurchases(ctx context.Context, who caller, jobs []contract.Job) error {
	var ids []uuid.UUID
	for _, j := range jobs {
		if j.PurchaseID != nil && !slices.Contains(ids, *j.PurchaseID) {
			ids = append(ids, *j.PurchaseID)
		}
	}
	found, err := purchase.GetAll(ctx, s.db, ids)
	if err != nil {
		return err
	}
	found = slices.DeleteFunc(found, func(p purchase.Purchase) bool { return !who.mayActFor(p.UserID) })
	documents, err := s.purchaseDocuments(ctx, who, found)
	if err != nil {
		return err
	}
	byID := make(map[uuid.UUID]*contract.Purchase, len(documents))
	for i := range documents {
		byID[documents[i].ID] = &documents[i]
	}
	for i, j := range jobs {
		if j.PurchaseID != nil {
			jobs[i].Purchase = byID[*j.PurchaseID]
		}
	}
	return nil
}

// includeCampaigns adds to purchases their campaigns.
func (s *Server) includeCampaigns(ctx context.Context, who caller, purchases []contract.Purchase) error {
	var ids []uuid.UUID
	for _, p := range purchases {
		if !slices.Contains(ids, p.CampaignID) {
			ids = append(ids, p.CampaignID)
		}
	}
	found, err := campaign.GetAll(ctx, s.db, ids)
	if err != nil {
		return err
	}
	byID := make(map[uuid.UUID]*contract.CampaignSummary, len(found))
	for _, c := range found {
		summary := resource.CampaignSummary(c, who.role)
		byID[c.ID] = &summary
	}
	for i, p := range purchases {
		purchases[i].Campaign = byID[p.CampaignID]
	}
	return nil
}
