package httpapi

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"

	"github.com/google/uuid"

	"triprize/internal/domain/fault"
	"triprize/internal/domain/uuidv7"
	"triprize/internal/entry/httpapi/call"
	"triprize/internal/entry/httpapi/contract/operations"
	"triprize/internal/entry/httpapi/resource"
	"triprize/internal/entry/httpapi/response"
	"triprize/internal/service/campaigncancel"
	"triprize/internal/store/campaign"
	"triprize/internal/store/job"
)

// campaignsPath is the path of campaigns; the id follows.
const campaignsPath = "/v1/campaigns/"

// CreateCampaign creates a pending campaign.
func (s *Server) CreateCampaign(ctx context.Context, r operations.CreateCampaignRequestObject) (operations.Answer, error) {
	if err := call.CheckMetadata(r.Body.Metadata); err != nil {
		return nil, err
	}
	request := s.command(ctx, job.KindCampaignCreate, http.StatusCreated)
	request.CampaignID = uuidv7.New()
	done, err := s.lifecycle.Create(ctx, request, draftOf(*r.Body, defaultPolicies(s.settings)))
	s.campaigns.forget(request.CampaignID)
	return s.commandDone(ctx, done, err, campaignsPath)
}

// PatchCampaign changes what the campaign's state allows.
func (s *Server) PatchCampaign(ctx context.Context, r operations.PatchCampaignRequestObject) (operations.Answer, error) {
	if given, err := r.Body.Metadata.Get(); err == nil {
		if err := call.CheckMetadata(given); err != nil {
			return nil, err
		}
	}
	changed, err := s.lifecycle.Patch(ctx, r.Campaign, patchOf(*r.Body, defaultPolicies(s.settings)))
	s.campaigns.forget(r.Campaign)
	return operations.PatchCampaign200(resource.Campaign(changed, resource.Operator), err)
}

// PublishCampaign publishes a campaign; its sale opens at sale_starts_at.
func (s *Server) PublishCampaign(ctx context.Context, r operations.PublishCampaignRequestObject) (operations.Answer, error) {
	return s.move(ctx, job.KindCampaignPublish, r.Campaign, s.lifecycle.Publish)
}

// PauseCampaign interrupts the sale.
func (s *Server) PauseCampaign(ctx context.Context, r operations.PauseCampaignRequestObject) (operations.Answer, error) {
	return s.move(ctx, job.KindCampaignPause, r.Campaign, s.lifecycle.Pause)
}

// ResumeCampaign continues the sale.
func (s *Server) ResumeCampaign(ctx context.Context, r operations.ResumeCampaignRequestObject) (operations.Answer, error) {
	return s.move(ctx, job.KindCampaignResume, r.Campaign, s.lifecycle.Resume)
}

// move runs a command that changes the state of a campaign or of its positions.
func (s *Server) move(ctx context.Context, kind job.Kind, id uuid.UUID, move func(context.Context, job.Request) (job.Accepted, error)) (response.Command, error) {
	request := s.command(ctx, kind, http.StatusOK)
	request.CampaignID = id
	done, err := move(ctx, request)
	s.campaigns.forget(id)
	return s.commandDone(ctx, done, err, campaignsPath)
}

// GetCampaign answers with a campaign, or with 304.
func (s *Server) GetCampaign(ctx context.Context, r operations.GetCampaignRequestObject) (operations.Answer, error) {
	c := call.Of(ctx)
	found, err := s.campaigns.campaign(ctx, r.Campaign, c.Role)
	return found.Matched(r.Params.IfNoneMatch), err
}

// ListCampaigns answers with one page of campaigns, newest first, or with 304.
func (s *Server) ListCampaigns(ctx context.Context, r operations.ListCampaignsRequestObject) (operations.Answer, error) {
	c := call.Of(ctx)
	page := campaign.Page{State: campaign.State(response.ValueOf(r.Params.State)), After: response.ValueOf(r.Params.Cursor), Limit: response.PageSize(r.Params.Limit), Published: c.Role != resource.Operator}
	found, err := s.campaigns.list(ctx, page, c.Role)
	return found.Matched(r.Params.IfNoneMatch), err
}

// CancelCampaign accepts the end of a campaign as a job. The job checks whether the
// campaign can be cancelled.
func (s *Server) CancelCampaign(ctx context.Context, r operations.CancelCampaignRequestObject) (operations.Answer, error) {
	return s.cancel(ctx, r.Campaign, campaigncancel.Order{Reason: r.Body.Reason})
}

// VoidDraw accepts the end of a campaign whose draw is stuck as a job. The job checks whether the
// draw may be voided, and announces it.
func (s *Server) VoidDraw(ctx context.Context, r operations.VoidDrawRequestObject) (operations.Answer, error) {
	return s.cancel(ctx, r.Campaign, campaigncancel.Order{Reason: r.Body.Reason, Void: true})
}

func (s *Server) cancel(ctx context.Context, id uuid.UUID, order campaigncancel.Order) (operations.Answer, error) {
	if strings.TrimSpace(order.Reason) == "" {
		return nil, fault.Invalid(fault.Field{Pointer: "/reason", Detail: "must say why, for the records"})
	}
	if err := s.requireCampaign(ctx, id); err != nil {
		return nil, err
	}
	order.By = call.Of(ctx).Signature()
	payload, err := json.Marshal(order)
	if err != nil {
		return nil, err
	}
	answer, err := s.accept(ctx, job.Request{Kind: job.KindCampaignCancellation, CampaignID: id, Payload: payload, Keep: s.settings.Retention.Purchases})
	s.campaigns.forget(id)
	return answer, err
}
