package inventory

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"

	"triprize/internal/domain/access"
	"triprize/internal/domain/fault"
	"triprize/internal/domain/metadata"
	"triprize/internal/domain/shape"
	"triprize/internal/platform/postgres"
)

// HoldState is the state of a hold.
type HoldState string

// The states of a hold; doc.go has the diagram.
const (
	HoldActive   HoldState = "active"
	HoldUsed     HoldState = "used"
	HoldReleased HoldState = "released"
	HoldExpired  HoldState = "expired"
)

// Hold is one hold. It lists its positions even after it has ended.
type Hold struct {
	ID         uuid.UUID
	CampaignID uuid.UUID
	UserID     string
	Client     string       // that made it
	Currency   string       // of its prices
	Positions  []shape.Item // by layer and column
	State      HoldState    // expired from its deadline on
	Extensions int          // how often it was extended
	ExpiresAt  time.Time
	EndsBy     time.Time  // it cannot be extended beyond this
	PurchaseID *uuid.UUID // the purchase that used it
	CreatedAt  time.Time
	EndedAt    *time.Time // also nil for an expired hold that no sweep has ended yet
	Metadata   metadata.Map
}

// CheckActive returns nil for an active hold, or an Error that says how it ended.
func (h Hold) CheckActive() error {
	switch h.State {
	case HoldActive:
		return nil
	case HoldUsed:
		return UsedBy(*h.PurchaseID) // the table has one for each that is used
	case HoldReleased:
		return fault.New(fault.HoldExpired, "the hold was released")
	default:
		return fault.New(fault.HoldExpired, "the hold ended at %s", h.ExpiresAt.UTC().Format(millis))
	}
}

// UsedBy returns a state-conflict Error about the purchase that has used a hold.
func UsedBy(purchaseID uuid.UUID) error {
	used := fault.New(fault.StateConflict, "the hold was used by purchase %s", purchaseID)
	used.About = fault.About{Kind: fault.AboutPurchase, ID: purchaseID.String()}
	return used
}

// millis is RFC 3339 with milliseconds.
const millis = "2006-01-02T15:04:05.000Z07:00"

const holdColumns = `id, campaign_id, user_id, positions, %s, extensions, expires_at, ends_by, purchase_id, created_at, ended_at, client, metadata, currency`

var (
	// now reads the state by the clock: an active hold is expired from its deadline on.
	now = fmt.Sprintf(holdColumns, `CASE WHEN state = 'active' AND expires_at <= clock_timestamp() THEN 'expired' ELSE state END`)
	// recorded reads the state as it is in the row.
	recorded = fmt.Sprintf(holdColumns, `state`)
)

func scanHold(row pgx.CollectableRow) (h Hold, err error) {
	err = row.Scan(&h.ID, &h.CampaignID, &h.UserID, &h.Positions, &h.State, &h.Extensions, &h.ExpiresAt, &h.EndsBy, &h.PurchaseID, &h.CreatedAt, &h.EndedAt, &h.Client, &h.Metadata, &h.Currency)
	return h, err
}

// GetHold returns a hold, or a not-found Error.
func GetHold(ctx context.Context, db postgres.DB, who access.Grant, id uuid.UUID) (Hold, error) {
	h, err := postgres.CollectOne(ctx, db, scanHold, `
		SELECT `+now+` FROM holds WHERE id = $1 AND ($2::text IS NULL OR client = $2) AND ($3::text IS NULL OR user_id = $3)`, id, who.Client(), who.User())
	if errors.Is(err, pgx.ErrNoRows) {
		return Hold{}, fault.New(fault.NotFound, "there is no hold %s", id)
	}
	return h, fault.At(err, "inventory.GetHold(%s)", id)
}

// QueueGetHolds reads holds as they are recorded. An active hold is active here
// even after its deadline: the transaction decides by what [QueueFindOver] found.
func QueueGetHolds(b *pgx.Batch, ids []uuid.UUID, each func(h Hold)) {
	b.Queue(`SELECT `+recorded+` FROM holds WHERE id = ANY($1)`, ids).Query(func(rows pgx.Rows) error {
		found, err := pgx.CollectRows(rows, scanHold)
		for _, h := range found {
			each(h)
		}
		return err
	})
}

// Over is an active hold whose deadline has passed.
type Over struct {
	ID         uuid.UUID
	CampaignID uuid.UUID
	UserID     string
	Size       int // positions
}

// QueueFindOver finds the active holds of campaigns whose deadline has passed.
// Queue it after the statement that locks the campaigns. The clock is in a
// subquery, so that it is read once and an index can be used.
func QueueFindOver(b *pgx.Batch, campaigns []uuid.UUID, found *[]Over) {
	b.Queue(`
		SELECT id, campaign_id, user_id, size FROM holds
		WHERE campaign_id = ANY($1) AND state = 'active' AND expires_at <= (SELECT clock_timestamp()) ORDER BY id`, campaigns).
		Query(func(rows pgx.Rows) (err error) {
			*found, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Over])
			return err
		})
}

