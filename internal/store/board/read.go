package board

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

// State is what a position is in; doc.go has the diagram.
type State string

// The states of a position.
const (
	Available State = "available"
	Held      State = "held"
	Reserved  State = "reserved"
	Sold      State = "sold"
)

// Position is one position as the board shows it: one whose hold has expired is
// available, swept or not. The rank is never shown.
type Position struct {
	triangle.Position
	Price     int64 // minor units
	State     State
	UserID    *string
	ExpiresAt *time.Time
}

const (
	lapsed = `(state = 'held' AND expires_at <= clock_timestamp())` // a hold that is over, and not tidied up yet
	shown  = `layer, col, price, CASE WHEN ` + lapsed + ` THEN 'available' ELSE state END,
		CASE WHEN NOT ` + lapsed + ` THEN user_id END, CASE WHEN NOT ` + lapsed + ` THEN expires_at END`
)

func scan(row pgx.CollectableRow) (p Position, err error) {
	err = row.Scan(&p.Layer, &p.Column, &p.Price, &p.State, &p.UserID, &p.ExpiresAt)
	return p, err
}

// All returns every position of a campaign by layer and column; none before publication.
func All(ctx context.Context, db postgres.DB, campaignID uuid.UUID) ([]Position, error) {
	rows, err := db.Query(ctx, `SELECT `+shown+` FROM positions WHERE campaign_id = $1 ORDER BY layer, col`, campaignID)
	if err != nil {
		return nil, fmt.Errorf("board.All(%s): %w", campaignID, err)
	}
	all, err := pgx.CollectRows(rows, scan)
	if err != nil {
		return nil, fmt.Errorf("board.All(%s): %w", campaignID, err)
	}
	return all, nil
}

// OfUser returns the positions that a user holds or has bought, by layer and column.
func OfUser(ctx context.Context, db postgres.DB, campaignID uuid.UUID, userID string) ([]Position, error) {
	rows, err := db.Query(ctx, `SELECT `+shown+` FROM positions WHERE campaign_id = $1 AND user_id = $2 AND NOT `+lapsed+` ORDER BY layer, col`, campaignID, userID)
	if err != nil {
		return nil, fmt.Errorf("board.OfUser(%s): %w", campaignID, err)
	}
	own, err := pgx.CollectRows(rows, scan)
	if err != nil {
		return nil, fmt.Errorf("board.OfUser(%s): %w", campaignID, err)
	}
	return own, nil
}

// Overlay returns a board with what a user has as it is now laid over a copy
// that is older. What the user had then and has no more is free again, as far as
// the user can know.
func Overlay(older, own []Position, userID string) []Position {
	now := make([]Position, len(older))
	mine := make(map[triangle.Position]Position, len(own))
	for _, p := range own {
		mine[p.Position] = p
	}
	for i, p := range older {
		if fresh, ok := mine[p.Position]; ok {
			p = fresh
		} else if p.UserID != nil && *p.UserID == userID {
			p.State, p.UserID, p.ExpiresAt = Available, nil, nil
		}
		now[i] = p
	}
	return now
}

// Get returns one position, or a not-found Error.
func Get(ctx context.Context, db postgres.DB, campaignID uuid.UUID, at triangle.Position) (Position, error) {
	rows, err := db.Query(ctx, `SELECT `+shown+` FROM positions WHERE campaign_id = $1 AND layer = $2 AND col = $3`,
		campaignID, at.Layer, at.Column)
	if err != nil {
		return Position{}, fmt.Errorf("board.Get(%s, %v): %w", campaignID, at, err)
	}
	p, err := pgx.CollectExactlyOneRow(rows, scan)
	if errors.Is(err, pgx.ErrNoRows) {
		return Position{}, fault.New(fault.NotFound, "there is no position %d/%d in campaign %s", at.Layer, at.Column, campaignID)
	}
	if err != nil {
		return Position{}, fmt.Errorf("board.Get(%s, %v): %w", campaignID, at, err)
	}
	return p, nil
}

// LayerCounts is how the positions of one layer stand.
type LayerCounts struct {
	Layer     int
	Available int
	Reserved  int // held or reserved
	Sold      int
}

// CountByLayer counts the positions of a campaign; none before publication.
func CountByLayer(ctx context.Context, db postgres.DB, campaignID uuid.UUID) ([]LayerCounts, error) {
	rows, err := db.Query(ctx, `
		SELECT layer,
		       count(*) FILTER (WHERE state = 'available' OR `+lapsed+`),
		       count(*) FILTER (WHERE state IN ('held', 'reserved') AND NOT `+lapsed+`),
		       count(*) FILTER (WHERE state = 'sold')
		FROM positions WHERE campaign_id = $1 GROUP BY layer ORDER BY layer`, campaignID)
	if err != nil {
		return nil, fmt.Errorf("board.CountByLayer(%s): %w", campaignID, err)
	}
	counts, err := pgx.CollectRows(rows, pgx.RowToStructByPos[LayerCounts])
	if err != nil {
		return nil, fmt.Errorf("board.CountByLayer(%s): %w", campaignID, err)
	}
	return counts, nil
}

// CountSold counts the sold positions of layers; counts[i] belongs to layers[i].
// The Count of a Need is not looked at.
func CountSold(ctx context.Context, db postgres.DB, layers []Need) (counts []int, err error) {
	campaigns, numbers, _ := columns(layers)
	rows, err := db.Query(ctx, `
		SELECT (SELECT count(*) FROM positions WHERE campaign_id = l.campaign_id AND layer = l.layer AND state = 'sold')
		FROM unnest($1::uuid[], $2::int[]) WITH ORDINALITY AS l (campaign_id, layer, i) ORDER BY l.i`, campaigns, numbers)
	if err != nil {
		return nil, fmt.Errorf("board.CountSold: %w", err)
	}
	counts, err = pgx.CollectRows(rows, pgx.RowTo[int])
	if err != nil {
		return nil, fmt.Errorf("board.CountSold: %w", err)
	}
	return counts, nil
}
