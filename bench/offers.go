package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"triprize/internal/campaign"
	"triprize/internal/domain/uuidv7"
	"triprize/internal/lifecycle"
	"triprize/internal/platform/keyring"
	"triprize/internal/platform/postgres"
)

// offer is the campaigns of one template database.
type offer struct {
	name        string
	baseLengths []int
	fill        func(ctx context.Context, db *pgxpool.Pool) error // what else is in the tables; nil: nothing
}

// hotBase is that of a campaign of 180,300 positions. A measurement ends when they are sold.
const hotBase = 600

// walletPayers is how many users pay by wallet in turn.
const walletPayers = 5000

var (
	// hot is one campaign that all buyers buy from.
	hot = offer{name: "template_hot", baseLengths: []int{hotBase}}
	// byWallet is hot, with users who have wallets, and a campaign that others buy from by card.
	byWallet = offer{"template_wallets", []int{hotBase, cardBase},
		func(ctx context.Context, db *pgxpool.Pool) error { return fund(ctx, db, owners(walletPayers)) }}
	// hundred is a hundred campaigns of ordinary size, thousand a thousand of 210 positions.
	hundred  = offer{name: "template_hundred", baseLengths: slices.Repeat([]int{40}, 100)}
	thousand = offer{name: "template_thousand", baseLengths: slices.Repeat([]int{20}, 1000)}
)

// publish publishes campaigns without the API: its settings limit their size, and the
// tables allow more. Each has a prize in every layer and no purchase limit.
func (s *setup) publish(ctx context.Context, db *pgxpool.Pool, baseLengths []int) error {
	key, err := keyring.Parse(s.drawKey, "")
	if err != nil {
		return err
	}
	for i, base := range baseLengths {
		d := campaign.Draft{Name: fmt.Sprintf("Campaign %d", i+1), BaseLength: base, Currency: "JPY",
			Policies: campaign.Policies{Unsold: campaign.UnsoldStay}}
		for layer := 1; layer <= base; layer++ {
			d.Layers = append(d.Layers, campaign.Layer{Layer: layer, Price: 500, Prizes: []campaign.PrizeGroup{{Name: "A prize", Count: 1}}})
		}
		id := uuidv7.New()
		err := postgres.InTx(ctx, db, func(tx pgx.Tx) error {
			if err := campaign.Create(ctx, tx, id, d); err != nil {
				return err
			}
			return lifecycle.Publish(ctx, tx, key, nil, id)
		})
		if err != nil {
			return fmt.Errorf("publish a campaign of base %d: %w", base, err)
		}
	}
	return nil
}
