package httpapi

import (
	"context"

	"github.com/google/uuid"

	"triprize/internal/domain/shape"
	"triprize/internal/entry/httpapi/contract"
	"triprize/internal/entry/httpapi/contract/operations"
	"triprize/internal/store/inventory"
	"triprize/internal/store/job"
)

// BlockPositions keeps positions from sale.
func (s *Server) BlockPositions(ctx context.Context, r operations.BlockPositionsRequestObject) (operations.Answer, error) {
	chosen, err := s.places(ctx, r.Campaign, r.Body.Positions)
	if err != nil {
		return nil, err
	}
	return s.move(ctx, job.KindPositionsBlock, r.Campaign, func(ctx context.Context, request job.Request) (job.Accepted, error) {
		return s.lifecycle.Block(ctx, request, chosen, r.Body.Reason)
	})
}

// UnblockPositions puts positions on sale again.
func (s *Server) UnblockPositions(ctx context.Context, r operations.UnblockPositionsRequestObject) (operations.Answer, error) {
	chosen, err := s.places(ctx, r.Campaign, r.Body.Positions)
	if err != nil {
		return nil, err
	}
	return s.move(ctx, job.KindPositionsUnblock, r.Campaign, func(ctx context.Context, request job.Request) (job.Accepted, error) {
		return s.lifecycle.Unblock(ctx, request, chosen)
	})
}

// places returns the positions that an operator has chosen, or an invalid-request Error if
// the campaign has no such ones. Limits on what a user may choose do not count.
func (s *Server) places(ctx context.Context, id uuid.UUID, chosen []contract.PlaceDraft) ([]shape.Position, error) {
	known, err := s.facts.Of(ctx, s.db, id)
	if err != nil {
		return nil, err
	}
	places, _, err := placesOf(chosen, "", known.Shape)
	if err != nil {
		return nil, err
	}
	return places, inventory.Selection{Positions: places}.Check(known.Shape, "")
}
