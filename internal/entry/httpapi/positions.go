package httpapi

import (
	"context"

	"triprize/internal/domain/triangle"
	"triprize/internal/entry/httpapi/contract"
	"triprize/internal/store/inventory"
)

// positionJSON is one position. Only operators and its own user see whose it is.
func positionJSON(p inventory.Position, who caller) contract.Position {
	d := contract.Position{Layer: p.Layer, Column: p.Column, Price: int64(p.Price), State: contract.PositionState(p.State)}
	if who.seesOwners() || p.UserID != nil && who.user != "" && *p.UserID == who.user {
		d.UserID, d.ExpiresAt = p.UserID, p.ExpiresAt
	}
	return d
}

// ListPositions answers with all positions of a campaign. Operators get the current
// state. Others get a copy that is up to a second old; for a user, its own positions
// in it are current.
func (s handlers) ListPositions(ctx context.Context, r contract.ListPositionsRequestObject) (contract.ListPositionsResponseObject, error) {
	c, err := callOf(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.known.require(ctx, r.Campaign); err != nil {
		return nil, err
	}
	if c.seesOwners() {
		all, err := inventory.All(ctx, s.db, r.Campaign)
		if err != nil {
			return nil, err
		}
		return tagged(positionsJSON(all, c.caller), r.Params.IfNoneMatch)
	}
	shared, err := s.positions.get(ctx, r.Campaign)
	if err != nil {
		return nil, err
	}
	if c.user == "" {
		return shared.public.matched(r.Params.IfNoneMatch), nil
	}
	own, err := inventory.OfUser(ctx, s.db, r.Campaign, c.user)
	if err != nil {
		return nil, err
	}
	return tagged(positionsJSON(inventory.Overlay(shared.positions, own, c.user), c.caller), r.Params.IfNoneMatch)
}

func positionsJSON(all []inventory.Position, who caller) contract.Board {
	document := contract.Board{Positions: make([]contract.Position, len(all))}
	for i, p := range all {
		document.Positions[i] = positionJSON(p, who)
	}
	return document
}

// GetPosition answers with one position as it is now.
func (s handlers) GetPosition(ctx context.Context, r contract.GetPositionRequestObject) (contract.GetPositionResponseObject, error) {
	c, err := callOf(ctx)
	if err != nil {
		return nil, err
	}
	p, err := inventory.Get(ctx, s.db, r.Campaign, triangle.Position{Layer: r.Layer, Column: r.Column})
	if err != nil {
		return nil, err
	}
	return contract.GetPosition200JSONResponse{Body: positionJSON(p, c.caller)}, nil
}
