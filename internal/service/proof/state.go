package proof

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/google/uuid"

	"triprize.example/draw/beacon"
	"triprize.example/draw/fairdraw"
	"triprize/internal/domain/shape"
	"triprize/internal/platform/postgres"
	"triprize/internal/store/campaign"
	"triprize/internal/store/drawrecord"
)

// State is what is public of the draw of a campaign.
type State struct {
	Campaign   campaign.Campaign
	Commitment *fairdraw.Hash // nil before publication
	Rules      []byte         // canonical JSON; nil before publication
	Trust      string         // that the rules allow; empty before publication
	Chain      *beacon.Chain  // of the beacon in the rules; nil: none, or before publication
	Progress   drawrecord.Progress
	Freeze     *fairdraw.FreezeRecord // nil: not frozen yet
	Draw       *drawrecord.Draw       // nil: not drawn yet
	Shape      shape.Shape            // empty before publication
}

// StateOf returns the state of a draw, or a not-found Error. Its parts are read one after
// the other. None of them changes once it is there, so a part may only be missing that has
// just been made.
func StateOf(ctx context.Context, db postgres.DB, id uuid.UUID) (s State, err error) {
	if s.Campaign, err = campaign.Get(ctx, db, id); err != nil {
		return s, err
	}
	bound, published, err := campaign.CommitmentOf(ctx, db, id)
	if err != nil || !published {
		return s, err
	}
	var rules fairdraw.Rules
	if err := json.Unmarshal(bound.Rules, &rules); err != nil {
		return s, fmt.Errorf("proof.StateOf(%s): the rules: %w", id, err)
	}
	s.Rules = bound.Rules
	commitment := fairdraw.Hash(bound.Commitment)
	s.Commitment, s.Trust = &commitment, fairdraw.TrustOperator
	if rules.Beacon != nil {
		s.Trust = fairdraw.TrustBeacon
		chain, _, err := drawrecord.ChainOf(ctx, db, rules.Beacon.ChainHash)
		if err != nil {
			return s, err
		}
		s.Chain = &chain
	}
	if s.Shape, err = campaign.ShapeOf(ctx, db, id); err != nil {
		return s, err
	}
	drawn, isDrawn, err := drawrecord.DrawOf(ctx, db, id)
	if err != nil {
		return s, err
	}
	if isDrawn {
		s.Draw, s.Campaign.State = &drawn, campaign.Completed
	}
	progress, err := drawrecord.ReadProgress(ctx, db, []uuid.UUID{id})
	if err != nil {
		return s, err
	}
	s.Progress = progress[id]
	if s.Progress.Record == nil {
		return s, nil
	}
	s.Freeze = new(fairdraw.FreezeRecord)
	if err := json.Unmarshal(s.Progress.Record, s.Freeze); err != nil {
		return s, fmt.Errorf("proof.StateOf(%s): the freeze record: %w", id, err)
	}
	return s, nil
}
