package hold

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/domain/triangle"
	"triprize/internal/platform/postgres"
)

// State is what has become of a hold.
type State string

// The states; doc.go has the diagram.
const (
	Active   State = "active"
	Used     State = "used"
	Released State = "released"
	Expired  State = "expired"
)

// Hold is one hold. Its positions stay with it when it is over.
type Hold struct {
	ID         uuid.UUID
	CampaignID uuid.UUID
	UserID     string
	Positions  []Position // by layer and column
	State      State      // expired as soon as its time is over
	Extensions int        // how often it was extended
	ExpiresAt  time.Time
	PurchaseID *uuid.UUID // that used it
	CreatedAt  time.Time
	EndedAt    *time.Time // nil also while nobody has tidied up an expired one
}

// Position is one position of a hold.
type Position struct {
	triangle.Position
	Price int64 `json:"price"` // minor units
}

const columns = `id, campaign_id, user_id, positions, CASE WHEN state = 'active' AND expires_at <= clock_timestamp() THEN 'expired' ELSE state END,
	extensions, expires_at, purchase_id, created_at, ended_at`

func scan(row pgx.CollectableRow) (h Hold, err error) {
	err = row.Scan(&h.ID, &h.CampaignID, &h.UserID, &h.Positions, &h.State, &h.Extensions, &h.ExpiresAt, &h.PurchaseID, &h.CreatedAt, &h.EndedAt)
	return h, err
}

// Get returns a hold, or a not-found Error.
func Get(ctx context.Context, db postgres.DB, id uuid.UUID) (Hold, error) {
	rows, err := db.Query(ctx, `SELECT `+columns+` FROM holds WHERE id = $1`, id)
	if err != nil {
		return Hold{}, fmt.Errorf("hold.Get(%s): %w", id, err)
	}
	h, err := pgx.CollectExactlyOneRow(rows, scan)
	if errors.Is(err, pgx.ErrNoRows) {
		return Hold{}, fault.New(fault.NotFound, "there is no hold %s", id)
	}
	if err != nil {
		return Hold{}, fmt.Errorf("hold.Get(%s): %w", id, err)
	}
	return h, nil
}

// QueueGet reads holds as they are recorded: an active one that is due is still
// active here, for the caller knows what is due. scan gets each of them.
func QueueGet(b *pgx.Batch, ids []uuid.UUID, each func(h Hold)) {
	b.Queue(`
		SELECT id, campaign_id, user_id, positions, state, extensions, expires_at, purchase_id, created_at, ended_at
		FROM holds WHERE id = ANY($1)`, ids).Query(func(rows pgx.Rows) error {
		found, err := pgx.CollectRows(rows, scan)
		for _, h := range found {
			each(h)
		}
		return err
	})
}

// Due is an active hold whose time is over.
type Due struct {
	ID         uuid.UUID
	CampaignID uuid.UUID
	UserID     string
	Size       int // positions
}

// DueSQL reads what ScanDue scans: the holds of campaigns $1 uuid[] whose time is
// over. It is sent after the statement that locks the campaigns. The clock is
// asked in a subquery, once: then it is a condition that an index can serve.
const DueSQL = `
	SELECT id, campaign_id, user_id, size FROM holds
	WHERE campaign_id = ANY($1) AND state = 'active' AND expires_at <= (SELECT clock_timestamp()) ORDER BY id`

// ScanDue scans one row of DueSQL.
func ScanDue(row pgx.CollectableRow) (d Due, err error) {
	err = row.Scan(&d.ID, &d.CampaignID, &d.UserID, &d.Size)
	return d, err
}

// CampaignsWithDue returns campaigns, but for those in except, that have the up
// to limit holds that are over for longest. It takes no lock.
func CampaignsWithDue(ctx context.Context, db postgres.DB, except []uuid.UUID, limit int) ([]uuid.UUID, error) {
	rows, err := db.Query(ctx, `
		SELECT campaign_id FROM (
			SELECT campaign_id, expires_at FROM holds
			WHERE state = 'active' AND expires_at <= (SELECT clock_timestamp()) AND campaign_id <> ALL($2)
			ORDER BY expires_at LIMIT $1) due
		GROUP BY campaign_id ORDER BY min(expires_at)`, limit, except)
	if err != nil {
		return nil, fmt.Errorf("hold.CampaignsWithDue: %w", err)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
	if err != nil {
		return nil, fmt.Errorf("hold.CampaignsWithDue: %w", err)
	}
	return ids, nil
}
