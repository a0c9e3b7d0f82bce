package main

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"triprize/internal/domain/shape"
	"triprize/internal/domain/uuidv7"
	"triprize/internal/platform/keyring"
	"triprize/internal/platform/postgres"
	"triprize/internal/service/lifecycle"
	"triprize/internal/store/campaign"
)

// offer is the campaigns of one template database.
type offer struct {
	name        string
	baseLengths []int
	fill        func(ctx context.Context, db *pgxpool.Pool) error // what else is in the tables; nil: nothing
}

// mostPerSecond is more positions than any scenario sells. On a faster machine the
// measurement ends when the positions are sold.
const mostPerSecond = 15_000

// needed is how many positions a scenario with this measured time can sell.
func needed(measured time.Duration) int {
	return int((warmUp(measured) + measured).Seconds() * mostPerSecond)
}

// hot is one campaign that all buyers buy from.
func hot(measured time.Duration) offer {
	return offer{name: "template_hot", baseLengths: []int{baseLengthFor(needed(measured), shape.MaxBaseLength)}}
}

// byWallet is hot, with users who have wallets.
func byWallet(measured time.Duration, payers int) offer {
	o := hot(measured)
	o.name = fmt.Sprintf("template_hot_%d_wallets", payers)
	o.fill = func(ctx context.Context, db *pgxpool.Pool) error { return fund(ctx, db, owners(payers)) }
	return o
}

// hundred is a hundred campaigns of ordinary size, base length 20 to 40.
func hundred(measured time.Duration) offer {
	const campaigns, smallest, largest = 100, 20, 40
	base := max(smallest, baseLengthFor(needed(measured)/campaigns, largest))
	return offer{name: "template_hundred", baseLengths: slices.Repeat([]int{base}, campaigns)}
}

// thousand is a thousand campaigns of 210 positions.
func thousand(time.Duration) offer {
	return offer{name: "template_thousand", baseLengths: slices.Repeat([]int{20}, 1000)}
}

// baseLengthFor returns the shortest base of a triangle with at least positions
// positions, but at most longest.
func baseLengthFor(positions, longest int) int {
	for base := int(math.Sqrt(2 * float64(positions))); ; base++ {
		if base >= longest {
			return longest
		}
		if base >= shape.MinBaseLength && shape.TriangleCount(base) >= positions {
			return base
		}
	}
}

// publish publishes campaigns without the API: its settings limit their size, and the
// tables allow more.
func (s *setup) publish(ctx context.Context, db *pgxpool.Pool, baseLengths []int) error {
	key, err := keyring.Parse(s.drawKey, "")
	if err != nil {
		return err
	}
	for i, base := range baseLengths {
		id := uuidv7.New()
		err := postgres.InTx(ctx, db, func(tx pgx.Tx) error {
			if err := campaign.Create(ctx, tx, id, draft(i, base)); err != nil {
				return err
			}
			return lifecycle.Publish(ctx, tx, key, lifecycle.Bindings{}, id)
		})
		if err != nil {
			return fmt.Errorf("publish a campaign of base %d: %w", base, err)
		}
	}
	return nil
}

// draft has one prize in every layer and no purchase limit.
func draft(number, base int) campaign.Draft {
	d := campaign.Draft{Name: fmt.Sprintf("Campaign %d", number+1), BaseLength: base, Currency: "JPY",
		Policies: campaign.Policies{LatePayment: campaign.LatePaymentRefund, Unsold: campaign.UnsoldStay}}
	for layer := 1; layer <= base; layer++ {
		d.Layers = append(d.Layers, campaign.Layer{Layer: layer, Price: 500, Prizes: []campaign.PrizeGroup{{Name: "A prize", Count: 1}}})
	}
	return d
}
