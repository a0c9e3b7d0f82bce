package httpapi

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/google/uuid"

	"triprize/internal/domain/fault"
	"triprize/internal/domain/metadata"
	"triprize/internal/entry/httpapi/contract/operations"
	"triprize/internal/entry/httpapi/resource"
	"triprize/internal/service/holds"
	"triprize/internal/store/inventory"
	"triprize/internal/store/job"
)

// CreateHold keeps positions for a user.
func (s handlers) CreateHold(ctx context.Context, r operations.CreateHoldRequestObject) (operations.CreateHoldResponseObject, error) {
	c, err := callOf(ctx)
	if err != nil {
		return nil, err
	}
	body := r.Body
	if !c.mayActFor(body.UserID) {
		return nil, fault.New(fault.Forbidden, "user_id must be the sub of your token")
	}
	if err := c.mayWrite(body.Metadata); err != nil {
		return nil, err
	}
	ttl, err := s.holdTTL(body.TTLSeconds)
	if err != nil {
		return nil, err
	}
	selection, err := s.offers.selection(ctx, r.Campaign, wanted{positions: body.Positions, quantity: body.Quantity, layer: body.Layer, most: s.settings.Holds.MaxPositions})
	if err != nil {
		return nil, err
	}
	request, err := s.command(ctx, job.KindHoldCreate, http.StatusCreated)
	if err != nil {
		return nil, err
	}
	request.CampaignID, request.UserID = r.Campaign, body.UserID
	done, err := s.holds.Create(ctx, holds.Request{Job: request, TTL: ttl, Selection: selection,
		Metadata: metadata.Map(body.Metadata), Viewer: string(c.role)})
	if err == nil {
		err = done.Err
	}
	return s.commandDone(done.Accepted, err, holdsPath)
}

// holdTTL returns how long a hold lasts: seconds, or the default for 0. It must be
// within the settings.
func (s *Server) holdTTL(seconds int) (time.Duration, error) {
	bounds := s.settings.Holds
	ttl := time.Duration(seconds) * time.Second
	if seconds == 0 {
		ttl = bounds.TTL
	}
	if ttl < bounds.MinTTL || ttl > bounds.MaxTTL {
		return 0, fault.Invalid(fault.Field{Pointer: "/ttl_seconds",
			Detail: fmt.Sprintf("must be %.0f to %.0f", bounds.MinTTL.Seconds(), bounds.MaxTTL.Seconds())})
	}
	return ttl, nil
}

// visibleHold returns a hold that the caller may see.
func (s *Server) visibleHold(ctx context.Context, id uuid.UUID) (inventory.Hold, error) {
	who, err := callOf(ctx)
	if err != nil {
		return inventory.Hold{}, err
	}
	h, err := inventory.GetHold(ctx, s.db, id)
	if err == nil && !who.mayActFor(h.UserID) {
		return inventory.Hold{}, fault.New(fault.NotFound, "there is no hold %s", id)
	}
	return h, err
}

// GetHold answers with a hold as it is now.
func (s handlers) GetHold(ctx context.Context, r operations.GetHoldRequestObject) (operations.GetHoldResponseObject, error) {
	who, err := callOf(ctx)
	if err != nil {
		return nil, err
	}
	h, err := s.visibleHold(ctx, r.Hold)
	if err != nil {
		return nil, err
	}
	return operations.GetHold200JSONResponse{Body: resource.Hold(h, who.role)}, nil
}

// ReleaseHold releases the positions of a hold.
func (s handlers) ReleaseHold(ctx context.Context, r operations.ReleaseHoldRequestObject) (operations.ReleaseHoldResponseObject, error) {
	h, err := s.visibleHold(ctx, r.Hold)
	if err != nil {
		return nil, err
	}
	if _, err := s.holds.Release(ctx, h.CampaignID, r.Hold); err != nil {
		return nil, err
	}
	return noContent{}, nil
}

// noContent answers 204, without a body.
type noContent struct{}

// VisitReleaseHoldResponse implements operations.ReleaseHoldResponseObject.
func (noContent) VisitReleaseHoldResponse(c *fiber.Ctx) error {
	return c.SendStatus(http.StatusNoContent)
}

// ExtendHold moves the end of a hold.
func (s handlers) ExtendHold(ctx context.Context, r operations.ExtendHoldRequestObject) (operations.ExtendHoldResponseObject, error) {
	who, err := callOf(ctx)
	if err != nil {
		return nil, err
	}
	h, err := s.visibleHold(ctx, r.Hold)
	if err != nil {
		return nil, err
	}
	ttl, err := s.holdTTL(r.Body.TTLSeconds)
	if err != nil {
		return nil, err
	}
	request, err := s.command(ctx, job.KindHoldExtend, http.StatusOK)
	if err != nil {
		return nil, err
	}
	request.CampaignID = h.CampaignID
	done, err := s.holds.Extend(ctx, holds.Request{Job: request, TTL: ttl, Viewer: string(who.role)}, r.Hold)
	return s.commandDone(done, err, holdsPath)
}
