package httpapi

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/google/uuid"
	"github.com/oapi-codegen/nullable"

	"triprize/internal/campaign"
	"triprize/internal/domain/fault"
	"triprize/internal/domain/metadata"
	"triprize/internal/domain/money"
	"triprize/internal/domain/shape"
	"triprize/internal/domain/uuidv7"
	"triprize/internal/entry/httpapi/call"
	"triprize/internal/entry/httpapi/contract"
	"triprize/internal/entry/httpapi/contract/operations"
	"triprize/internal/entry/httpapi/resource"
	"triprize/internal/entry/httpapi/response"
	"triprize/internal/inventory"
	"triprize/internal/job"
	"triprize/internal/lifecycle"
	"triprize/internal/platform/config"
	"triprize/internal/platform/readcache"
)

func (s *server) CreateCampaign(ctx context.Context, r operations.CreateCampaignRequestObject) (operations.Answer, error) {
	if err := call.CheckMetadata(r.Body.Metadata); err != nil {
		return nil, err
	}
	request := s.command(ctx, job.KindCampaignCreate)
	request.CampaignID = uuidv7.New()
	done, err := s.lifecycle.Create(ctx, request, draftOf(*r.Body, defaultPolicies(s.settings)))
	s.forget(request.CampaignID)
	return s.commandDone(ctx, done, err)
}

func (s *server) PatchCampaign(ctx context.Context, r operations.PatchCampaignRequestObject) (operations.Answer, error) {
	if given, err := r.Body.Metadata.Get(); err == nil {
		if err := call.CheckMetadata(given); err != nil {
			return nil, err
		}
	}
	changed, err := s.lifecycle.Patch(ctx, r.Campaign, patchOf(*r.Body, defaultPolicies(s.settings)))
	s.forget(r.Campaign)
	return operations.PatchCampaign200(resource.Campaign(changed, resource.Operator), err)
}

func (s *server) PublishCampaign(ctx context.Context, r operations.PublishCampaignRequestObject) (operations.Answer, error) {
	return s.move(ctx, job.KindCampaignPublish, r.Campaign, s.lifecycle.Publish)
}

func (s *server) PauseCampaign(ctx context.Context, r operations.PauseCampaignRequestObject) (operations.Answer, error) {
	return s.move(ctx, job.KindCampaignPause, r.Campaign, s.lifecycle.Pause)
}

func (s *server) ResumeCampaign(ctx context.Context, r operations.ResumeCampaignRequestObject) (operations.Answer, error) {
	return s.move(ctx, job.KindCampaignResume, r.Campaign, s.lifecycle.Resume)
}

func (s *server) move(ctx context.Context, kind job.Kind, id uuid.UUID, move func(context.Context, job.Request) (job.Accepted, error)) (response.Result, error) {
	request := s.command(ctx, kind)
	request.CampaignID = id
	done, err := move(ctx, request)
	s.forget(id)
	return s.commandDone(ctx, done, err)
}

// GetCampaign answers others than operators with a campaign as it was half a second ago at most, and fresh.
func (s *server) GetCampaign(ctx context.Context, r operations.GetCampaignRequestObject) (operations.Answer, error) {
	who := call.Of(ctx).Role
	if who.SeesAll() {
		found, err := readCampaign(ctx, s.db, r.Campaign, who)
		return found.Matched(r.Params.IfNoneMatch), err
	}
	found, err := s.campaigns.Get(ctx, campaignCopy{r.Campaign, readerOf(who)}, func(known readcache.Copy[response.Tagged]) bool { return s.isFresh(r.Campaign, known.ReadAt) })
	return found.Value.Matched(r.Params.IfNoneMatch), err
}

// ListCampaigns answers with one page. The first one, which crowds read, is as it was half a second ago at
// most, but for operators.
func (s *server) ListCampaigns(ctx context.Context, r operations.ListCampaignsRequestObject) (operations.Answer, error) {
	who := call.Of(ctx).Role
	page := campaign.Page{State: campaign.State(response.ValueOf(r.Params.State)), After: response.ValueOf(r.Params.Cursor), Limit: response.PageSize(r.Params.Limit), Published: !who.SeesAll()}
	if who.SeesAll() || page.After != uuid.Nil {
		found, err := readCampaigns(ctx, s.db, page, who)
		return found.Matched(r.Params.IfNoneMatch), err
	}
	found, err := s.lists.Get(ctx, listCopy{page, readerOf(who)}, nil)
	return found.Value.Matched(r.Params.IfNoneMatch), err
}

// CancelCampaign accepts the end of a campaign as a job. The job checks whether the
// campaign can be cancelled.
func (s *server) CancelCampaign(ctx context.Context, r operations.CancelCampaignRequestObject) (operations.Answer, error) {
	return s.cancel(ctx, r.Campaign, lifecycle.CancelOrder{Reason: r.Body.Reason})
}

// VoidDraw accepts the end of a campaign whose draw is stuck as a job. The job checks whether the
// draw may be voided, and announces it.
func (s *server) VoidDraw(ctx context.Context, r operations.VoidDrawRequestObject) (operations.Answer, error) {
	return s.cancel(ctx, r.Campaign, lifecycle.CancelOrder{Reason: r.Body.Reason, Void: true})
}

