package httpapi

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/domain/triangle"
	"triprize/internal/entry/httpapi/contract"
	"triprize/internal/service/holds"
	"triprize/internal/store/hold"
	"triprize/internal/store/job"
)

func holdJSON(h hold.Hold) contract.Hold {
	d := contract.Hold{ID: h.ID, CampaignID: h.CampaignID, UserID: h.UserID, State: contract.HoldState(h.State), ExpiresAt: h.ExpiresAt,
		Extensions: h.Extensions, PurchaseID: h.PurchaseID, CreatedAt: h.CreatedAt, EndedAt: h.EndedAt,
		Positions: make([]contract.PurchaseItem, len(h.Positions))}
	for i, p := range h.Positions {
		d.Positions[i] = contract.PurchaseItem{Layer: p.Layer, Column: p.Column, Price: p.Price}
		d.Amount += p.Price
	}
	return d
}

// CreateHold keeps positions for a user.
func (s handlers) CreateHold(ctx context.Context, r contract.CreateHoldRequestObject) (contract.CreateHoldResponseObject, error) {
	c, err := callOf(ctx)
	if err != nil {
		return nil, err
	}
	body := r.Body
	if !c.mayActFor(body.UserID) {
		return nil, fault.New(fault.Forbidden, "user_id must be the sub of your token")
	}
	if err := s.checkPlaces(body.Positions, body.Quantity, body.Layer, "", s.settings.Holds.MaxPositions); err != nil {
		return nil, err
	}
	if (len(body.Positions) > 0) == (body.Quantity > 0) {
		return nil, fault.Invalid(fault.Field{Pointer: "", Detail: "must have exactly one of positions and quantity"})
	}
	ttl, err := s.holdTTL(body.TTLSeconds)
	if err != nil {
		return nil, err
	}
	if err := s.known.require(ctx, r.Campaign); err != nil {
		return nil, err
	}
	done, err := s.desk.Hold(ctx, holds.Ask{
		Job: job.Request{ID: job.NewID(), Client: c.client, Key: c.key, Hash: c.fingerprint, Kind: kindHold, CampaignID: r.Campaign,
			UserID: body.UserID, Keep: s.settings.Retention.Jobs},
		Positions: placesOf(body.Positions), Layer: body.Layer, Quantity: body.Quantity, TTL: ttl,
	})
	if err != nil {
		return nil, err
	}
	if done.Err != nil {
		return nil, done.Err
	}
	return s.commandDone(done.Accepted, "/v1/holds/")
}

// The kinds of the jobs that commands on holds leave behind.
const (
	kindHold   = job.Kind("create-hold")
	kindExtend = job.Kind("extend-hold")
)

// holdTTL returns how long to hold, within what this server allows.
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

// checkPlaces checks what the contract cannot say of chosen positions and numbers.
func (s *Server) checkPlaces(positions []contract.PlaceDraft, quantity, layer int, at string, most int) error {
	switch {
	case quantity > most:
		return fault.Invalid(fault.Field{Pointer: at + "/quantity", Detail: fmt.Sprintf("must be at most %d", most)})
	case len(positions) > most:
		return fault.Invalid(fault.Field{Pointer: at + "/positions", Detail: fmt.Sprintf("must have at most %d elements", most)})
	case layer > 0 && quantity == 0:
		return fault.Invalid(fault.Field{Pointer: at + "/layer", Detail: "goes with quantity only"})
	}
	for i, p := range positions {
		if p.Column > p.Layer {
			return fault.Invalid(fault.Field{Pointer: fmt.Sprintf("%s/positions/%d/column", at, i), Detail: fmt.Sprintf("layer %d has columns 1 to %d", p.Layer, p.Layer)})
		}
	}
	return nil
}

func placesOf(drafts []contract.PlaceDraft) []triangle.Position {
	places := make([]triangle.Position, len(drafts))
	for i, d := range drafts {
		places[i] = triangle.Position{Layer: d.Layer, Column: d.Column}
	}
	return places
}

// visibleHold returns a hold that the caller may see.
func (s *Server) visibleHold(ctx context.Context, id uuid.UUID) (hold.Hold, error) {
	who, err := callOf(ctx)
	if err != nil {
		return hold.Hold{}, err
	}
	h, err := hold.Get(ctx, s.db, id)
	if err == nil && !who.mayActFor(h.UserID) {
		return hold.Hold{}, fault.New(fault.NotFound, "there is no hold %s", id)
	}
	return h, err
}

// GetHold answers with a hold as it is now.
func (s handlers) GetHold(ctx context.Context, r contract.GetHoldRequestObject) (contract.GetHoldResponseObject, error) {
	h, err := s.visibleHold(ctx, r.Hold)
	if err != nil {
		return nil, err
	}
	return contract.GetHold200JSONResponse{Body: holdJSON(h)}, nil
}

// ReleaseHold gives back what a hold keeps.
func (s handlers) ReleaseHold(ctx context.Context, r contract.ReleaseHoldRequestObject) (contract.ReleaseHoldResponseObject, error) {
	if _, err := s.visibleHold(ctx, r.Hold); err != nil {
		return nil, err
	}
	h, released, err := holds.Release(ctx, s.db, r.Hold)
	if err != nil {
		return nil, err
	}
	if released {
		s.desk.Released(h)
	}
	return noContent{}, nil
}

// noContent answers that there is nothing to say.
type noContent struct{}

// VisitReleaseHoldResponse implements contract.ReleaseHoldResponseObject.
func (noContent) VisitReleaseHoldResponse(c *fiber.Ctx) error {
	return c.SendStatus(http.StatusNoContent)
}

// ExtendHold moves the deadline of a hold.
func (s handlers) ExtendHold(ctx context.Context, r contract.ExtendHoldRequestObject) (contract.ExtendHoldResponseObject, error) {
	h, err := s.visibleHold(ctx, r.Hold)
	if err != nil {
		return nil, err
	}
	ttl, err := s.holdTTL(r.Body.TTLSeconds)
	if err != nil {
		return nil, err
	}
	answer, err := s.command(ctx, kindExtend, h.CampaignID, func(tx pgx.Tx) (int, any, error) {
		extended, err := holds.Extend(ctx, tx, r.Hold, ttl, s.settings.Holds.MaxExtensions)
		return http.StatusOK, holdJSON(extended), err
	})
	if err == nil && !answer.replayed {
		s.holds.Count(hold.EventExtended, 1)
	}
	return answer, err
}
