package lifecycle

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/domain/money"
	"triprize/internal/platform/failpoint"
	"triprize/internal/platform/postgres"
	"triprize/internal/store/campaign"
	"triprize/internal/store/inventory"
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
