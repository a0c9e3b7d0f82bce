package inventory

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/platform/postgres"
)

// Every change of a position writes the board_version of its transaction into it.
// campaign.Changes counts that up once in every transaction. A statement uses counted if
// it comes after that, and uncounted if it comes before.
const (
	counted   = `(SELECT board_version FROM campaigns WHERE id = p.campaign_id)`
	uncounted = `(SELECT board_version + 1 FROM campaigns WHERE id = p.campaign_id)`
)

// NewHold is a hold to be made, with the free positions it will keep.
type NewHold struct {
	Hold
	Picked []*Free
}

// QueueHold makes holds. Their positions must still be free and have the version
// at which they were found, and turns must allow their users to hold them. It comes
// after campaign.Changes.
func QueueHold(b *pgx.Batch, holds []NewHold, turns Turns) error {
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
	queueForget(b, turns, campaigns, layers, cols, users, created)
	b.Queue(`
		UPDATE positions p
		SET state = 'held', version = p.version + 1, board_version = `+counted+`, user_id = k.user_id, hold_id = k.hold_id, expires_at = k.expires_at
		FROM unnest($1::uuid[], $2::int[], $3::int[], $4::int[], $5::text[], $6::uuid[], $7::timestamptz[], $8::timestamptz[])
		     AS k (campaign_id, layer, col, version, user_id, hold_id, expires_at, created_at)
		WHERE p.campaign_id = k.campaign_id AND p.layer = k.layer AND p.col = k.col
		  AND p.state = $12 AND p.version = k.version AND `+mayHold, // not 'available': an index of the free positions would fit, without their keys
		campaigns, layers, cols, versions, users, holdIDs, deadlines, created,
		turns.Rest.Seconds(), turns.CoolDown.Seconds(), turns.Most.Seconds(), Available).Exec(postgres.Exactly(len(campaigns), "free positions"))
	return queueInsert(b, holds)
}