// CampaignsWithHoldsOver returns the campaigns of the holds that have been over
// for longest: of at most limit holds, and without the campaigns in except. It
// locks nothing.
func CampaignsWithHoldsOver(ctx context.Context, db postgres.DB, except []uuid.UUID, limit int) ([]uuid.UUID, error) {
	ids, err := postgres.Collect(ctx, db, pgx.RowTo[uuid.UUID], `
		SELECT campaign_id FROM (
			SELECT campaign_id, expires_at FROM holds
			WHERE state = 'active' AND expires_at <= (SELECT clock_timestamp()) AND campaign_id <> ALL($2)
			ORDER BY expires_at LIMIT $1) o
		GROUP BY campaign_id ORDER BY min(expires_at)`, limit, except)
	return ids, fault.At(err, "inventory.CampaignsWithHoldsOver")
}

// AllHolds is the limit of QueueFindActive that is none.
const AllHolds = 0

// QueueFindActive finds up to limit active holds of a campaign, or AllHolds, those whose
// deadline has passed too, for [QueueRelease]. Queue it after the statement that locks the
// campaign.
func QueueFindActive(b *pgx.Batch, campaignID uuid.UUID, limit int, found *[]*Hold) {
	b.Queue(`SELECT `+recorded+` FROM holds WHERE campaign_id = $1 AND state = 'active' ORDER BY id LIMIT nullif($2::integer, 0)`, campaignID, limit).Query(func(rows pgx.Rows) (err error) {
		*found, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (*Hold, error) {
			h, err := scanHold(row)
			return &h, err
		})
		return err
	})
}

// GetHolds returns those of the holds that exist, in any order, as GetHold does.
func GetHolds(ctx context.Context, db postgres.DB, ids []uuid.UUID) ([]Hold, error) {
	holds, err := postgres.Collect(ctx, db, scanHold, `SELECT `+now+` FROM holds WHERE id = ANY($1)`, ids)
	return holds, fault.At(err, "inventory.GetHolds")
}

// HoldFilter selects holds of a list. Empty fields but Who select all. There must be a campaign
// or a user: each of them has an index.
type HoldFilter struct {
	Who        access.Grant
	CampaignID uuid.UUID
	UserID     string
	State      HoldState
}

// ListHolds returns holds newest first, as they are now, and the id before which the next
// page begins: zero after the last one. It goes along the index of the user, of the active
// holds of the campaign, or of the campaign and the client. The other fields are looked up among
// [postgres.ListWindow] holds at most: then a page may be short, or empty, and not be the last.
func ListHolds(ctx context.Context, db postgres.DB, f HoldFilter, p postgres.ListPage) (list []Hold, next uuid.UUID, err error) {
	l := postgres.List[Hold]{From: "holds", Alias: "h", Columns: now, Scan: scanHold, ID: func(h Hold) uuid.UUID { return h.ID }}
	switch {
	case f.UserID != "":
		l.Along("user_id", f.UserID)
		if f.CampaignID != uuid.Nil {
			l.Also(`h.campaign_id = ?`, f.CampaignID)
		}
	case f.State == HoldActive: // there are few at a time; OFFSET 0 has the index of these used
		l.From = `(SELECT * FROM holds WHERE state = 'active' AND campaign_id = '` + f.CampaignID.String() + `' AND expires_at > (SELECT clock_timestamp()) OFFSET 0)`
		f.State = ""
	default:
		l.Along("campaign_id", f.CampaignID)
		if only := f.Who.Client(); only != nil { // others may have made most of them
			l.Along("client", *only)
		}
	}
	l.OnlyOf(f.Who, "h.client", "h.user_id")
	switch f.State {
	case "":
	case HoldActive:
		l.Also(`h.state = 'active' AND h.expires_at > (SELECT clock_timestamp())`)
	case HoldExpired:
		l.Also(`(h.state = 'expired' OR h.state = 'active' AND h.expires_at <= (SELECT clock_timestamp()))`)
	default:
		l.Also(`h.state = ?`, string(f.State))
	}
	if list, next, err = l.Page(ctx, db, p); err != nil {
		return nil, uuid.Nil, fmt.Errorf("inventory.ListHolds: %w", err)
	}
	return list, next, nil
}

// HoldMetrics counts what this process does with holds.
type HoldMetrics struct{ events *prometheus.CounterVec }

// The events that are counted. A hold that is over is expired when the sweep ends
// it, and reclaimed when a transaction that needs positions ends it first.
const (
	HoldsMade      = "made"
	HoldsUsed      = "used"
	HoldsReleased  = "released"
	HoldsExtended  = "extended"
	HoldsExpired   = "expired"
	HoldsReclaimed = "reclaimed"
)

// NewHoldMetrics registers the counters, all at 0.
func NewHoldMetrics(registry prometheus.Registerer) *HoldMetrics {
	m := &HoldMetrics{events: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "triprize_holds_total",
		Help: "Events of holds: made, used, released, extended, expired (ended by the sweep), reclaimed (expired, and ended by a request for positions before the sweep).",
	}, []string{"event"})}
	registry.MustRegister(m.events)
	for _, event := range []string{HoldsMade, HoldsUsed, HoldsReleased, HoldsExtended, HoldsExpired, HoldsReclaimed} {
		m.events.WithLabelValues(event)
	}
	return m
}

// Count adds n events; a nil HoldMetrics counts nothing.
func (m *HoldMetrics) Count(event string, n int) {
	if m != nil && n > 0 {
		m.events.WithLabelValues(event).Add(float64(n))
	}
}
