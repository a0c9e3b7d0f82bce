package campaign

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/platform/postgres"
)

// reservedNow is the counter of reserved positions without those of expired holds
// that no sweep has ended yet: free positions must not look held.
const reservedNow = `positions_reserved - (SELECT coalesce(sum(size), 0) FROM holds
	WHERE campaign_id = campaigns.id AND state = 'active' AND expires_at <= (SELECT clock_timestamp()))`

const columns = `id, name, coalesce(base_length, 0), currency, purchase_limit, state, paused_at, sale_starts_at, sale_ends_at, draws_at, policies,
	positions_total, ` + reservedNow + `, positions_sold, positions_blocked, created_at, published_at, draw_started_at, draw_completed_at,
	cancelled_at, cancelled_by, cancel_reason, board_version, (SELECT metadata FROM campaign_metadata WHERE campaign_id = campaigns.id), ` + waiting

func scan(row pgx.CollectableRow) (c Campaign, err error) {
	err = row.Scan(&c.ID, &c.Name, &c.BaseLength, &c.Currency, &c.PurchaseLimit, &c.State, &c.PausedAt, &c.SaleStartsAt, &c.SaleEndsAt,
		&c.DrawsAt, &c.Policies, &c.Counts.Total, &c.Counts.Reserved, &c.Counts.Sold, &c.Counts.Blocked, &c.CreatedAt, &c.PublishedAt, &c.DrawStartedAt, &c.DrawCompletedAt,
		&c.CancelledAt, &c.CancelledBy, &c.CancelReason, &c.BoardVersion, &c.Metadata, &c.Waiting)
	return c, err
}

// Get returns a campaign, or a not-found Error.
func Get(ctx context.Context, db postgres.DB, id uuid.UUID) (Campaign, error) {
	c, err := postgres.CollectOne(ctx, db, scan, `SELECT `+columns+` FROM campaigns WHERE id = $1`, id)
	if errors.Is(err, pgx.ErrNoRows) {
		return Campaign{}, NotFound(id)
	}
	return c, fault.At(err, "campaign.Get(%s)", id)
}

// NotFound is the Error when there is no such campaign, or none that the caller may know of.
func NotFound(id uuid.UUID) error { return fault.New(fault.NotFound, "there is no campaign %s", id) }

// GetAll returns those of the campaigns that exist, in any order.
func GetAll(ctx context.Context, db postgres.DB, ids []uuid.UUID) ([]Campaign, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	list, err := postgres.Collect(ctx, db, scan, `SELECT `+columns+` FROM campaigns WHERE id = ANY($1)`, ids)
	return list, fault.At(err, "campaign.GetAll")
}

// Page selects a part of the list of campaigns, newest first.
type Page struct {
	State     State     // empty: all
	After     uuid.UUID // the last id of the previous page; zero: the first page
	Limit     int
	Published bool // without those that never were
}

// List returns one page.
func List(ctx context.Context, db postgres.DB, p Page) ([]Campaign, error) {
	list, err := postgres.Collect(ctx, db, scan, `
		SELECT `+columns+` FROM campaigns
		WHERE ($1 = '' OR state = $1) AND ($2::uuid IS NULL OR id < $2) AND (NOT $4 OR published_at IS NOT NULL)
		ORDER BY id DESC LIMIT $3`, p.State, postgres.Nullable(p.After), p.Limit, p.Published)
	return list, fault.At(err, "campaign.List")
}

// Layers returns the layers of a campaign in order. Consecutive prizes with the
// same name are one group.
func Layers(ctx context.Context, db postgres.DB, id uuid.UUID) ([]Layer, error) {
	layers, err := postgres.Collect(ctx, db, func(row pgx.CollectableRow) (l Layer, err error) {
		err = row.Scan(&l.Layer, &l.Positions, &l.Label, &l.Price, &l.Aisles)
		return l, err
	}, `SELECT layer, positions, coalesce(label, ''), price, nullif(aisles, '{}') FROM layers WHERE campaign_id = $1 ORDER BY layer`, id)
	if err != nil {
		return nil, fmt.Errorf("campaign.Layers(%s): %w", id, err)
	}
	prizes, err := Prizes(ctx, db, id)
	if err != nil {
		return nil, err
	}
	for _, p := range prizes {
		layer := &layers[p.Layer-1]
		if n := len(layer.Prizes); n > 0 && layer.Prizes[n-1].Name == p.Name {
			layer.Prizes[n-1].Count++
		} else {
			layer.Prizes = append(layer.Prizes, PrizeGroup{Name: p.Name, Count: 1})
		}
	}
	return layers, nil
}

// Prize is one prize of a campaign.
type Prize struct {
	Number int
	Layer  int
	Name   string
}

// Prizes returns the prizes of a campaign in number order.
func Prizes(ctx context.Context, db postgres.DB, id uuid.UUID) ([]Prize, error) {
	prizes, err := postgres.Collect(ctx, db, pgx.RowToStructByPos[Prize],
		`SELECT number, layer, name FROM prizes WHERE campaign_id = $1 ORDER BY number`, id)
	return prizes, fault.At(err, "campaign.Prizes(%s)", id)
}

// Commitment is what fixes the draw of a campaign since its publication.
type Commitment struct {
	Rules      []byte // canonical JSON
	Commitment []byte // 32 bytes
}

// CommitmentOf returns the commitment of a published campaign, or false when the
// campaign has none.
func CommitmentOf(ctx context.Context, db postgres.DB, id uuid.UUID) (Commitment, bool, error) {
	var c Commitment
	err := db.QueryRow(ctx, `SELECT rules, commitment FROM commitments WHERE campaign_id = $1`, id).Scan(&c.Rules, &c.Commitment)
	ok, err := postgres.Found(err)
	return c, ok, fault.At(err, "campaign.CommitmentOf(%s)", id)
}
