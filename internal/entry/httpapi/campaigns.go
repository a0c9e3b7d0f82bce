package httpapi

import (
	"context"
	"net/http"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/entry/httpapi/contract"
	"triprize/internal/platform/postgres"
	"triprize/internal/service/lifecycle"
	"triprize/internal/store/campaign"
	"triprize/internal/store/job"
)

// The kinds of the commands below, as their jobs are recorded.
const (
	kindCreate  job.Kind = "campaign-create"
	kindPublish job.Kind = "campaign-publish"
	kindPause   job.Kind = "campaign-pause"
	kindResume  job.Kind = "campaign-resume"
)

func (s *Server) bounds() campaign.Bounds {
	return campaign.Bounds{MaxBaseLength: s.settings.Campaigns.MaxBaseLength, MinPrice: s.settings.Campaigns.MinPrice}
}

// CreateCampaign creates a pending campaign.
func (s handlers) CreateCampaign(ctx context.Context, r contract.CreateCampaignRequestObject) (contract.CreateCampaignResponseObject, error) {
	draft := draftOf(*r.Body)
	if err := draft.Check(s.bounds()); err != nil {
		return nil, err
	}
	id := job.NewID()
	return s.command(ctx, kindCreate, id, func(tx pgx.Tx) (int, any, error) {
		if err := campaign.Create(ctx, tx, id, draft); err != nil {
			return 0, nil, err
		}
		document, err := loadCampaign(ctx, tx, id)
		return http.StatusCreated, document, err
	})
}

// PatchCampaign changes what the campaign's state allows: everything while it
// is pending; while it is active the name, a higher limit and a later end;
// afterwards the name.
func (s handlers) PatchCampaign(ctx context.Context, r contract.PatchCampaignRequestObject) (contract.PatchCampaignResponseObject, error) {
	var document contract.Campaign
	err := postgres.InTx(ctx, s.db, func(tx pgx.Tx) error {
		if err := campaign.Lock(ctx, tx, r.Campaign); err != nil {
			return err
		}
		now, err := campaign.Get(ctx, tx, r.Campaign)
		if err != nil {
			return err
		}
		if err := s.patch(ctx, tx, now, *r.Body); err != nil {
			return err
		}
		document, err = loadCampaign(ctx, tx, r.Campaign)
		return err
	})
	if err != nil {
		return nil, err
	}
	return contract.PatchCampaign200JSONResponse{Body: document}, nil
}

func (s *Server) patch(ctx context.Context, tx pgx.Tx, now campaign.Campaign, change contract.CampaignPatch) error {
	if now.State == campaign.Pending {
		layers, err := campaign.Layers(ctx, tx, now.ID)
		if err != nil {
			return err
		}
		draft := patched(campaign.Draft{Name: now.Name, BaseLength: now.BaseLength, Currency: now.Currency, PurchaseLimit: now.PurchaseLimit,
			SaleStartsAt: now.SaleStartsAt, SaleEndsAt: now.SaleEndsAt, Policies: now.Policies, Layers: layers}, change)
		if err := draft.Check(s.bounds()); err != nil {
			return err
		}
		return campaign.Replace(ctx, tx, now.ID, draft)
	}
	if fixed := fixedFields(change, now.State); len(fixed) > 0 {
		return fault.New(fault.StateConflict, "the campaign is %s; these can no longer be changed: %v", now.State, fixed)
	}
	if now.State == campaign.Active {
		return campaign.Amend(ctx, tx, now.ID, campaign.Amendment{Name: change.Name,
			PurchaseLimit: valueOf(change.PurchaseLimit), NoPurchaseLimit: change.PurchaseLimit.IsNull(),
			SaleEndsAt: valueOf(change.SaleEndsAt), NoSaleEnd: change.SaleEndsAt.IsNull()})
	}
	return campaign.Rename(ctx, tx, now.ID, *change.Name) // a patch has a field, and every other one is fixed
}

// PublishCampaign opens the sale.
func (s handlers) PublishCampaign(ctx context.Context, r contract.PublishCampaignRequestObject) (contract.PublishCampaignResponseObject, error) {
	return s.move(ctx, kindPublish, r.Campaign, func(ctx context.Context, tx pgx.Tx, id uuid.UUID) error {
		return lifecycle.Publish(ctx, tx, s.key, id)
	})
}

// PauseCampaign interrupts the sale.
func (s handlers) PauseCampaign(ctx context.Context, r contract.PauseCampaignRequestObject) (contract.PauseCampaignResponseObject, error) {
	return s.move(ctx, kindPause, r.Campaign, campaign.Pause)
}

// ResumeCampaign goes on with the sale.
func (s handlers) ResumeCampaign(ctx context.Context, r contract.ResumeCampaignRequestObject) (contract.ResumeCampaignResponseObject, error) {
	return s.move(ctx, kindResume, r.Campaign, campaign.Resume)
}

// move runs a command that moves a campaign and has no body of its own.
func (s *Server) move(ctx context.Context, kind job.Kind, id uuid.UUID, move func(context.Context, pgx.Tx, uuid.UUID) error) (commandAnswer, error) {
	return s.command(ctx, kind, id, func(tx pgx.Tx) (int, any, error) {
		if err := campaign.Lock(ctx, tx, id); err != nil {
			return 0, nil, err
		}
		if err := move(ctx, tx, id); err != nil {
			return 0, nil, err
		}
		document, err := loadCampaign(ctx, tx, id)
		return http.StatusOK, document, err
	})
}

// GetCampaign answers with a campaign as it is now, or with 304.
func (s handlers) GetCampaign(ctx context.Context, r contract.GetCampaignRequestObject) (contract.GetCampaignResponseObject, error) {
	document, err := loadCampaign(ctx, s.db, r.Campaign)
	if err != nil {
		return nil, err
	}
	return tagged(document, r.Params.IfNoneMatch)
}

// ListCampaigns answers with one page of campaigns, newest first.
func (s handlers) ListCampaigns(ctx context.Context, r contract.ListCampaignsRequestObject) (contract.ListCampaignsResponseObject, error) {
	page := campaign.Page{Limit: pageSize(r.Params.Limit)}
	if r.Params.State != nil {
		page.State = campaign.State(*r.Params.State)
	}
	if r.Params.Cursor != nil {
		page.After = *r.Params.Cursor
	}
	list, err := campaign.List(ctx, s.db, page)
	if err != nil {
		return nil, err
	}
	answer := contract.CampaignPage{Campaigns: make([]contract.CampaignSummary, len(list))}
	for i, one := range list {
		answer.Campaigns[i] = summaryJSON(one)
	}
	answer.NextCursor = nextCursor(len(list), page.Limit, func() uuid.UUID { return list[len(list)-1].ID })
	return contract.ListCampaigns200JSONResponse{Body: answer}, nil
}
