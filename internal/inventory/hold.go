package inventory

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/campaign"
	"triprize/internal/domain/access"
	"triprize/internal/domain/fault"
	"triprize/internal/domain/metadata"
	"triprize/internal/domain/shape"
	"triprize/internal/platform/postgres"
)

// HoldState is the state of a hold.
type HoldState string

// The states of a hold.
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

const millis = "2006-01-02T15:04:05.000Z07:00" // RFC 3339 with milliseconds

// recorded has the state as it is in the row, and now has it by the clock: an active hold is
// expired from its deadline on.
const (
	holdColumns = `id, campaign_id, user_id, positions, extensions, expires_at, ends_by, purchase_id, created_at, ended_at, client, metadata, currency, `
	recorded    = holdColumns + `state`
	now         = holdColumns + `CASE WHEN state = 'active' AND expires_at <= clock_timestamp() THEN 'expired' ELSE state END`
)

func scanHold(row pgx.CollectableRow) (h Hold, err error) {
	err = row.Scan(&h.ID, &h.CampaignID, &h.UserID, &h.Positions, &h.Extensions, &h.ExpiresAt, &h.EndsBy, &h.PurchaseID, &h.CreatedAt, &h.EndedAt, &h.Client, &h.Metadata, &h.Currency, &h.State)
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

// GetHolds returns those of the holds that exist, in any order, as GetHold does.
func GetHolds(ctx context.Context, db postgres.DB, ids []uuid.UUID) ([]Hold, error) {
	holds, err := postgres.Collect(ctx, db, scanHold, `SELECT `+now+` FROM holds WHERE id = ANY($1)`, ids)
	return holds, fault.At(err, "inventory.GetHolds")
}

// queueRead reads holds as they are recorded. An active hold is active here even after its
// deadline: a transaction decides by what [QueueFindOver] found.
func queueRead(b *pgx.Batch, each func(h *Hold), condition string, args ...any) {
	b.Queue(`SELECT `+recorded+` FROM holds WHERE `+condition, args...).Query(func(rows pgx.Rows) error {
		found, err := pgx.CollectRows(rows, scanHold)
		for i := range found {
			each(&found[i])
		}
		return err
	})
}

// QueueGetHolds reads holds as they are recorded.
func QueueGetHolds(b *pgx.Batch, ids []uuid.UUID, each func(h *Hold)) {
	queueRead(b, each, `id = ANY($1)`, ids)
}

// QueueFindOver finds the active holds of campaigns whose deadline has passed.
// Queue it after the statement that locks the campaigns. The clock is in a
// subquery, so that it is read once and an index can be used.
func QueueFindOver(b *pgx.Batch, campaigns []uuid.UUID, found *[]*Hold) {
	queueRead(b, func(h *Hold) { *found = append(*found, h) },
		`campaign_id = ANY($1) AND state = 'active' AND expires_at <= (SELECT clock_timestamp()) ORDER BY id`, campaigns)
}

// AllHolds is the limit of QueueFindActive that is none.
const AllHolds = 0

// QueueFindActive finds up to limit active holds of a campaign, or AllHolds, those whose
// deadline has passed too. Queue it after the statement that locks the campaign.
func QueueFindActive(b *pgx.Batch, campaignID uuid.UUID, limit int, found *[]*Hold) {
	queueRead(b, func(h *Hold) { *found = append(*found, h) }, `campaign_id = $1 AND state = 'active' ORDER BY id LIMIT nullif($2::integer, 0)`, campaignID, limit)
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

// Every change of a position writes the board_version of its transaction into it.
// campaign.Changes counts that up once in every transaction. A statement uses counted if
// it comes after that, and uncounted if it comes before.
const (
	counted   = `(SELECT board_version FROM campaigns WHERE id = p.campaign_id)`
	uncounted = `(SELECT board_version + 1 FROM campaigns WHERE id = p.campaign_id)`
)

// newHold is a hold to be made, with its positions, which are free.
type newHold struct {
	Hold
	Picked []*FreePosition
}

// queueHold makes holds. Their positions must still be free and have the version
// at which they were found, and the quota must allow their users to hold them. It comes
// after campaign.Changes.
func queueHold(b *pgx.Batch, holds []newHold, quota HoldQuota) error {
	if len(holds) == 0 {
		return nil
	}
	var campaigns, holdIDs []uuid.UUID
	var layers, cols, versions []int
	var users []string
	var deadlines, created []time.Time
	for _, h := range holds {
		for _, f := range h.Picked {
			campaigns, layers, cols, versions = append(campaigns, f.CampaignID), append(layers, f.Layer), append(cols, f.Column), append(versions, f.Version)
			users, holdIDs, deadlines = append(users, h.UserID), append(holdIDs, h.ID), append(deadlines, h.ExpiresAt)
			created = append(created, h.CreatedAt)
		}
	}
	queueDropHeldTimes(b, quota, campaigns, layers, cols, users, created)
	b.Queue(`
		UPDATE positions p
		SET state = 'held', version = p.version + 1, board_version = `+counted+`, user_id = k.user_id, hold_id = k.hold_id, expires_at = k.expires_at
		FROM unnest($1::uuid[], $2::int[], $3::int[], $4::int[], $5::text[], $6::uuid[], $7::timestamptz[], $8::timestamptz[])
		     AS k (campaign_id, layer, col, version, user_id, hold_id, expires_at, created_at)
		WHERE p.campaign_id = k.campaign_id AND p.layer = k.layer AND p.col = k.col
		  AND p.state = $12 AND p.version = k.version AND `+mayHold, // not 'available': an index of the free positions would fit, without their keys
		campaigns, layers, cols, versions, users, holdIDs, deadlines, created,
		quota.Rest.Seconds(), coolDown.Seconds(), quota.Max.Seconds(), Available).Exec(postgres.Exactly(len(campaigns), "free positions"))
	return queueInsert(b, holds)
}

func queueInsert(b *pgx.Batch, holds []newHold) error {
	n := len(holds)
	ids, campaigns, users, deadlines := make([]uuid.UUID, n), make([]uuid.UUID, n), make([]string, n), make([]time.Time, n)
	positions, sizes, created, endsBy := make([][]byte, n), make([]int, n), make([]time.Time, n), make([]time.Time, n)
	clients, metadata, currencies := make([]string, n), make([][]byte, n), make([]string, n)
	for i, h := range holds {
		text, err := json.Marshal(h.Positions)
		if err != nil {
			return fmt.Errorf("inventory.queueHold: %w", err)
		}
		ids[i], campaigns[i], users[i], deadlines[i] = h.ID, h.CampaignID, h.UserID, h.ExpiresAt
		positions[i], sizes[i], created[i], endsBy[i] = text, len(h.Positions), h.CreatedAt, h.EndsBy
		clients[i], metadata[i], currencies[i] = h.Client, h.Metadata.Text(), h.Currency
	}
	b.Queue(`
		INSERT INTO holds (id, campaign_id, user_id, positions, size, expires_at, created_at, ends_by, client, metadata, currency)
		SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::jsonb[], $5::int[], $6::timestamptz[], $7::timestamptz[], $8::timestamptz[],
		                     $9::text[], $10::jsonb[], $11::text[])`,
		ids, campaigns, users, positions, sizes, deadlines, created, endsBy, clients, metadata, currencies).Exec(postgres.Exactly(n, "new holds"))
	return nil
}

// queueExtend writes the deadlines and the numbers of extensions of active holds,
// and the deadlines of their positions, before changes.
func queueExtend(b *pgx.Batch, holds []*Hold, changes campaign.Changes) {
	if len(holds) == 0 {
		return
	}
	n, positions := len(holds), 0
	ids, deadlines, extensions := make([]uuid.UUID, n), make([]time.Time, n), make([]int, n)
	for i, h := range holds {
		ids[i], deadlines[i], extensions[i] = h.ID, h.ExpiresAt, h.Extensions
		positions += len(h.Positions)
		changes.Add(h.CampaignID, campaign.Counts{})
	}
	b.Queue(`
		UPDATE holds h SET expires_at = e.expires_at, extensions = e.extensions
		FROM unnest($1::uuid[], $2::timestamptz[], $3::int[]) AS e (id, expires_at, extensions)
		WHERE h.id = e.id AND h.state = 'active' AND h.extensions < e.extensions AND h.expires_at <= e.expires_at
		  AND e.expires_at <= greatest(h.ends_by, h.expires_at)`, ids, deadlines, extensions).
		Exec(postgres.Exactly(n, "active holds"))
	b.Queue(`
		UPDATE positions p SET version = p.version + 1, board_version = `+uncounted+`, expires_at = e.expires_at
		FROM unnest($1::uuid[], $2::timestamptz[]) AS e (hold_id, expires_at)
		WHERE p.hold_id = e.hold_id AND p.state = 'held'`, ids, deadlines).
		Exec(postgres.Exactly(positions, "held positions"))
}

// QueueRelease ends active holds, before changes, to which it adds their positions.
func QueueRelease(b *pgx.Batch, holds []*Hold, changes campaign.Changes) {
	queueEnd(b, holds, changes, HoldReleased, "active holds", ``)
}

// QueueExpire is QueueRelease for holds that are over: positions that they free can be sold in
// the same transaction.
func QueueExpire(b *pgx.Batch, over []*Hold, changes campaign.Changes) {
	queueEnd(b, over, changes, HoldExpired, "holds that are over", ` AND expires_at <= clock_timestamp()`)
}

// queueEnd ends active holds under a condition, frees their positions, and adds to the
// held times of their users. It finds the positions by hold, because a position of an ended
// hold may have a new owner.
func queueEnd(b *pgx.Batch, holds []*Hold, changes campaign.Changes, state HoldState, what, condition string) {
	if len(holds) == 0 {
		return
	}
	ids, n := make([]uuid.UUID, len(holds)), 0
	for i, h := range holds {
		ids[i], n = h.ID, n+len(h.Positions)
		changes.Add(h.CampaignID, campaign.Counts{Reserved: -len(h.Positions)})
	}
	b.Queue(`UPDATE holds SET state = $2, ended_at = clock_timestamp() WHERE id = ANY($1) AND state = 'active'`+condition, ids, state).
		Exec(postgres.Exactly(len(holds), what))
	b.Queue(`
		UPDATE positions p
		SET state = 'available', version = version + 1, board_version = `+uncounted+`, user_id = NULL, hold_id = NULL, expires_at = NULL
		WHERE hold_id = ANY($1) AND state = 'held'`, ids).
		Exec(postgres.Exactly(n, "held positions"))
	queueAddHeldTimes(b, ids, n)
}
