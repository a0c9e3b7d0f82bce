package httpapi

import (
	"context"

	"triprize/internal/domain/fault"
	"triprize/internal/domain/shape"
	"triprize/internal/entry/httpapi/call"
	"triprize/internal/entry/httpapi/contract"
	"triprize/internal/entry/httpapi/contract/operations"
	"triprize/internal/entry/httpapi/response"
	"triprize/internal/store/inventory"
)

// positionHandlers are the operations on positions.
type positionHandlers struct {
	*intake
	boards *positionsCache
}

// positionJSON is one position. Only operators and its own user see whose it is.
func positionJSON(p inventory.Position, who call.Caller) contract.Position {
	d := contract.Position{Layer: p.Layer, Column: p.Column, Number: p.Number, Label: p.Label, Price: int64(p.Price), State: contract.PositionState(p.State)}
	if who.SeesOwners() || p.UserID != nil && who.User != "" && *p.UserID == who.User {
		d.UserID, d.ExpiresAt = p.UserID, p.ExpiresAt
	}
	return d
}

// boardVersion is the version at which positions of a campaign were read. Before
// publication a campaign has none, and its version is 0.
func boardVersion(all []inventory.Position) int64 {
	if len(all) == 0 {
		return 0
	}
	return all[0].AsOf
}

// boardJSON is a whole board.
func boardJSON(version int64, all []inventory.Position, who call.Caller) contract.Board {
	document := contract.Board{BoardVersion: version, Positions: make([]contract.Position, len(all))}
	for i, p := range all {
		document.Positions[i] = positionJSON(p, who)
	}
	return document
}

// changesJSON is what has changed on a board since a version, or the whole board if that
// is most of it or the version is 0 or still to come.
func changesJSON(version, since int64, all []inventory.Position, who call.Caller) contract.Board {
	if since <= 0 || since > version {
		return boardJSON(version, all, who)
	}
	changed := inventory.Since(all, since)
	if 2*len(changed) > len(all) {
		return boardJSON(version, all, who)
	}
	document := boardJSON(version, changed, who)
	document.Since = &since
	return document
}

// ListPositions answers with the board of a campaign, or with what has changed on it.
// Operators get the current state. Others get a copy that is up to a second old, but not
// older than they have seen; for a user, its own positions in it are current.
func (s positionHandlers) ListPositions(ctx context.Context, r operations.ListPositionsRequestObject) (operations.Answer, error) {
	c := call.Of(ctx)
	if err := s.requireCampaign(ctx, r.Campaign); err != nil {
		return nil, err
	}
	least, since := response.ValueOf(r.Params.MinVersion), response.ValueOf(r.Params.Since)
	answer, version, err := s.board(ctx, r, c.Caller, max(least, since), since)
	switch {
	case err != nil:
		return nil, err
	case version < least:
		return nil, fault.New(fault.StateConflict, "the board is at version %d and has not reached %d; read it without min_version", version, least)
	}
	return answer.Matched(r.Params.IfNoneMatch), nil
}

// board returns what the caller may see of a board, and its version. That is least or
// later, unless the board has not reached it.
func (s positionHandlers) board(ctx context.Context, r operations.ListPositionsRequestObject, who call.Caller, least, since int64) (response.Tagged, int64, error) {
	if who.SeesOwners() {
		all, err := inventory.All(ctx, s.db, r.Campaign)
		if err != nil {
			return response.Tagged{}, 0, err
		}
		answer, err := response.TagAt(boardVersion(all), changesJSON(boardVersion(all), since, all, who))
		return answer, boardVersion(all), err
	}
	shared, err := s.boards.get(ctx, r.Campaign, least)
	if err != nil {
		return response.Tagged{}, 0, err
	}
	if who.User == "" {
		changed, err := shared.since(since)
		return changed.answer, shared.version, err
	}
	own, err := inventory.OfUser(ctx, s.db, r.Campaign, who.User)
	if err != nil {
		return response.Tagged{}, 0, err
	}
	answer, err := response.TagAt(shared.version, changesJSON(shared.version, since, inventory.Overlay(shared.positions, own, who.User), who))
	return answer, shared.version, err
}

// GetPosition answers with one position as it is now.
func (s positionHandlers) GetPosition(ctx context.Context, r operations.GetPositionRequestObject) (operations.Answer, error) {
	c := call.Of(ctx)
	found, err := inventory.Get(ctx, s.db, r.Campaign, shape.Position{Layer: r.Layer, Column: r.Column})
	if err != nil {
		return nil, err
	}
	p := positionJSON(found, c.Caller)
	answer, err := response.TagAt(found.AsOf, contract.PositionNow{Layer: p.Layer, Column: p.Column, Number: p.Number, Label: p.Label, Price: p.Price, State: p.State,
		UserID: p.UserID, ExpiresAt: p.ExpiresAt, BoardVersion: found.AsOf})
	return answer.Matched(r.Params.IfNoneMatch), err
}
