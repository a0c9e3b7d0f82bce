package drawrecord

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize.example/draw/fairdraw"
	"triprize/internal/domain/fault"
	"triprize/internal/platform/postgres"
)

// Draw is the recorded result of a campaign.
type Draw struct {
	CampaignID uuid.UUID
	Trust      string // fairdraw.TrustOperator or TrustBeacon
	Root       fairdraw.Hash
	Secret     fairdraw.Hash
	Randomness []byte // of the beacon's round, 32 bytes; empty without a beacon
	Winners    []Winner
	Version    int64     // of the execution lock: the claim that drew
	ExecutedAt time.Time // the database's clock; InsertDraw sets it
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

// InsertDraw stores a draw and sets its ExecutedAt. The primary key refuses a second, and
// a trigger one that is weaker than its rules.
func InsertDraw(ctx context.Context, tx pgx.Tx, d *Draw) error {
	randomness := d.Randomness
	if randomness == nil {
		randomness = []byte{}
	}
	err := tx.QueryRow(ctx, `
		INSERT INTO draws (campaign_id, trust, root, secret, randomness, winners, execution_version)
		VALUES ($1, $2, $3, $4, $5, $6, $7) RETURNING executed_at`,
		d.CampaignID, d.Trust, d.Root[:], d.Secret[:], randomness, d.Winners, d.Version).Scan(&d.ExecutedAt)
	return fault.At(err, "drawrecord.InsertDraw(%s)", d.CampaignID)
}

// DrawOf returns the draw of a campaign, or false when it is not drawn.
func DrawOf(ctx context.Context, db postgres.DB, id uuid.UUID) (Draw, bool, error) {
	d := Draw{CampaignID: id}
	var root, secret []byte
	err := db.QueryRow(ctx, `
		SELECT trust, root, secret, randomness, winners, execution_version, executed_at FROM draws WHERE campaign_id = $1`, id).
		Scan(&d.Trust, &root, &secret, &d.Randomness, &d.Winners, &d.Version, &d.ExecutedAt)
	if errors.Is(err, pgx.ErrNoRows) {
		return Draw{}, false, nil
	}
	if err != nil {
		return Draw{}, false, fmt.Errorf("drawrecord.DrawOf(%s): %w", id, err)
	}
	d.Root, d.Secret = fairdraw.Hash(root), fairdraw.Hash(secret)
	return d, true, nil
}
