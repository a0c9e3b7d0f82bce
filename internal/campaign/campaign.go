// Package campaign owns campaigns with their layers, prizes and commitments, and their
// lock.
//
//		pending ──▶ active ──▶ drawing ──▶ completed
//		   │          │
//		   └──────────┴──▶ cancelled
//
//	  - pending: a draft; everything can be changed.
//	  - active: published and on sale. A pause is a flag, not a state.
//	  - drawing: every position is sold, or the sale has reached the end at which it is
//	    drawn. Only the name can change.
//	  - completed: the result of the draw is recorded.
//	  - cancelled: the sale is over, and purchases are refunded.
//
// A trigger refuses every other transition, and every function here names the state that
// it expects.
//
// The row of a campaign is the lock of its sale. A transaction that changes positions,
// purchases or counters first calls [Lock] or [QueueLock], and reads in a later statement.
// An [Execution] is a claim on the draw; it lasts longer than a transaction.
//
// The package never writes positions or purchases.
package campaign

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize.example/draw/fairdraw"
	"triprize/internal/domain/fault"
	"triprize/internal/domain/metadata"
	"triprize/internal/domain/money"
	"triprize/internal/domain/shape"
	"triprize/internal/platform/postgres"
)

// State is the state of a campaign.
type State string

// The states; the package comment has the diagram.
const (
	Pending   State = "pending"
	Active    State = "active"
	Drawing   State = "drawing"
	Completed State = "completed"
	Cancelled State = "cancelled"
)

// States lists every state.
var States = []State{Pending, Active, Drawing, Completed, Cancelled}

// Closed reports whether the campaign never sells again: no state that can follow does.
func (s State) Closed() bool { return s == Drawing || s == Completed || s == Cancelled }

// Campaign is one campaign. Its layers are read with [Layers].
type Campaign struct {
	ID uuid.UUID
	Draft
	State           State
	PausedAt        *time.Time
	DrawsAt         *time.Time // the end of the sale, if what is sold by then is drawn; nil: only a sold-out campaign is drawn
	Counts          Counts
	CreatedAt       time.Time
	PublishedAt     *time.Time
	DrawStartedAt   *time.Time
	DrawCompletedAt *time.Time
	CancelledAt     *time.Time
	CancelledBy     *string // role:client, or job.System
	CancelReason    *string
	BoardVersion    int64    // grows with every change of a position
	Waiting         *Blocker // after the sale; nil: it waits for nothing
}

// Counts is how many positions are in which state. Held ones count as reserved.
type Counts struct {
	Total    int
	Reserved int
	Sold     int
	Blocked  int
	Board    int64 // of a change: the board's version that was written with it; 0: it was not
}

// Available returns how many positions are free.
func (c Counts) Available() int { return c.Total - c.Reserved - c.Sold - c.Blocked }

// Policies are the campaign's rules for special cases. They are stored with the
// campaign from the start, so that they are known before the first sale.
type Policies struct {
	Unsold            string     `json:"unsold"` // stay, cancel or draw
	CancellationUntil *time.Time `json:"cancellation_until,omitempty"`
	Beacon            bool       `json:"beacon"`             // the draw waits for public randomness
	Disputes          string     `json:"disputes,omitempty"` // keep or release; empty: keep
}

// What becomes of unsold positions; the first is the default.
const (
	UnsoldStay   = "stay"
	UnsoldCancel = "cancel"
	UnsoldDraw   = "draw"
)

// What becomes of a purchase whose money the buyer's bank has taken back for good.
const (
	DisputesKeep    = "keep"    // it stays completed
	DisputesRelease = "release" // it is cancelled while the campaign is active, see package sale
)

// Layer is one layer of a campaign: how many positions it has, what they cost, and what can
// be won in it.
type Layer struct {
	Layer     int
	Positions int    // of a draft, 0: those of a triangle
	Label     string // empty: none
	Aisles    []int  // as in shape.Layer
	Price     money.Amount
	Prizes    []PrizeGroup
}

// PrizeGroup is a number of equal prizes.
type PrizeGroup struct {
	Name  string
	Count int
}

// Draft is what a campaign is made from, and may be changed to while it is pending.
type Draft struct {
	Name          string
	BaseLength    int // 0: the layers say how many positions they have
	Currency      money.Currency
	PurchaseLimit *int // positions per user; nil: no limit
	SaleStartsAt  *time.Time
	SaleEndsAt    *time.Time
	Policies      Policies
	Layers        []Layer // every layer once, in order
	Metadata      metadata.Map
	PublicPage    PublicPage
	EmbedOrigins  []string // not empty with PublicPageEmbed, and only then
}

// PublicPage says whether anybody can watch a published campaign.
type PublicPage string

// The kinds of public pages.
const (
	PublicPageNone  PublicPage = "none"
	PublicPagePage  PublicPage = "page"
	PublicPageEmbed PublicPage = "embed" // and pages of EmbedOrigins can frame it
)

// Shape returns the shape of a checked draft.
func (d Draft) Shape() shape.Shape {
	list := make([]shape.Layer, len(d.Layers))
	for i, l := range d.Layers {
		list[i] = shape.Layer{Positions: l.positions(), Label: l.Label, Aisles: l.Aisles}
	}
	return shape.New(list)
}

