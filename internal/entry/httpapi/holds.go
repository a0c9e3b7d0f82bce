package httpapi

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/gofiber/fiber/v2"

	"triprize/internal/domain/fault"
	"triprize/internal/domain/metadata"
	"triprize/internal/entry/httpapi/call"
	"triprize/internal/entry/httpapi/contract"
	"triprize/internal/entry/httpapi/contract/operations"
	"triprize/internal/entry/httpapi/resource"
	"triprize/internal/entry/httpapi/response"
	"triprize/internal/inventory"
	"triprize/internal/job"
)

func (s *server) CreateHold(ctx context.Context, r operations.CreateHoldRequestObject) (operations.Answer, error) {
	c := call.Of(ctx)
	body := r.Body
	if err := c.MayAskFor(body.UserID, body.Metadata); err != nil {
		return nil, err
	}
	ttl, err := s.holdTTL(body.TTLSeconds)
	if err != nil {
		return nil, err
	}
	selection, err := inventory.Selection{Quantity: body.Quantity, Layer: body.Layer, Adjacent: body.Adjacent}.With(ctx, s.db, s.terms, r.Campaign,
		choices(body.Positions), "", s.settings.Holds.MaxPositions)
	if err != nil {
		return nil, err
	}
	request := s.command(ctx, job.KindHoldCreate)
	request.CampaignID, request.UserID = r.Campaign, body.UserID
	done, err := s.holds.Create(ctx, inventory.HoldRequest{Job: request, TTL: ttl, Selection: selection,
		Metadata: metadata.Map(body.Metadata), Viewer: string(c.Role)})
	return s.commandDone(ctx, done, err)
}

// holdTTL returns how long a hold lasts: seconds, or the default for 0. It must be
// within the settings.
func (s *server) holdTTL(seconds int) (time.Duration, error) {
	const shortest = time.Second
	bounds := s.settings.Holds
	ttl := time.Duration(seconds) * time.Second
	if seconds == 0 {
		ttl = bounds.TTL
	}
	if ttl < shortest || ttl > bounds.MaxTTL {
		return 0, fault.Invalid(fault.Field{Pointer: "/ttl_seconds",
			Detail: fmt.Sprintf("must be %.0f to %.0f", shortest.Seconds(), bounds.MaxTTL.Seconds())})
	}
	return ttl, nil
}

func (s *server) GetHold(ctx context.Context, r operations.GetHoldRequestObject) (operations.Answer, error) {
	who := call.Of(ctx)
	h, err := inventory.GetHold(ctx, s.db, who.Grant(), r.Hold)
	return operations.GetHold200(resource.Hold(h, who.Role), err)
}

func (s *server) ReleaseHold(ctx context.Context, r operations.ReleaseHoldRequestObject) (operations.Answer, error) {
	h, err := inventory.GetHold(ctx, s.db, call.Of(ctx).Grant(), r.Hold)
	if err != nil {
		return nil, err
	}
	_, err = s.holds.Release(ctx, h.CampaignID, r.Hold)
	return noContent, err
}

// noContent answers 204, without a body.
var noContent = sendFunc(func(c *fiber.Ctx) error { return c.SendStatus(http.StatusNoContent) })

func (s *server) ExtendHold(ctx context.Context, r operations.ExtendHoldRequestObject) (operations.Answer, error) {
	who := call.Of(ctx)
	h, err := inventory.GetHold(ctx, s.db, who.Grant(), r.Hold)
	if err != nil {
		return nil, err
	}
	ttl, err := s.holdTTL(r.Body.TTLSeconds)
	if err != nil {
		return nil, err
	}
	request := s.command(ctx, job.KindHoldExtend)
	request.CampaignID, request.UserID, request.Owner = h.CampaignID, h.UserID, h.Client
	done, err := s.holds.Extend(ctx, inventory.HoldRequest{Job: request, TTL: ttl, Viewer: string(who.Role)}, r.Hold)
	return s.commandDone(ctx, done, err)
}

func (s *server) ListHolds(ctx context.Context, r operations.ListHoldsRequestObject) (operations.Answer, error) {
	who := call.Of(ctx)
	if err := s.requireCampaign(ctx, r.Params.CampaignID); err != nil {
		return nil, err
	}
	f := inventory.HoldFilter{Who: who.Grant(), CampaignID: r.Params.CampaignID, UserID: who.User, State: inventory.HoldState(response.ValueOf(r.Params.State))}
	return operations.ListHolds200(s.holdList(ctx, f, r.Params.Cursor, r.Params.Limit))
}

func (s *server) ListUserHolds(ctx context.Context, r operations.ListUserHoldsRequestObject) (operations.Answer, error) {
	who := call.Of(ctx)
	if !who.MayActFor(r.User) {
		return nil, fault.New(fault.NotFound, "there is no user %s", r.User)
	}
	f := inventory.HoldFilter{Who: who.Grant(), UserID: r.User, State: inventory.HoldState(response.ValueOf(r.Params.State))}
	return operations.ListUserHolds200(s.holdList(ctx, f, r.Params.Cursor, r.Params.Limit))
}

func (s *server) holdList(ctx context.Context, f inventory.HoldFilter, cursor *contract.ListCursor, limit *int) (answer contract.HoldList, err error) {
	who := call.Of(ctx)
	page, err := response.ListPage(cursor, limit)
	if err != nil {
		return answer, err
	}
	list, next, err := inventory.ListHolds(ctx, s.db, f, page)
	if err != nil {
		return answer, err
	}
	return contract.HoldList{Holds: response.Documents(list, func(h inventory.Hold) contract.Hold { return resource.Hold(h, who.Role) }),
		NextCursor: response.ListCursor(next)}, nil
}

// choices are the chosen positions of a request.
func choices(chosen []contract.PlaceDraft) []inventory.Choice {
	return response.Documents(chosen, func(c contract.PlaceDraft) inventory.Choice { return inventory.Choice(c) })
}
