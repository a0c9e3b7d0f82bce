package lifecycle

import (
	"context"
	"crypto/rand"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize.example/draw/beacon"
	"triprize.example/draw/fairdraw"
	"triprize/internal/campaign"
	"triprize/internal/domain/fault"
	"triprize/internal/domain/money"
	"triprize/internal/domain/shape"
	"triprize/internal/drawing"
	"triprize/internal/inventory"
	"triprize/internal/platform/failpoint"
	"triprize/internal/platform/keyring"
	"triprize/internal/platform/postgres"
)

// prepare makes the positions of a large pending campaign, a step in each transaction, so
// that no statement takes long and the campaign's lock is free between two. They are
// invisible until Publish has committed. It does nothing for a campaign that is small, or
// that Publish will reject.
func (s *Service) prepare(ctx context.Context, id uuid.UUID) error {
	c, err := campaign.Get(ctx, s.db, id)
	switch {
	case fault.CodeOf(err) == fault.NotFound: // the refusal is recorded with the job
		return nil
	case err != nil:
		return err
	case !s.filled(c):
		return nil
	}
	for done := false; !done; {
		err := s.persist(ctx, id, func() error {
			return postgres.InTx(ctx, s.db, func(tx pgx.Tx) (err error) {
				done, err = s.fillStep(ctx, tx, id)
				return err
			})
		})
		if err != nil {
			return fmt.Errorf("lifecycle.prepare(%s): %w", id, err)
		}
		failpoint.Hit("lifecycle.step", func() []string { return []string{id.String()} })
	}
	return nil
}

// filled reports whether the positions of a campaign are made before its publication: it is
// large and pending, and its policies can be met.
func (s *Service) filled(c campaign.Campaign) bool {
	return c.State == campaign.Pending && c.Counts.Total > inventory.FillStep && checkBeacon(c.Policies, s.chain) == nil
}

// fillStep makes the next positions, if the campaign is still one to be filled.
func (s *Service) fillStep(ctx context.Context, tx pgx.Tx, id uuid.UUID) (done bool, err error) {
	if err := campaign.Lock(ctx, tx, id); err != nil {
		return false, err
	}
	c, err := campaign.Get(ctx, tx, id)
	if err != nil || !s.filled(c) {
		return true, err
	}
	plan, err := fillPlan(ctx, tx, id)
	if err != nil {
		return false, err
	}
	return inventory.FillNext(ctx, tx, id, plan)
}

// fillPlan returns what the positions of a campaign are made from.
func fillPlan(ctx context.Context, db postgres.DB, id uuid.UUID) (inventory.Plan, error) {
	layers, err := campaign.Layers(ctx, db, id)
	plan := inventory.Plan{Shape: campaign.Draft{Layers: layers}.Shape(), Prices: make([]money.Amount, len(layers))}
	for i, l := range layers {
		plan.Prices[i] = l.Price
	}
	return plan, err
}

// Publish publishes a pending campaign. From then on its rules and commitment are
// public and cannot change. The secret stays encrypted with key until the draw. A campaign
// with a beacon binds itself to the chain, and is rejected without one.
func Publish(ctx context.Context, tx pgx.Tx, key keyring.Keyring, chain *beacon.Chain, id uuid.UUID) error {
	if err := campaign.Lock(ctx, tx, id); err != nil {
		return err
	}
	c, err := campaign.Get(ctx, tx, id)
	if err != nil {
		return err
	}
	if c.State != campaign.Pending {
		return fault.New(fault.StateConflict, "only a pending campaign can be published; this one is %s", c.State)
	}
	if err := checkBeacon(c.Policies, chain); err != nil {
		return err
	}
	plan, err := fillPlan(ctx, tx, id)
	if err != nil {
		return err
	}
	prizes, err := campaign.Prizes(ctx, tx, id)
	if err != nil {
		return err
	}
	var bound *fairdraw.Beacon // as the rules name it
	if c.Policies.Beacon {
		if err := drawing.InsertChain(ctx, tx, *chain); err != nil {
			return err
		}
		bound = &fairdraw.Beacon{ChainHash: chain.Hash(), PeriodS: chain.PeriodS}
	}
	if c.Policies.Unsold == campaign.UnsoldDraw {
		if err := campaign.BindEnd(ctx, tx, id); err != nil {
			return err
		}
	}
	commitment, secret, err := commit(c, plan.Shape, prizes, bound)
	if err != nil {
		return err
	}
	if err := inventory.Fill(ctx, tx, id, plan); err != nil {
		return err
	}
	if err := campaign.Activate(ctx, tx, id, commitment); err != nil {
		return err
	}
	return drawing.InsertSecret(ctx, tx, id, key.Seal(secret, id[:]))
}

// checkBeacon returns a state-conflict Error when a campaign with these policies has no chain to
// bind itself to.
func checkBeacon(p campaign.Policies, chain *beacon.Chain) error {
	if p.Beacon && chain == nil {
		return fault.New(fault.StateConflict, "the campaign has policies.beacon, but this installation no longer has a beacon (its setting beacon.relays is empty); "+
			"change the policy, or the setting")
	}
	return nil
}

// commit makes a random secret, and the commitment to rules and secret.
func commit(c campaign.Campaign, form shape.Shape, prizes []fairdraw.Prize, chain *fairdraw.Beacon) (bound campaign.Commitment, secret []byte, err error) {
	layers := make([]fairdraw.Layer, form.Layers())
	for i := range layers {
		layers[i] = fairdraw.Layer{Layer: i + 1, Positions: form.InLayer(i + 1)}
	}
	promised := fairdraw.NewRules(c.ID, layers, prizes, chain)
	if c.Policies.Unsold == campaign.UnsoldDraw {
		promised.Unsold = &fairdraw.Unsold{EndsAt: fairdraw.At(*c.SaleEndsAt)}
	}
	rules, err := promised.Canonical()
	if err != nil {
		return campaign.Commitment{}, nil, err
	}
	secret = make([]byte, 32)
	_, _ = rand.Read(secret) // never fails
	commitment := fairdraw.Commitment(c.ID, rules, secret)
	return campaign.Commitment{Rules: rules, Commitment: commitment[:]}, secret, nil
}