// positions returns how many positions a layer of a checked draft has.
func (l Layer) positions() int {
	if l.Positions == 0 {
		return l.Layer
	}
	return l.Positions
}

// reservedNow is the counter of reserved positions without those of expired holds
// that no sweep has ended yet: free positions must not be shown as held.
const reservedNow = `positions_reserved - (SELECT coalesce(sum(size), 0) FROM holds
	WHERE campaign_id = campaigns.id AND state = 'active' AND expires_at <= (SELECT clock_timestamp()))`

const columns = `id, name, coalesce(base_length, 0), currency, purchase_limit, state, paused_at, sale_starts_at, sale_ends_at, draws_at, policies,
	positions_total, ` + reservedNow + `, positions_sold, positions_blocked, created_at, published_at, draw_started_at, draw_completed_at,
	cancelled_at, cancelled_by, cancel_reason, board_version, (SELECT metadata FROM campaign_metadata WHERE campaign_id = campaigns.id),
	(SELECT embed_origins FROM public_pages WHERE campaign_id = campaigns.id), ` + waiting

func scan(row pgx.CollectableRow) (c Campaign, err error) {
	err = row.Scan(&c.ID, &c.Name, &c.BaseLength, &c.Currency, &c.PurchaseLimit, &c.State, &c.PausedAt, &c.SaleStartsAt, &c.SaleEndsAt,
		&c.DrawsAt, &c.Policies, &c.Counts.Total, &c.Counts.Reserved, &c.Counts.Sold, &c.Counts.Blocked, &c.CreatedAt, &c.PublishedAt, &c.DrawStartedAt, &c.DrawCompletedAt,
		&c.CancelledAt, &c.CancelledBy, &c.CancelReason, &c.BoardVersion, &c.Metadata, &c.EmbedOrigins, &c.Waiting)
	switch {
	case c.EmbedOrigins == nil:
		c.PublicPage = PublicPageNone
	case len(c.EmbedOrigins) == 0:
		c.PublicPage = PublicPagePage
	default:
		c.PublicPage = PublicPageEmbed
	}
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

// Public returns the id, name and state of the newest campaigns that anybody can watch.
func Public(ctx context.Context, db postgres.DB, limit int) ([]Campaign, error) {
	list, err := postgres.Collect(ctx, db, func(row pgx.CollectableRow) (c Campaign, err error) {
		err = row.Scan(&c.ID, &c.Name, &c.State)
		return c, err
	}, `SELECT id, name, state FROM public_pages JOIN campaigns ON id = campaign_id WHERE published_at IS NOT NULL ORDER BY campaign_id DESC LIMIT $1`, limit)
	return list, fault.At(err, "campaign.Public")
}

// Layers returns the layers of a campaign in order. Consecutive prizes with the
// same name are one group.
func Layers(ctx context.Context, db postgres.DB, id uuid.UUID) ([]Layer, error) {
	layers, err := postgres.Collect(ctx, db, func(row pgx.CollectableRow) (l Layer, err error) {
		err = row.Scan(&l.Layer, &l.Positions, &l.Label, &l.Price, &l.Aisles)
		return l, err
	}, `SELECT layer, positions, coalesce(label, ''), price, nullif(aisles, '{}') FROM layers WHERE campaign_id = $1 ORDER BY layer`, id)
	prizes, unread := Prizes(ctx, db, id)
	if err = cmp.Or(err, unread); err != nil {
		return nil, fmt.Errorf("campaign.Layers(%s): %w", id, err)
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

// Prizes returns the prizes of a campaign in number order.
func Prizes(ctx context.Context, db postgres.DB, id uuid.UUID) ([]fairdraw.Prize, error) {
	prizes, err := postgres.Collect(ctx, db, pgx.RowToStructByPos[fairdraw.Prize],
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

// BlockerKind is what a campaign waits for.
type BlockerKind string

// The kinds of waits.
const (
	BlockedByPayments BlockerKind = "payments" // of purchases, after the end of the sale
	BlockedByDraw     BlockerKind = "draw"     // which waits itself, for the round of the beacon or to try again
)

// Blocker is what a campaign waits for between its sale and its draw.
type Blocker struct {
	Kind   BlockerKind `json:"kind"`
	Count  int         `json:"count"`  // of payments
	Reason string      `json:"reason"` // of a draw
	Until  *time.Time  `json:"until"`  // later only while the provider does not answer; nil: money is being taken, which ends when it ends
}

// waiting is the Blocker of a campaign, or null. It reads payments only when the sale has ended. A
// payment in phase late has no positions any more.
const waiting = `CASE
	WHEN state = 'active' AND sale_ends_at <= (SELECT clock_timestamp()) THEN (
		SELECT jsonb_build_object('kind', 'payments', 'count', count(*), 'until', CASE WHEN NOT bool_or(phase = 'capturing')
		       THEN max(CASE WHEN phase = 'expiring' THEN latest WHEN phase NOT IN ('captured', 'ended') THEN over_at END) END)
		FROM payments WHERE campaign_id = campaigns.id AND finished_at IS NULL AND phase <> 'late' HAVING count(*) > 0)
	WHEN state = 'drawing' THEN (
		SELECT jsonb_build_object('kind', 'draw', 'reason', reason, 'until', retry_at) FROM draw_waits WHERE campaign_id = campaigns.id)
	END`
