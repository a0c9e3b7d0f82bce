// Package inventory owns positions and holds, and the rules of selection.
//
// A position:
//
//	available ──▶ held ──▶ reserved ──▶ sold
//	    │  ▲        │         ▲  │        │
//	    │  └────────┴─────────┼──┘        │
//	    ├─────────────────────┘           │
//	    ├─────────────────────────────────▶
//	    └◀──────────── (a cancelled purchase)
//	available ◀──▶ blocked (by an operator)
//
// reserved is for purchases that wait for their payment at a provider. No deadline frees
// such a position: its payment decides.
//
// A hold:
//
//	active ─┬─▶ used      a purchase bought all of it
//	        ├─▶ released  its owner released it
//	        └─▶ expired   its deadline passed
//
// A hold and its positions change together, by one function ([queueHold], [queueExtend],
// [QueueRelease], [QueueExpire], [QueueSell]). Each needs the campaign's row locked
// (package campaign), and names the state or version that it expects. It fails with
// postgres.ErrRows when other rows match, so a caller without the lock cannot sell a
// position twice. Each change writes the campaign's board_version, so that a reader who has
// one version can get the changes since.
//
// A hold is over at its deadline by the database's clock, also before a sweep. Every
// transaction that assigns positions locks the campaign, reads once which holds are over
// ([QueueFindOver]) and ends those. So a purchase from a hold in its last millisecond gets
// all of it or nothing.
//
// "A random free position" is the first free one by its secret random rank: an index scan
// that no outsider can predict. [Selection] and [Stock] have the rules by which a request
// gets positions, for holds and purchases.
//
// # Requests for holds
//
//	known to be taken? ─▶ precheck: retry? over a limit? ─▶ wait for the lock ─▶ one transaction for many requests
//	  (this process)          (a read)                        (Redis)          lock campaign ─▶ end holds that are over ─▶ decide ─▶ write
//
// Only the transaction guards. The steps before it save work when many users want the same
// positions:
//
//   - A position that was found taken is cached for at most a second, and never beyond
//     its deadline. Requests for it are refused at once, unless they are retries.
//   - The precheck answers retries, and refuses users over a limit.
//   - Requests for the same position get its lock one after the other, or go on without.
//
// A refusal before the transaction is not recorded under the idempotency key.
package inventory

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/domain/money"
	"triprize/internal/domain/shape"
	"triprize/internal/platform/postgres"
)

// State is the state of a position.
type State string

// The states of a position.
const (
	Available State = "available"
	Held      State = "held"
	Reserved  State = "reserved"
	Sold      State = "sold"
	Unsold    State = "unsold" // shown of those that are available when the campaign never sells again
	Blocked   State = "blocked"
)

// PositionID identifies a position of a campaign.
type PositionID struct {
	CampaignID uuid.UUID
	shape.Position
}

// Pool is the part of a campaign that random positions come from: one layer, or
// with layer 0 all layers.
type Pool struct {
	CampaignID uuid.UUID
	Layer      int
}

// FreePosition is one free position that a transaction has locked.
type FreePosition struct {
	PositionID
	Rank    int
	Price   money.Amount
	Version int
	taken   bool // out of its stock
}

// StoredPosition is a position as it was read.
type StoredPosition struct {
	FreePosition
	State      State
	HoldID     *uuid.UUID
	PurchaseID *uuid.UUID    // of one that is reserved
	UserID     string        // of its hold or purchase; empty: none
	Client     string        // of its hold or reservation; empty: none
	Remaining  time.Duration // until the deadline of its hold or payment; negative: it has passed
}

// Position is one position as clients see it. It is available as soon as its hold
// is over, even before a sweep has ended the hold. The rank is never shown.
type Position struct {
	shape.Seat
	Price       money.Amount
	State       State
	UserID      *string
	ExpiresAt   *time.Time
	BlockReason *string
	Prize       *int  // the number of the prize that it has won
	AsOf        int64 // the campaign's board_version when it was read
	Changed     int64 // the board_version at which it last changed, or unversioned
}

// unversioned is the version of a change without a board_version: a hold that is
// over before a sweep has ended it. It is above every version, so the position always counts as changed.
const unversioned = math.MaxInt64

