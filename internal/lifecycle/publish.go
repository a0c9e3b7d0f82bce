package lifecycle

import (
	"context"
	"crypto/rand"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

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
// that no statement takes long and the campaign's lock is free between two. Nobody is
// shown them until Publish has committed. It does nothing for a campaign that is small, or
// that Publish will refuse.
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
	filler := inventory.NewFiller(id)
	for done := false; !done; {
		err := s.persist(ctx, id, func() error {
			return postgres.InTx(ctx, s.db, func(tx pgx.Tx) (err error) {
				done, err = s.fillStep(ctx, tx, id, filler)
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

// filled tells whether the positions of a campaign are made before its publication: it is
// large and pending, and its policies can be kept.
func (s *Service) filled(c campaign.Campaign) bool {
	return c.State == campaign.Pending && c.Counts.Total > inventory.FillStep && s.bindings.check(c.Policies) == nil
}

// fillStep makes the next positions, if the campaign is still one to be filled.
func (s *Service) fillStep(ctx context.Context, tx pgx.Tx, id uuid.UUID, filler *inventory.Filler) (done bool, err error) {
	if err := campaign.Lock(ctx, tx, id); err != nil {
		return false, err
	}
	c, err := campaign.Get(ctx, tx, id)
	if err != nil || !s.filled(c) {
		return true, err
	}
	plan, err := planOf(ctx, tx, id)
	if err != nil {
		return false, err
	}
	return filler.Step(ctx, tx, plan)
}

// planOf returns what the positions of a campaign are made from.
func planOf(ctx context.Context, db postgres.DB, id uuid.UUID) (inventory.Plan, error) {
	layers, err := campaign.Layers(ctx, db, id)
	plan := inventory.Plan{Shape: campaign.Draft{Layers: layers}.Shape(), Prices: make([]money.Amount, len(layers))}
	for i, l := range layers {
		plan.Prices[i] = l.Price
	}
	return plan, err
}

// secretSize is the length in bytes of a draw's secret.
const secretSize = 32

// Publish publishes a pending campaign. From then on its rules and commitment are
// public and cannot change. The secret stays encrypted with key until the draw. A campaign
// with a beacon binds itself to the chain of bindings, and is refused when they have none.
func Publish(ctx context.Context, tx pgx.Tx, key keyring.Keyring, bindings Bindings, id uuid.UUID) error {
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
	if err := bindings.check(c.Policies); err != nil {
		return err
	}
	plan, err := planOf(ctx, tx, id)
	if err != nil {
		return err
	}
	prizes, err := campaign.Prizes(ctx, tx, id)
	if err != nil {
		return err
	}
	chain, err := chainOf(ctx, tx, c, bindings)
	if err != nil {
		return err
	}
	if c.Policies.Unsold == campaign.UnsoldDraw {
		if err := campaign.BindEnd(ctx, tx, id); err != nil {
			return err
		}
	}
	bound, secret, err := commit(c, plan.Shape, prizes, chain)
	if err != nil {
		return err
	}
	if err := inventory.Fill(ctx, tx, id, plan); err != nil {
		return err
	}
	if err := campaign.Activate(ctx, tx, id, bound); err != nil {
		return err
	}
	return drawing.InsertSecret(ctx, tx, id, key.Seal(secret, id[:]))
}

// check returns a state-conflict Error when a campaign with these policies cannot bind
// itself to these bindings.
func (t Bindings) check(p campaign.Policies) error {
	if p.Beacon && t.Chain == nil {
		return fault.New(fault.StateConflict, "the campaign has policies.beacon, but this installation asks no beacon any more (its setting beacon.relays is empty); "+
			"change the policy, or the setting")
	}
	return nil
}

// chainOf returns how the rules name the chain that a campaign binds itself to, and keeps
// what verifies its rounds. It returns nil for a campaign without a beacon.
func chainOf(ctx context.Context, tx pgx.Tx, c campaign.Campaign, bindings Bindings) (*fairdraw.Beacon, error) {
	if !c.Policies.Beacon {
		return nil, nil
	}
	if err := drawing.InsertChain(ctx, tx, *bindings.Chain); err != nil {
		return nil, err
	}
	return &fairdraw.Beacon{ChainHash: bindings.Chain.Hash(), PeriodS: bindings.Chain.PeriodS}, nil
}

// commit makes a random secret, and the commitment to rules and secret.
func commit(c campaign.Campaign, form shape.Shape, prizes []campaign.Prize, chain *fairdraw.Beacon) (bound campaign.Commitment, secret []byte, err error) {
	listed := make([]fairdraw.Prize, len(prizes))
	for i, p := range prizes {
		listed[i] = fairdraw.Prize{Number: p.Number, Layer: p.Layer, Name: p.Name}
	}
	layers := make([]fairdraw.Layer, form.Layers())
	for i := range layers {
		layers[i] = fairdraw.Layer{Layer: i + 1, Positions: form.InLayer(i + 1)}
	}
	promised := fairdraw.NewRules(c.ID, layers, listed, chain)
	if c.Policies.Unsold == campaign.UnsoldDraw {
		promised.Unsold = &fairdraw.Unsold{EndsAt: fairdraw.At(*c.SaleEndsAt)}
	}
	rules, err := promised.Canonical()
	if err != nil {
		return campaign.Commitment{}, nil, err
	}
	secret = make([]byte, secretSize)
	_, _ = rand.Read(secret) // never fails
	commitment := fairdraw.Commitment(c.ID, rules, secret)
	return campaign.Commitment{Rules: rules, Commitment: commitment[:]}, secret, nil
}