func queueInsert(b *pgx.Batch, holds []NewHold) error {
	n := len(holds)
	ids, campaigns, users, deadlines := make([]uuid.UUID, n), make([]uuid.UUID, n), make([]string, n), make([]time.Time, n)
	positions, sizes, created, endsBy := make([][]byte, n), make([]int, n), make([]time.Time, n), make([]time.Time, n)
	clients, metadata, currencies := make([]string, n), make([][]byte, n), make([]string, n)
	for i, h := range holds {
		text, err := json.Marshal(h.Positions)
		if err != nil {
			return fmt.Errorf("inventory.QueueHold: %w", err)
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

// QueueExtend writes the deadlines and the numbers of extensions of active holds,
// and the deadlines of their positions, before campaign.Changes.
func QueueExtend(b *pgx.Batch, holds []*Hold) {
	n, positions := len(holds), 0
	ids, deadlines, extensions := make([]uuid.UUID, n), make([]time.Time, n), make([]int, n)
	for i, h := range holds {
		ids[i], deadlines[i], extensions[i] = h.ID, h.ExpiresAt, h.Extensions
		positions += len(h.Positions)
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

// QueueRelease ends active holds that their owners give back, before campaign.Changes.
func QueueRelease(b *pgx.Batch, holds []*Hold) {
	ids, freed := make([]uuid.UUID, len(holds)), 0
	for i, h := range holds {
		ids[i] = h.ID
		freed += len(h.Positions)
	}
	b.Queue(`UPDATE holds SET state = 'released', ended_at = clock_timestamp() WHERE id = ANY($1) AND state = 'active'`, ids).
		Exec(postgres.Exactly(len(ids), "active holds"))
	queueFreeHeld(b, ids, freed)
	queueHeldTimes(b, ids, freed)
}

// QueueExpire ends active holds that are over, before campaign.Changes: positions that they
// free can be given away in the same transaction.
func QueueExpire(b *pgx.Batch, over []Over) {
	ids, freed := make([]uuid.UUID, len(over)), 0
	for i, o := range over {
		ids[i] = o.ID
		freed += o.Size
	}
	b.Queue(`
		UPDATE holds SET state = 'expired', ended_at = clock_timestamp()
		WHERE id = ANY($1) AND state = 'active' AND expires_at <= clock_timestamp()`, ids).
		Exec(postgres.Exactly(len(ids), "holds that are over"))
	queueFreeHeld(b, ids, freed)
	queueHeldTimes(b, ids, freed)
}

// queueFreeHeld frees the n positions that holds keep. It finds them by hold,
// because a position of an ended hold may have a new owner. It comes before
// campaign.Changes.
func queueFreeHeld(b *pgx.Batch, holds []uuid.UUID, n int) {
	b.Queue(`
		UPDATE positions p
		SET state = 'available', version = version + 1, board_version = `+uncounted+`, user_id = NULL, hold_id = NULL, expires_at = NULL
		WHERE hold_id = ANY($1) AND state = 'held'`, holds).
		Exec(postgres.Exactly(n, "held positions"))
}

// QueueSell marks positions as sold and ends the holds that purchases use. The
// positions must still have the version at which they were found. It comes after
// campaign.Changes.
func QueueSell(b *pgx.Batch, sales []Owned) {
	queueTake(b, sales, `state = 'sold', sold_at = clock_timestamp(), expires_at = NULL`, ``)
}

// queueTake gives positions to purchases, in the state that set says, under a condition.
func queueTake(b *pgx.Batch, sales []Owned, set, condition string, args ...any) {
	var campaigns, purchases, used, usedBy []uuid.UUID
	var layers, cols, versions []int
	var owners []string
	var holds []*uuid.UUID
	var seconds []float64
	for _, s := range sales {
		for _, f := range s.Picked {
			campaigns, layers, cols, versions = append(campaigns, f.CampaignID), append(layers, f.Layer), append(cols, f.Column), append(versions, f.Version)
			owners, purchases = append(owners, s.UserID), append(purchases, s.PurchaseID)
			holds, seconds = append(holds, postgres.Nullable(s.HoldID)), append(seconds, s.For.Seconds())
		}
		if s.HoldID != uuid.Nil {
			used, usedBy = append(used, s.HoldID), append(usedBy, s.PurchaseID)
		}
	}
	b.Queue(`
		UPDATE positions p
		SET version = p.version + 1, board_version = `+counted+`, user_id = s.user_id, purchase_id = s.purchase_id, hold_id = NULL, `+set+`
		FROM unnest($1::uuid[], $2::int[], $3::int[], $4::int[], $5::text[], $6::uuid[], $7::uuid[], $8::float8[])
		     AS s (campaign_id, layer, col, version, user_id, purchase_id, hold_id, seconds)
		WHERE p.campaign_id = s.campaign_id AND p.layer = s.layer AND p.col = s.col AND p.version = s.version
		  AND p.state = CASE WHEN s.hold_id IS NULL THEN 'available' ELSE 'held' END AND p.hold_id IS NOT DISTINCT FROM s.hold_id`+condition,
		append([]any{campaigns, layers, cols, versions, owners, purchases, holds, seconds}, args...)...).Exec(postgres.Exactly(len(campaigns), "positions"))
	if len(used) > 0 {
		b.Queue(`
			UPDATE holds h SET state = 'used', purchase_id = u.purchase_id, ended_at = clock_timestamp()
			FROM unnest($1::uuid[], $2::uuid[]) AS u (id, purchase_id)
			WHERE h.id = u.id AND h.state = 'active'`, used, usedBy).Exec(postgres.Exactly(len(used), "active holds"))
	}
}

// DeleteEndedHolds deletes up to limit holds that ended longer ago than keep, the oldest
// first, and returns how many. It looks at those that ended at from or later, and returns
// from where to go on: the holds that were deleted a moment ago are still in the index.
func DeleteEndedHolds(ctx context.Context, db postgres.DB, keep time.Duration, from *time.Time, limit int) (deleted int, next *time.Time, err error) {
	return deleteEnded(ctx, db, "holds", keep, from, limit)
}

func deleteEnded(ctx context.Context, db postgres.DB, table string, keep time.Duration, from *time.Time, limit int) (deleted int, next *time.Time, err error) {
	err = db.QueryRow(ctx, `
		WITH old AS MATERIALIZED (
			SELECT ctid AS place, ended_at FROM `+table+`
			WHERE ended_at >= coalesce($2, '-infinity'::timestamptz) AND ended_at < statement_timestamp() - $1 * interval '1 second'
			ORDER BY ended_at LIMIT $3 FOR UPDATE SKIP LOCKED
		), deleted AS (
			DELETE FROM `+table+` WHERE ctid = ANY(ARRAY(SELECT place FROM old))
		)
		SELECT count(*), coalesce(max(ended_at), $2) FROM old`, keep.Seconds(), from, limit).Scan(&deleted, &next)
	if err != nil {
		return 0, from, fmt.Errorf("inventory.deleteEnded(%s): %w", table, err)
	}
	return deleted, next, nil
}
