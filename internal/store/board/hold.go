package board

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/triangle"
)

// Chosen is a position that somebody asks for by its place.
type Chosen struct {
	CampaignID uuid.UUID
	triangle.Position
}

// Found is a position as a transaction under the campaign's lock finds it.
type Found struct {
	Free
	State     State
	HoldID    *uuid.UUID
	Remaining time.Duration // until a hold or reservation ends; negative: it has ended
}

// Find returns positions as they are; those that do not exist are left out. It
// takes no lock: the campaign's is enough, and the version finds out who goes
// without.
func Find(ctx context.Context, tx pgx.Tx, chosen []Chosen) ([]Found, error) {
	if len(chosen) == 0 {
		return nil, nil
	}
	n := len(chosen)
	campaigns, layers, cols := make([]uuid.UUID, n), make([]int, n), make([]int, n)
	for i, c := range chosen {
		campaigns[i], layers[i], cols[i] = c.CampaignID, c.Layer, c.Column
	}
	rows, err := tx.Query(ctx, `
		SELECT c.campaign_id, c.layer, c.col, p.rank, p.price, p.version, p.state, p.hold_id,
		       coalesce(extract(epoch FROM p.expires_at - clock_timestamp()), 0)::float8
		FROM unnest($1::uuid[], $2::int[], $3::int[]) AS c (campaign_id, layer, col)
		CROSS JOIN LATERAL (SELECT * FROM positions WHERE campaign_id = c.campaign_id AND layer = c.layer AND col = c.col) p`,
		campaigns, layers, cols)
	if err != nil {
		return nil, fmt.Errorf("board.Find: %w", err)
	}
	found, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (f Found, err error) {
		var seconds float64
		err = row.Scan(&f.CampaignID, &f.Layer, &f.Column, &f.Rank, &f.Price, &f.Version, &f.State, &f.HoldID, &seconds)
		f.Remaining = time.Duration(seconds * float64(time.Second))
		return f, err
	})
	if err != nil {
		return nil, fmt.Errorf("board.Find: %w", err)
	}
	return found, nil
}

// Keeping gives one free position to a hold.
type Keeping struct {
	Free
	UserID    string
	HoldID    uuid.UUID
	ExpiresAt time.Time
}

// QueueHold marks free positions as held, in one statement; the caller checks
// that it touches as many rows as there are positions.
func QueueHold(b *pgx.Batch, kept []Keeping) *pgx.QueuedQuery {
	n := len(kept)
	campaigns, layers, cols, versions := make([]uuid.UUID, n), make([]int, n), make([]int, n), make([]int, n)
	users, holds, deadlines := make([]string, n), make([]uuid.UUID, n), make([]time.Time, n)
	for i, k := range kept {
		campaigns[i], layers[i], cols[i], versions[i] = k.CampaignID, k.Layer, k.Column, k.Version
		users[i], holds[i], deadlines[i] = k.UserID, k.HoldID, k.ExpiresAt
	}
	return b.Queue(`
		UPDATE positions p
		SET state = 'held', version = p.version + 1, user_id = k.user_id, hold_id = k.hold_id, expires_at = k.expires_at
		FROM unnest($1::uuid[], $2::int[], $3::int[], $4::int[], $5::text[], $6::uuid[], $7::timestamptz[])
		     AS k (campaign_id, layer, col, version, user_id, hold_id, expires_at)
		WHERE p.campaign_id = k.campaign_id AND p.layer = k.layer AND p.col = k.col
		  AND p.state = 'available' AND p.version = k.version`,
		campaigns, layers, cols, versions, users, holds, deadlines)
}

// QueueFreeHeld frees what holds of the given campaigns keep; the caller checks the
// number of rows. It names the holds: a position of one that has expired may have
// a new owner.
func QueueFreeHeld(b *pgx.Batch, campaigns, holds []uuid.UUID) *pgx.QueuedQuery {
	return b.Queue(`
		UPDATE positions
		SET state = 'available', version = version + 1, user_id = NULL, hold_id = NULL, expires_at = NULL
		WHERE campaign_id = ANY($1) AND state = 'held' AND hold_id = ANY($2)`, campaigns, holds)
}

// QueueExtend moves the deadline of what a hold keeps; the caller checks the
// number of rows.
func QueueExtend(b *pgx.Batch, campaignID, holdID uuid.UUID, expiresAt time.Time) *pgx.QueuedQuery {
	return b.Queue(`
		UPDATE positions SET version = version + 1, expires_at = $3
		WHERE campaign_id = $1 AND state = 'held' AND hold_id = $2`, campaignID, holdID, expiresAt)
}
