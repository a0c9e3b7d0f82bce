package httpapi

import (
	"context"
	"encoding/hex"

	"triprize/internal/domain/fairdraw"
	"triprize/internal/entry/httpapi/contract"
	"triprize/internal/service/draw"
	"triprize/internal/store/campaign"
	"triprize/internal/store/evidence"
	"triprize/internal/store/job"
)

// RequestDraw accepts a draw as a job. A sold-out campaign is drawn automatically;
// this is for operators who want to make sure. It is safe at any time.
func (s handlers) RequestDraw(ctx context.Context, r contract.RequestDrawRequestObject) (contract.RequestDrawResponseObject, error) {
	if err := s.known.require(ctx, r.Campaign); err != nil {
		return nil, err
	}
	return s.accept(ctx, job.Request{Kind: job.KindDraw, CampaignID: r.Campaign, Keep: s.settings.Retention.Jobs})
}

// GetDraw answers with what is public of the draw in its present state.
func (s handlers) GetDraw(ctx context.Context, r contract.GetDrawRequestObject) (contract.GetDrawResponseObject, error) {
	found, err := campaign.Get(ctx, s.db, r.Campaign)
	if err != nil {
		return nil, err
	}
	document := contract.Draw{State: contract.CampaignState(found.State), Winners: []contract.Winner{}}
	bound, published, err := campaign.CommitmentOf(ctx, s.db, r.Campaign)
	if err != nil {
		return nil, err
	}
	if published {
		commitment, trust := hex.EncodeToString(bound.Commitment), fairdraw.TrustOperator
		document.Commitment, document.Trust = &commitment, &trust
	}
	frozen, isFrozen, err := evidence.FreezeOf(ctx, s.db, r.Campaign)
	if err != nil {
		return nil, err
	}
	if isFrozen {
		root := frozen.Root.String()
		document.Root = &root
	}
	result, drawn, err := draw.Get(ctx, s.db, r.Campaign)
	if err != nil {
		return nil, err
	}
	if drawn {
		document.State, document.Secret, document.ExecutedAt = contract.CampaignState(campaign.Completed), &result.Secret, &result.ExecutedAt
		for _, w := range result.Winners {
			document.Winners = append(document.Winners, contract.Winner{Prize: w.Prize, Layer: w.Layer, Column: w.Column, PurchaseID: w.PurchaseID, Name: w.Name})
		}
	}
	return contract.GetDraw200JSONResponse{Body: document}, nil
}
