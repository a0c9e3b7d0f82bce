package draw

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fairdraw"
	"triprize/internal/platform/postgres"
)

// TrustOperator is the trust level of a draw without a public beacon. Such a draw
// proves that the secret was fixed before the sale and the sold list at sell-out.
const TrustOperator = "operator"

// Result is the published outcome of a draw.
type Result struct {
	CampaignID uuid.UUID `json:"campaign_id"`
	Trust      string    `json:"trust"`
	Root       string    `json:"root"`   // hex
	Secret     string    `json:"secret"` // hex, revealed with the result
	Winners    []Winner  `json:"winners"`
	ExecutedAt time.Time `json:"executed_at"`
}

// Winner is the outcome of one prize. Column and purchase are nil when the
// layer had no candidate left.
type Winner struct {
	Prize      int        `json:"prize"` // its number
	Layer      int        `json:"layer"`
	Column     *int       `json:"column"`
	PurchaseID *uuid.UUID `json:"purchase_id"`
	Name       string     `json:"name"`
}

// Get returns the result of a campaign's draw, or false when there is none yet.
func Get(ctx context.Context, db postgres.DB, campaignID uuid.UUID) (Result, bool, error) {
	r := Result{CampaignID: campaignID}
	var root, secret []byte
	err := db.QueryRow(ctx, `SELECT trust, root, secret, winners, executed_at FROM draws WHERE campaign_id = $1`, campaignID).
		Scan(&r.Trust, &root, &secret, &r.Winners, &r.ExecutedAt)
	if errors.Is(err, pgx.ErrNoRows) {
		return Result{}, false, nil
	}
	if err != nil {
		return Result{}, false, fmt.Errorf("draw.Get(%s): %w", campaignID, err)
	}
	r.Root, r.Secret = hex.EncodeToString(root), hex.EncodeToString(secret)
	return r, true, nil
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
