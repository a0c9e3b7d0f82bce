package draw

import (
	"context"
	"time"

	"github.com/google/uuid"

	"triprize.example/draw/fairdraw"
	"triprize/internal/domain/shape"
	"triprize/internal/platform/postgres"
	"triprize/internal/store/campaign"
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

// Winner is the outcome of one prize, with the names of the position that has won it.
type Winner struct {
	drawrecord.Winner
	Number *int    `json:"number"` // null as the column is
	Label  *string `json:"label"`
}

// get returns the result of a campaign's draw, or false when there is none yet.
func get(ctx context.Context, db postgres.DB, id uuid.UUID) (Result, bool, error) {
	drawn, ok, err := drawrecord.DrawOf(ctx, db, id)
	if err != nil || !ok {
		return Result{}, false, err
	}
	form, err := campaign.ShapeOf(ctx, db, id)
	return resultOf(drawn, form), err == nil, err
}

func resultOf(d drawrecord.Draw, form shape.Shape) Result {
	winners := make([]Winner, len(d.Winners))
	for i, w := range d.Winners {
		winners[i].Winner = w
		if w.Column != nil {
			place := form.Place(shape.Position{Layer: w.Layer, Column: *w.Column})
			winners[i].Number, winners[i].Label = &place.Number, &place.Label
		}
	}
	return Result{CampaignID: d.CampaignID, Trust: d.Trust, Root: d.Root.String(), Secret: d.Secret.String(), Winners: winners, ExecutedAt: d.ExecutedAt}
}

// publish converts winners to their published form.
func publish(winners []fairdraw.Winner) []drawrecord.Winner {
	published := make([]drawrecord.Winner, 0, len(winners))
	for _, w := range winners {
		p := drawrecord.Winner{Prize: w.Prize.Number, Layer: w.Prize.Layer, Name: w.Prize.Name}
		if w.Line != nil {
			p.Column, p.PurchaseID = &w.Line.Column, &w.Line.PurchaseID
		}
		published = append(published, p)
	}
	return published
}
