package httpapi

import (
	"context"
	"net/http"

	"github.com/google/uuid"

	"triprize/internal/domain/uuidv7"
	"triprize/internal/entry/httpapi/contract/operations"
	"triprize/internal/entry/httpapi/resource"
	"triprize/internal/store/campaign"
	"triprize/internal/store/job"
)

// CreateCampaign creates a pending campaign.
func (s handlers) CreateCampaign(ctx context.Context, r operations.CreateCampaignRequestObject) (operations.CreateCampaignResponseObject, error) {
	if err := checkMetadata(r.Body.Metadata); err != nil {
		return nil, err
	}
	request, err := s.command(ctx, job.KindCampaignCreate, http.StatusCreated)
	if err != nil {
		return nil, err
	}
	request.CampaignID = uuidv7.New()
	done, err := s.lifecycle.Create(ctx, request, draftOf(*r.Body, defaultPolicies(s.settings)))
	s.read.forget(request.CampaignID)
	return s.commandDone(done, err, campaignsPath)
}

// PatchCampaign changes what the campaign's state allows.
func (s handlers) PatchCampaign(ctx context.Context, r operations.PatchCampaignRequestObject) (operations.PatchCampaignResponseObject, error) {
	if given, err := r.Body.Metadata.Get(); err == nil {
		if err := checkMetadata(given); err != nil {
			return nil, err
		}
	}
	changed, err := s.lifecycle.Patch(ctx, r.Campaign, patchOf(*r.Body, defaultPolicies(s.settings)))
	s.read.forget(r.Campaign)
	if err != nil {
		return nil, err
	}
	return operations.PatchCampaign200JSONResponse{Body: resource.Campaign(changed, operator)}, nil
}

// PublishCampaign publishes a campaign; its sale opens at sale_starts_at.
func (s handlers) PublishCampaign(ctx context.Context, r operations.PublishCampaignRequestObject) (operations.PublishCampaignResponseObject, error) {
	return s.move(ctx, job.KindCampaignPublish, r.Campaign, s.lifecycle.Publish)
}

// PauseCampaign interrupts the sale.
func (s handlers) PauseCampaign(ctx context.Context, r operations.PauseCampaignRequestObject) (operations.PauseCampaignResponseObject, error) {
	return s.move(ctx, job.KindCampaignPause, r.Campaign, s.lifecycle.Pause)
}

// ResumeCampaign continues the sale.
func (s handlers) ResumeCampaign(ctx context.Context, r operations.ResumeCampaignRequestObject) (operations.ResumeCampaignResponseObject, error) {
	return s.move(ctx, job.KindCampaignResume, r.Campaign, s.lifecycle.Resume)
}

// move runs a command that changes the state of a campaign and has no body.
func (s *Server) move(ctx context.Context, kind job.Kind, id uuid.UUID, move func(context.Context, job.Request) (job.Accepted, error)) (commandAnswer, error) {
	request, err := s.command(ctx, kind, http.StatusOK)
	if err != nil {
		return commandAnswer{}, err
	}
	request.CampaignID = id
	done, err := move(ctx, request)
	s.read.forget(id)
	return s.commandDone(done, err, campaignsPath)
}

// GetCampaign answers with a campaign, or with 304.
func (s handlers) GetCampaign(ctx context.Context, r operations.GetCampaignRequestObject) (operations.GetCampaignResponseObject, error) {
	c, err := callOf(ctx)
	if err != nil {
		return nil, err
	}
	var found taggedAnswer
	if c.role == operator {
		found, err = readCampaign(ctx, s.db, r.Campaign, operator)
	} else {
		found, err = s.read.campaign(ctx, r.Campaign, c.role)
	}
	if err != nil {
		return nil, err
	}
	return found.matched(r.Params.IfNoneMatch), nil
}

// ListCampaigns answers with one page of campaigns, newest first, or with 304.
func (s handlers) ListCampaigns(ctx context.Context, r operations.ListCampaignsRequestObject) (operations.ListCampaignsResponseObject, error) {
	c, err := callOf(ctx)
	if err != nil {
		return nil, err
	}
	page := campaign.Page{Limit: pageSize(r.Params.Limit)}
	if r.Params.State != nil {
		page.State = campaign.State(*r.Params.State)
	}
	if r.Params.Cursor != nil {
		page.After = *r.Params.Cursor
	}
	var found taggedAnswer
	if c.role == operator || r.Params.Cursor != nil { // only the first page is read by crowds
		found, err = readCampaigns(ctx, s.db, page, c.role)
	} else {
		found, err = s.read.list(ctx, page, c.role)
	}
	if err != nil {
		return nil, err
	}
	return found.matched(r.Params.IfNoneMatch), nil
}
