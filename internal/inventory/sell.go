package inventory

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/domain/shape"
	"triprize/internal/platform/postgres"
)

// QueueSell marks positions as sold and ends the holds that purchases use. The
// positions must still have the version at which they were found. It comes after
// campaign.Changes.
func QueueSell(b *pgx.Batch, sales []Allocation) {
	queueTake(b, sales, `state = 'sold', sold_at = clock_timestamp(), expires_at = NULL`, ``)
}

// queueTake assigns positions to purchases, with the state of set, under a condition.
func queueTake(b *pgx.Batch, sales []Allocation, set, condition string, args ...any) {
	var campaigns, purchases, used, usedBy []uuid.UUID
	var layers, cols, versions []int
	var boards []int64
	var owners []string
	var holds []*uuid.UUID
	var seconds []float64
	for _, s := range sales {
		for _, f := range s.Picked {
			campaigns, layers, cols, versions = append(campaigns, f.CampaignID), append(layers, f.Layer), append(cols, f.Column), append(versions, f.Version)
			boards, owners, purchases = append(boards, s.Board), append(owners, s.UserID), append(purchases, s.PurchaseID)
			holds, seconds = append(holds, postgres.Nullable(s.HoldID)), append(seconds, s.For.Seconds())
		}
		if s.HoldID != uuid.Nil {
			used, usedBy = append(used, s.HoldID), append(usedBy, s.PurchaseID)
		}
	}
	b.Queue(`
		UPDATE positions p
		SET version = p.version + 1, board_version = s.board, user_id = s.user_id, purchase_id = s.purchase_id, hold_id = NULL, `+set+`
		FROM unnest($1::uuid[], $2::int[], $3::int[], $4::int[], $5::text[], $6::uuid[], $7::uuid[], $8::float8[], $9::bigint[])
		     AS s (campaign_id, layer, col, version, user_id, purchase_id, hold_id, seconds, board)
		WHERE p.campaign_id = s.campaign_id AND p.layer = s.layer AND p.col = s.col AND p.version = s.version
		  AND p.state = CASE WHEN s.hold_id IS NULL THEN 'available' ELSE 'held' END AND p.hold_id IS NOT DISTINCT FROM s.hold_id`+condition,
		append([]any{campaigns, layers, cols, versions, owners, purchases, holds, seconds, boards}, args...)...).Exec(postgres.Exactly(len(campaigns), "positions"))
	if len(used) > 0 {
		b.Queue(`
			UPDATE holds h SET state = 'used', purchase_id = u.purchase_id, ended_at = clock_timestamp()
			FROM unnest($1::uuid[], $2::uuid[]) AS u (id, purchase_id)
			WHERE h.id = u.id AND h.state = 'active'`, used, usedBy).Exec(postgres.Exactly(len(used), "active holds"))
	}
}

// QueueReserve reserves positions for purchases that wait for their payments, and ends
// the holds that these use. The positions must still have the version at which they were
// found, and the quota must allow their users to hold free ones until the deadline. No
// deadline frees them, not even expires_at, maxExtension after it: their payments decide. now is when the transaction decided. It comes after campaign.Changes.
func QueueReserve(b *pgx.Batch, sales []Allocation, now time.Time, quota HoldQuota, maxExtension time.Duration) {
	queueDropHeldTimesOf(b, sales, now, quota)
	queueTake(b, sales, `state = 'reserved', expires_at = clock_timestamp() + (s.seconds + $10) * interval '1 second'`, mayReserve,
		maxExtension.Seconds(), quota.Rest.Seconds(), quota.Max.Seconds())
}

// QueueCountReserved counts the positions that purchases have reserved, into a map. One
// that has none is not in it.
func QueueCountReserved(b *pgx.Batch, purchases []uuid.UUID, into map[uuid.UUID]int) {
	// By the index of what users have in a campaign: positions have none of their purchases.
	var id uuid.UUID
	var n int
	b.Queue(`
		SELECT i.id, s.n FROM unnest($1::uuid[]) AS i (id)
		CROSS JOIN LATERAL (SELECT campaign_id, user_id FROM purchases WHERE id = i.id) p
		CROSS JOIN LATERAL (
			SELECT count(*)::int AS n FROM positions
			WHERE campaign_id = p.campaign_id AND user_id = p.user_id AND purchase_id = i.id AND state = 'reserved') s
		WHERE s.n > 0`, purchases).Query(postgres.Each(func() { into[id] = n }, &id, &n))
}

