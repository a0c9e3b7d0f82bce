package httpapi

import (
	"context"
	"slices"

	"triprize/internal/domain/fault"
	"triprize/internal/domain/shape"
	"triprize/internal/entry/httpapi/call"
	"triprize/internal/entry/httpapi/contract"
	"triprize/internal/entry/httpapi/contract/operations"
	"triprize/internal/entry/httpapi/positions"
	"triprize/internal/entry/httpapi/response"
	"triprize/internal/store/inventory"
)

// ListPositions answers with the board of a campaign, or with what has changed on it.
// Operators get the current state. Others get a copy that is up to a second old, but not
// older than they have seen; for a user, its own positions in it are current.
func (s *Server) ListPositions(ctx context.Context, r operations.ListPositionsRequestObject) (operations.Answer, error) {
	c := call.Of(ctx)
	if err := s.requireCampaign(ctx, r.Campaign); err != nil {
		return nil, err
	}
	least, since := response.ValueOf(r.Params.MinVersion), response.ValueOf(r.Params.Since)
	view, err := s.view(ctx, r, c.Caller, max(least, since), since)
	switch {
	case err != nil:
		return nil, err
	case view.Version < max(least, since):
		return nil, fault.New(fault.StateConflict, "the board is at version %d and has not reached %d; read it without min_version and since", view.Version, max(least, since))
	}
	view.Tagged = view.Matched(r.Params.IfNoneMatch)
	return positions.Answer{View: view, Sending: s.answers}, nil
}

// view returns what the caller may see of a board. Its version is least or later, unless
// the board has not reached it.
func (s *Server) view(ctx context.Context, r operations.ListPositionsRequestObject, who call.Caller, least, since int64) (positions.View, error) {
	if who.SeesOwners() {
		all, err := inventory.All(ctx, s.db, r.Campaign)
		if err != nil {
			return positions.View{}, err
		}
		current, err := positions.New(all, true)
		if err != nil {
			return positions.View{}, err
		}
		return current.View(since, "", nil)
	}
	shared, err := s.board(ctx, r.Campaign, least)
	if err != nil {
		return positions.View{}, err
	}
	var own []inventory.Position
	if who.User != "" {
		if own, err = inventory.OfUser(ctx, s.db, r.Campaign, who.App, who.User); err != nil {
			return positions.View{}, err
		}
	}
	return shared.View(since, who.User, own)
}

// GetPosition answers with one position as it is now.
func (s *Server) GetPosition(ctx context.Context, r operations.GetPositionRequestObject) (operations.Answer, error) {
	c := call.Of(ctx)
	found, err := inventory.Get(ctx, s.db, r.Campaign, shape.Position{Layer: r.Layer, Column: r.Column})
	if err != nil {
		return nil, err
	}
	isOwn := false
	if c.User != "" && found.UserID != nil && *found.UserID == c.User { // perhaps the same name at another client
		own, err := inventory.OfUser(ctx, s.db, r.Campaign, c.App, c.User)
		if err != nil {
			return nil, err
		}
		isOwn = slices.ContainsFunc(own, func(p inventory.Position) bool { return p.UserID != nil && p.Layer == r.Layer && p.Column == r.Column })
	}
	p := positions.Position(found, c.SeesOwners() || isOwn)
	answer, err := response.TagAt(found.AsOf, contract.PositionNow{Layer: p.Layer, Column: p.Column, Number: p.Number, Label: p.Label, Price: p.Price, State: p.State,
		Prize: p.Prize, UserID: p.UserID, ExpiresAt: p.ExpiresAt, BlockReason: p.BlockReason, BoardVersion: found.AsOf})
	return answer.Matched(r.Params.IfNoneMatch), err
}
