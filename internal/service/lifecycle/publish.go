package lifecycle

import (
	"context"
	"crypto/rand"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fairdraw"
	"triprize/internal/domain/fault"
	"triprize/internal/domain/money"
	"triprize/internal/platform/seal"
	"triprize/internal/store/campaign"
	"triprize/internal/store/evidence"
	"triprize/internal/store/inventory"
)

// secretSize is the length in bytes of a draw's secret.
const secretSize = 32

// Publish publishes a pending campaign. From then on its rules and commitment are
// public and cannot change. The secret stays encrypted with key until the draw.
func Publish(ctx context.Context, tx pgx.Tx, key seal.Ring, id uuid.UUID) error {
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
	layers, err := campaign.Layers(ctx, tx, id)
	if err != nil {
		return err
	}
	prizes, err := campaign.Prizes(ctx, tx, id)
	if err != nil {
		return err
	}
	if c.Policies.Unsold == campaign.UnsoldDraw {
		if err := campaign.BindEnd(ctx, tx, id); err != nil {
			return err
		}
	}
	bound, secret, err := commit(c, prizes)
	if err != nil {
		return err
	}
	prices := make([]money.Amount, len(layers))
	for i, l := range layers {
		prices[i] = l.Price
	}
	if err := inventory.Fill(ctx, tx, id, prices); err != nil {
		return err
	}
	if err := campaign.Activate(ctx, tx, id, bound); err != nil {
		return err
	}
	return evidence.InsertSecret(ctx, tx, id, key.Seal(secret, id[:]))
}

// commit makes a random secret, and the commitment to rules and secret.
func commit(c campaign.Campaign, prizes []campaign.Prize) (bound campaign.Commitment, secret []byte, err error) {
	listed := make([]fairdraw.Prize, len(prizes))
	for i, p := range prizes {
		listed[i] = fairdraw.Prize{Number: p.Number, Layer: p.Layer, Name: p.Name}
	}
	promised := fairdraw.NewRules(c.ID, c.BaseLength, listed, nil)
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