// User is a user in a campaign.
type User struct {
	CampaignID uuid.UUID
	ID         string
}

// columnsOf returns users as $1 uuid[] and $2 text[] of a statement.
func columnsOf(users []User) (campaigns []uuid.UUID, ids []string) {
	for _, u := range users {
		campaigns, ids = append(campaigns, u.CampaignID), append(ids, u.ID)
	}
	return campaigns, ids
}

// CountsOfUser is the subquery that counts what user u (campaign_id, user_id) has in a campaign:
// n positions that are held, reserved or sold, and how many of them are reserved. Joined
// laterally it uses an index once per user; "user_id = ANY" would filter the whole campaign.
const CountsOfUser = `(SELECT count(*)::int AS n, count(*) FILTER (WHERE state = 'reserved')::int AS reserved
	FROM positions WHERE campaign_id = u.campaign_id AND user_id = u.user_id)`

// QueueCountOfUsers counts what users have in campaigns: n positions that are held, reserved or sold, and
// how many of them are reserved.
func QueueCountOfUsers(b *pgx.Batch, users []User, each func(u User, n, reserved int)) {
	campaigns, ids := columnsOf(users)
	var u User
	var n, reserved int
	b.Queue(`
		SELECT u.campaign_id, u.user_id, p.n, p.reserved FROM unnest($1::uuid[], $2::text[]) AS u (campaign_id, user_id)
		CROSS JOIN LATERAL `+CountsOfUser+` p`, campaigns, ids).
		Query(postgres.Each(func() { each(u, n, reserved) }, &u.CampaignID, &u.ID, &n, &reserved))
}

// Allocation is the positions that are sold to a purchase or reserved for it, or that it loses.
type Allocation struct {
	CampaignID, PurchaseID uuid.UUID
	UserID                 string
	Items                  []shape.Item // that it has
	HoldID                 uuid.UUID    // the buyer's hold that it uses; zero: none

	// For QueueSell and QueueReserve.
	Picked []*FreePosition // that it gets: free ones, or those of the hold
	Board  int64           // the campaign's board_version after this transaction
	For    time.Duration   // until the deadline of a reservation

	// For QueueAddReservedTimes.
	HeldSince  time.Time // from when the user's time counts
	ReservedAt time.Time
	Deadline   time.Time // nothing counts after it: from there on only the provider can end the reservation
}

// QueueChange sells positions that are Reserved, or makes those that are Sold or Reserved Available.
// Each must still be in that state, and of its purchase: one that was freed before may have a new
// owner. It comes after campaign.Changes.
func QueueChange(b *pgx.Batch, purchased []Allocation, from, to State) {
	if len(purchased) == 0 {
		return
	}
	set := `state = 'available', user_id = NULL, purchase_id = NULL, sold_at = NULL`
	if to == Sold {
		set = `state = 'sold', sold_at = clock_timestamp()`
	}
	var campaigns, purchases []uuid.UUID
	var layers, cols []int
	for _, o := range purchased {
		for _, p := range o.Items {
			campaigns, purchases, layers, cols = append(campaigns, o.CampaignID), append(purchases, o.PurchaseID), append(layers, p.Layer), append(cols, p.Column)
		}
	}
	b.Queue(`
		UPDATE positions p SET version = p.version + 1, board_version = `+counted+`, expires_at = NULL, `+set+`
		FROM unnest($1::uuid[], $2::int[], $3::int[], $4::uuid[]) AS r (campaign_id, layer, col, purchase_id)
		WHERE p.campaign_id = r.campaign_id AND p.layer = r.layer AND p.col = r.col
		  AND p.purchase_id = r.purchase_id AND p.state = $5`, campaigns, layers, cols, purchases, from).
		Exec(postgres.Exactly(len(campaigns), string(from)+" positions"))
}

// Buyers returns the purchases that have sold positions of a campaign, each once, in
// the order of their ids: at most limit of them, after the given one (zero: from the
// start).
func Buyers(ctx context.Context, db postgres.DB, campaignID, after uuid.UUID, limit int) ([]uuid.UUID, error) {
	purchases, err := postgres.Collect(ctx, db, pgx.RowTo[uuid.UUID], `
		SELECT DISTINCT purchase_id FROM positions WHERE campaign_id = $1 AND state = 'sold' AND purchase_id > $2
		ORDER BY purchase_id LIMIT $3`, campaignID, after, limit)
	return purchases, fault.At(err, "inventory.Buyers(%s)", campaignID)
}