const (
	isOver = `(state = 'held' AND expires_at <= clock_timestamp())` // its hold is over, and no sweep has ended it
	// shown needs the campaign's id as $1, and named.
	shown = `p.layer, col, position_number(first_number, col), position_label(label, first_number, col), p.price,
		CASE WHEN state = 'available' OR ` + isOver + ` THEN CASE WHEN ` + closed + ` THEN 'unsold' ELSE 'available' END ELSE state END,
		CASE WHEN NOT ` + isOver + ` THEN user_id END, CASE WHEN NOT ` + isOver + ` THEN expires_at END, block_reason,
		w.number, coalesce((SELECT board_version FROM campaigns WHERE id = $1), 0),
		CASE WHEN ` + isOver + ` THEN NULL
		     WHEN ` + closed + ` AND (state = 'available' OR w.number IS NOT NULL) THEN greatest(board_version, (SELECT closed_board FROM campaigns WHERE id = $1))
		     ELSE board_version END`
	// closed reads the campaign once for all of its positions.
	closed = `(SELECT state IN ('drawing', 'completed', 'cancelled') FROM campaigns WHERE id = $1)`
	// named is the positions with what names them, and what they have won.
	named = ` FROM positions p JOIN layers l USING (campaign_id, layer)
		LEFT JOIN prizes w ON w.campaign_id = p.campaign_id AND w.layer = p.layer AND w.winning_column = col `
	// made is true when the positions of campaign $1 are not still being made.
	made = `NOT EXISTS (SELECT FROM position_fills WHERE campaign_id = $1)`
)

func scanPosition(row pgx.CollectableRow) (Position, error) { return scanShown(row) }

// scanShown scans the columns of shown, and more after them.
func scanShown(row pgx.CollectableRow, more ...any) (p Position, err error) {
	var changed *int64
	err = row.Scan(append([]any{&p.Layer, &p.Column, &p.Number, &p.Label, &p.Price, &p.State, &p.UserID, &p.ExpiresAt, &p.BlockReason, &p.Prize, &p.AsOf, &changed}, more...)...)
	if p.Changed = unversioned; changed != nil {
		p.Changed = *changed
	}
	return p, err
}

// All returns every position of a campaign by layer and column. Before publication
// there are none.
func All(ctx context.Context, db postgres.DB, campaignID uuid.UUID) ([]Position, error) {
	all, err := postgres.Collect(ctx, db, scanPosition, `SELECT `+shown+named+`WHERE p.campaign_id = $1 AND `+made+` ORDER BY p.layer, col`, campaignID)
	return all, fault.At(err, "inventory.All(%s)", campaignID)
}

// OfUser returns the positions that a user of a client holds, has reserved or has bought, by
// layer and column. Those that a user of this name has at another client are among them, without
// what only their own user sees.
func OfUser(ctx context.Context, db postgres.DB, campaignID uuid.UUID, client, userID string) ([]Position, error) {
	all, err := postgres.Collect(ctx, db, func(row pgx.CollectableRow) (p Position, err error) {
		var own bool
		if p, err = scanShown(row, &own); !own {
			p.UserID, p.ExpiresAt = nil, nil
		}
		return p, err
	}, `SELECT `+shown+`, coalesce($3 = CASE state WHEN 'held' THEN (SELECT client FROM holds WHERE id = p.hold_id) ELSE (SELECT client FROM purchases WHERE id = p.purchase_id) END, false)`+
		named+`WHERE p.campaign_id = $1 AND user_id = $2 AND NOT `+isOver+` ORDER BY p.layer, col`, campaignID, userID, client)
	return all, fault.At(err, "inventory.OfUser(%s)", campaignID)
}

// Get returns one position, or a not-found Error.
func Get(ctx context.Context, db postgres.DB, campaignID uuid.UUID, at shape.Position) (Position, error) {
	p, err := postgres.CollectOne(ctx, db, scanPosition, `SELECT `+shown+named+`WHERE p.campaign_id = $1 AND p.layer = $2 AND col = $3 AND `+made,
		campaignID, at.Layer, at.Column)
	if errors.Is(err, pgx.ErrNoRows) {
		return Position{}, fault.New(fault.NotFound, "there is no position %d/%d in campaign %s", at.Layer, at.Column, campaignID)
	}
	return p, fault.At(err, "inventory.Get(%s, %v)", campaignID, at)
}

// LayerCounts is how many positions of one layer are in which state.
type LayerCounts struct {
	Layer     int
	Available int
	Reserved  int // held or reserved
	Sold      int
	Blocked   int
}

// CountByLayer counts the positions of a campaign. Before publication there are
// none.
func CountByLayer(ctx context.Context, db postgres.DB, campaignID uuid.UUID) ([]LayerCounts, error) {
	counts, err := postgres.Collect(ctx, db, pgx.RowToStructByPos[LayerCounts], `
		SELECT layer,
		       count(*) FILTER (WHERE state = 'available' OR `+isOver+`),
		       count(*) FILTER (WHERE state IN ('held', 'reserved') AND NOT `+isOver+`),
		       count(*) FILTER (WHERE state = 'sold'),
		       count(*) FILTER (WHERE state = 'blocked')
		FROM positions WHERE campaign_id = $1 AND `+made+` GROUP BY layer ORDER BY layer`, campaignID)
	return counts, fault.At(err, "inventory.CountByLayer(%s)", campaignID)
}