func (s *server) cancel(ctx context.Context, id uuid.UUID, order lifecycle.CancelOrder) (operations.Answer, error) {
	if strings.TrimSpace(order.Reason) == "" {
		return nil, fault.Invalid(fault.Field{Pointer: "/reason", Detail: "must state the reason, for the records"})
	}
	if err := s.requireCampaign(ctx, id); err != nil {
		return nil, err
	}
	order.By = call.Of(ctx).Signature()
	payload, err := json.Marshal(order)
	if err != nil {
		return nil, err
	}
	answer, err := s.accept(ctx, job.Request{Kind: job.KindCampaignCancellation, CampaignID: id, Payload: payload, Retention: s.settings.Retention.Purchases})
	s.forget(id)
	return answer, err
}

func (s *server) BlockPositions(ctx context.Context, r operations.BlockPositionsRequestObject) (operations.Answer, error) {
	chosen, err := s.positionsIn(ctx, r.Campaign, r.Body.Positions)
	if err != nil {
		return nil, err
	}
	return s.move(ctx, job.KindPositionsBlock, r.Campaign, func(ctx context.Context, request job.Request) (job.Accepted, error) {
		return s.lifecycle.Block(ctx, request, chosen, r.Body.Reason)
	})
}

func (s *server) UnblockPositions(ctx context.Context, r operations.UnblockPositionsRequestObject) (operations.Answer, error) {
	chosen, err := s.positionsIn(ctx, r.Campaign, r.Body.Positions)
	if err != nil {
		return nil, err
	}
	return s.move(ctx, job.KindPositionsUnblock, r.Campaign, func(ctx context.Context, request job.Request) (job.Accepted, error) {
		return s.lifecycle.Unblock(ctx, request, chosen)
	})
}

// positionsIn returns the positions that an operator has chosen, or an invalid-request Error if
// the campaign has no such ones. Limits on what a user may choose do not count.
func (s *server) positionsIn(ctx context.Context, id uuid.UUID, chosen []contract.PlaceDraft) ([]shape.Position, error) {
	known, err := s.terms.Of(ctx, s.db, id)
	if err != nil {
		return nil, err
	}
	positions, _, err := inventory.Choose(choices(chosen), "", known.Shape)
	if err != nil {
		return nil, err
	}
	return positions, inventory.Selection{Positions: positions}.Check(known.Shape, "")
}

// defaultPolicies are those of a request that does not say, in an installation with these
// settings.
func defaultPolicies(settings config.Settings) campaign.Policies {
	return campaign.Policies{Unsold: campaign.UnsoldStay, Beacon: settings.Beacon.Default, Disputes: campaign.DisputesKeep}
}

// draftOf is a requested campaign. Policies that it does not name are as in defaults.
func draftOf(body contract.CampaignDraft, defaults campaign.Policies) campaign.Draft {
	return campaign.Draft{Name: body.Name, BaseLength: body.BaseLength, Currency: money.Currency(body.Currency), PurchaseLimit: body.PurchaseLimit,
		SaleStartsAt: body.SaleStartsAt, SaleEndsAt: body.SaleEndsAt, Policies: policiesOf(body.Policies, defaults), Layers: layersOf(body.Layers),
		Metadata: metadata.Map(body.Metadata), PublicPage: campaign.PublicPage(body.PublicPage), EmbedOrigins: body.EmbedOrigins}
}

// patchOf is a requested change. A member that is left out stays as it is; null
// removes the value. Policies are changed as a whole.
func patchOf(change contract.CampaignPatch, defaults campaign.Policies) campaign.Patch {
	p := campaign.Patch{Name: change.Name, BaseLength: change.BaseLength, PurchaseLimit: optional(change.PurchaseLimit),
		SaleStartsAt: optional(change.SaleStartsAt), SaleEndsAt: optional(change.SaleEndsAt)}
	if change.Metadata.IsSpecified() {
		given, _ := change.Metadata.Get() // null: none any more
		p.Metadata = new(metadata.Map(given))
	}
	if change.Currency != nil {
		p.Currency = new(money.Currency(*change.Currency))
	}
	if change.Layers != nil {
		p.Layers = layersOf(*change.Layers)
	}
	if change.PublicPage != nil {
		p.PublicPage = new(campaign.PublicPage(*change.PublicPage))
	}
	if change.EmbedOrigins != nil {
		p.EmbedOrigins = change.EmbedOrigins
	}
	if change.Policies != nil {
		p.Policies = new(policiesOf(change.Policies, defaults))
	}
	return p
}

func optional[T any](n nullable.Nullable[T]) campaign.Optional[T] {
	if value, err := n.Get(); err == nil {
		return campaign.Optional[T]{Set: true, Value: &value}
	}
	return campaign.Optional[T]{Set: n.IsSpecified()}
}

func policiesOf(draft *contract.PoliciesDraft, policies campaign.Policies) campaign.Policies {
	if draft == nil {
		return policies
	}
	if draft.Unsold != nil {
		policies.Unsold = string(*draft.Unsold)
	}
	if draft.Beacon != nil {
		policies.Beacon = *draft.Beacon
	}
	if draft.Disputes != nil {
		policies.Disputes = string(*draft.Disputes)
	}
	policies.CancellationUntil = draft.CancellationUntil
	return policies
}

func layersOf(drafts []contract.LayerDraft) []campaign.Layer {
	layers := make([]campaign.Layer, len(drafts))
	for i, d := range drafts {
		layers[i] = campaign.Layer{Layer: d.Layer, Positions: d.Positions, Label: d.Label, Aisles: d.Aisles, Price: money.Amount(d.Price)}
		for _, p := range d.Prizes {
			layers[i].Prizes = append(layers[i].Prizes, campaign.PrizeGroup{Name: p.Name, Count: p.Count})
		}
	}
	return layers
}
