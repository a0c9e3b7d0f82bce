package draw

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/google/uuid"

	"triprize.example/draw/beacon"
	"triprize.example/draw/fairdraw"
	"triprize/internal/platform/postgres"
	"triprize/internal/store/campaign"
	"triprize/internal/store/drawrecord"
)

// plan is what a campaign has bound its draw to.
type plan struct {
	text       []byte // the rules, canonical JSON
	rules      fairdraw.Rules
	commitment fairdraw.Hash
	chain      beacon.Chain // that the rules name, if they name one
}

func planOf(ctx context.Context, db postgres.DB, id uuid.UUID) (p plan, err error) {
	bound, ok, err := campaign.CommitmentOf(ctx, db, id)
	if err != nil {
		return p, err
	}
	if !ok {
		return p, fmt.Errorf("draw.planOf(%s): the campaign has no commitment", id)
	}
	p.text, p.commitment = bound.Rules, fairdraw.Hash(bound.Commitment)
	if err := json.Unmarshal(bound.Rules, &p.rules); err != nil {
		return p, fmt.Errorf("draw.planOf(%s): the rules: %w", id, err)
	}
	if p.rules.Beacon == nil {
		return p, nil
	}
	p.chain, ok, err = drawrecord.ChainOf(ctx, db, p.rules.Beacon.ChainHash)
	if err != nil {
		return p, err
	}
	if !ok || p.chain.Hash() != p.rules.Beacon.ChainHash || p.chain.PeriodS != p.rules.Beacon.PeriodS {
		return p, fmt.Errorf("draw.planOf(%s): the chain %s, which the rules name, is not stored as they name it", id, p.rules.Beacon.ChainHash)
	}
	return p, nil
}

// trust is the level of trust that the rules promise.
func (p plan) trust() string {
	if p.rules.Beacon != nil {
		return fairdraw.TrustBeacon
	}
	return fairdraw.TrustOperator
}

// check returns an error when secret is not the one committed to.
func (p plan) check(id uuid.UUID, secret []byte) error {
	if fairdraw.Hash(fairdraw.Commitment(id, p.text, secret)) != p.commitment {
		return fmt.Errorf("draw(%s): rules and secret are not what was committed to", id)
	}
	return nil
}