// NotIn returns those of chosen positions that are not in a state, each with its index in the
// request and the state it is in. form is the campaign's. Call it under the campaign's lock.
func NotIn(ctx context.Context, tx pgx.Tx, campaignID uuid.UUID, form shape.Shape, chosen []shape.Position, state State) (others []fault.Field, err error) {
	ids := make([]PositionID, len(chosen))
	for i, p := range chosen {
		ids[i] = PositionID{campaignID, p}
	}
	found, err := find(ctx, tx, ids)
	states := make(map[shape.Position]State, len(found))
	for _, f := range found {
		states[f.Position] = f.State
	}
	for i, p := range chosen {
		if states[p] != state {
			others = append(others, fault.Field{Pointer: fmt.Sprintf("/positions/%d", i), Detail: fmt.Sprintf("position %s is %s", form.Name(p), states[p])})
		}
	}
	return others, err
}

// QueueBlocking blocks positions that are Available, or unblocks those that are Blocked. An empty
// reason is none. It comes after campaign.Changes.
func QueueBlocking(b *pgx.Batch, campaignID uuid.UUID, positions []shape.Position, from State, reason string) {
	to := Blocked
	if from == Blocked {
		to = Available
	}
	layers, cols := make([]int, len(positions)), make([]int, len(positions))
	for i, p := range positions {
		layers[i], cols[i] = p.Layer, p.Column
	}
	b.Queue(`
		UPDATE positions p SET version = p.version + 1, board_version = `+counted+`, state = $5, block_reason = nullif($6, '')
		FROM unnest($2::int[], $3::int[]) AS c (layer, col)
		WHERE p.campaign_id = $1 AND p.layer = c.layer AND p.col = c.col AND p.state = $4`,
		campaignID, layers, cols, from, to, reason).Exec(postgres.Exactly(len(positions), string(from)+" positions"))
}

// UsedHolds finds the holds that purchases have used and whose time is not over, by
// purchase.
func UsedHolds(ctx context.Context, db postgres.DB, purchases []uuid.UUID) (map[uuid.UUID]uuid.UUID, error) {
	found := make(map[uuid.UUID]uuid.UUID)
	var purchaseID, holdID uuid.UUID
	err := postgres.Scan(ctx, db, func() { found[purchaseID] = holdID }, []any{&purchaseID, &holdID}, `
		SELECT h.purchase_id, h.id FROM unnest($1::uuid[]) AS i (id)
		CROSS JOIN LATERAL (SELECT campaign_id, user_id FROM purchases WHERE id = i.id) p
		CROSS JOIN LATERAL (
			SELECT id, purchase_id FROM holds
			WHERE campaign_id = p.campaign_id AND user_id = p.user_id AND expires_at > (SELECT clock_timestamp())
			  AND purchase_id = i.id) h`, purchases)
	return found, fault.At(err, "inventory.UsedHolds")
}

// QueueRestoreHolds makes the holds that unpaid purchases have used active again, with their
// positions and their deadlines. Each position must still be reserved for its purchase. It comes after campaign.Changes.
func QueueRestoreHolds(b *pgx.Batch, again []Allocation) {
	holds, purchases, n := make([]uuid.UUID, len(again)), make([]uuid.UUID, len(again)), 0
	for i, h := range again {
		holds[i], purchases[i] = h.HoldID, h.PurchaseID
		n += len(h.Items)
	}
	b.Queue(`
		UPDATE positions p
		SET state = 'held', version = p.version + 1, board_version = `+counted+`, purchase_id = NULL, hold_id = h.id, expires_at = h.expires_at
		FROM unnest($1::uuid[], $2::uuid[]) AS k (hold_id, purchase_id)
		CROSS JOIN LATERAL (SELECT id, campaign_id, user_id, expires_at FROM holds WHERE id = k.hold_id) h
		WHERE p.campaign_id = h.campaign_id AND p.user_id = h.user_id AND p.purchase_id = k.purchase_id AND p.state = 'reserved'`, holds, purchases).
		Exec(postgres.Exactly(n, "reserved positions"))
	b.Queue(`
		UPDATE holds h SET state = 'active', purchase_id = NULL, ended_at = NULL
		FROM unnest($1::uuid[], $2::uuid[]) AS k (id, purchase_id)
		WHERE h.id = k.id AND h.state = 'used' AND h.purchase_id = k.purchase_id`, holds, purchases).
		Exec(postgres.Exactly(len(again), "used holds"))
}
