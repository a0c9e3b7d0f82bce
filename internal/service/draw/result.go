package draw

import (
	"context"
	"time"

	"github.com/google/uuid"

	"triprize/internal/domain/fairdraw"
	"triprize/internal/platform/postgres"
	"triprize/internal/store/drawrecord"
)

// Result is the published outcome of a draw.
type Result struct {
	CampaignID uuid.UUID `json:"campaign_id"`
	Trust      string    `json:"trust"`  // fairdraw.TrustOperator or TrustBeacon
	Root       string    `json:"root"`   // hex
	Secret     string    `json:"secret"` // hex
	Winners    []Winner  `json:"winners"`
	ExecutedAt time.Time `json:"executed_at"`
}

// Winner is the outcome of one prize.
type Winner = drawrecord.Winner

// Get returns the result of a campaign's draw, or false when there is none yet.
func Get(ctx context.Context, db postgres.DB, campaignID uuid.UUID) (Result, bool, error) {
	drawn, ok, err := drawrecord.DrawOf(ctx, db, campaignID)
	if err != nil || !ok {
		return Result{}, false, err
	}
	return resultOf(drawn), true, nil
}

func resultOf(d drawrecord.Draw) Result {
	return Result{CampaignID: d.CampaignID, Trust: d.Trust, Root: d.Root.String(), Secret: d.Secret.String(), Winners: d.Winners, ExecutedAt: d.ExecutedAt}
}

// publish converts winners to their published form.
func publish(winners []fairdraw.Winner) []Winner {
	published := make([]Winner, 0, len(winners))
	for _, w := range winners {
		p := Winner{Prize: w.Prize.Number, Layer: w.Prize.Layer, Name: w.Prize.Name}
		if w.Line != nil {
			p.Column, p.PurchaseID = &w.Line.Column, &w.Line.PurchaseID
		}
		published = append(published, p)
	}
	return published
}
