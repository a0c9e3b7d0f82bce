package campaign

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/platform/postgres"
)

// Progress is how the sale of a campaign stands at one moment.
type Progress struct {
	CampaignID uuid.UUID
	State      State
	Paused     bool
	Counts     Counts
	Board      int64 // grows with every change of a position

	// Version is a short hash of the rest: the same in every process, and the
	// same again once the campaign stands as it stood before.
	Version string
}

// ProgressOf returns the progress of a campaign that was read.
func ProgressOf(c Campaign) Progress {
	s := Progress{CampaignID: c.ID, State: c.State, Paused: c.PausedAt != nil, Counts: c.Counts, Board: c.BoardVersion}
	s.Version = s.hash()
	return s
}

// ReadProgress reads campaigns, locking nothing; those that do not exist are left
// out. Counts per layer are not here: they would have to be counted from all
// positions, at every read, where this reads one narrow row per campaign.
func ReadProgress(ctx context.Context, db postgres.DB, ids []uuid.UUID) ([]Progress, error) {
	list, err := postgres.Collect(ctx, db, func(row pgx.CollectableRow) (s Progress, err error) {
		err = row.Scan(&s.CampaignID, &s.State, &s.Paused, &s.Counts.Total, &s.Counts.Reserved, &s.Counts.Sold, &s.Board)
		s.Version = s.hash()
		return s, err
	}, `
		SELECT id, state, paused_at IS NOT NULL, positions_total, `+reservedNow+`, positions_sold, board_version
		FROM campaigns WHERE id = ANY($1)`, ids)
	if err != nil {
		return nil, fmt.Errorf("campaign.ReadProgress: %w", err)
	}
	return list, nil
}

// hash returns 72 bits in 12 characters. The first number changes when what is
// hashed does, so that processes of two releases do not mistake each other.
func (s Progress) hash() string {
	sum := sha256.Sum256(fmt.Appendf(nil, "2 %s %s %t %d %d %d %d",
		s.CampaignID, s.State, s.Paused, s.Counts.Total, s.Counts.Reserved, s.Counts.Sold, s.Board))
	return base64.RawURLEncoding.EncodeToString(sum[:9])
}
