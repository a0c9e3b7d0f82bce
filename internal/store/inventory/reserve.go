package inventory

import (
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// QueueReserve reserves positions for purchases that wait for their payments, and ends
// the holds that these use. The positions must still have the version at which they were
// found. Nothing frees them by itself, not even after atMost, which is when the last
// payment should have ended: their payments decide. It comes after campaign.Changes.
func QueueReserve(b *pgx.Batch, sales []Sale, atMost time.Duration) {
	queueTake(b, sales, `state = 'reserved', expires_at = clock_timestamp() + $8 * interval '1 second'`, atMost.Seconds())
}

// QueueSellReserved marks positions as sold that their purchases have reserved. It comes
// after campaign.Changes.
func QueueSellReserved(b *pgx.Batch, sold []Return) {
	queueChange(b, sold, Reserved, `state = 'sold', sold_at = clock_timestamp(), expires_at = NULL`)
}

// QueueCountReserved counts the positions that purchases have reserved, into a map. One
// that has none is not in it.
func QueueCountReserved(b *pgx.Batch, purchases []uuid.UUID, into map[uuid.UUID]int) {
	// By the index of what users have in a campaign: positions have none of their purchases.
	b.Queue(`
		SELECT i.id, s.n FROM unnest($1::uuid[]) AS i (id)
		CROSS JOIN LATERAL (SELECT campaign_id, user_id FROM purchases WHERE id = i.id) p
		CROSS JOIN LATERAL (
			SELECT count(*)::int AS n FROM positions
			WHERE campaign_id = p.campaign_id AND user_id = p.user_id AND purchase_id = i.id AND state = 'reserved') s
		WHERE s.n > 0`, purchases).Query(func(rows pgx.Rows) error {
		var id uuid.UUID
		var n int
		_, err := pgx.ForEachRow(rows, []any{&id, &n}, func() error { into[id] = n; return nil })
		return err
	})
}

// User is a user in a campaign.
type User struct {
	CampaignID uuid.UUID
	ID         string
}

// CountsOfUser is the subquery that counts what user u (campaign_id, user_id) has in a campaign:
// n positions that are held, reserved or sold, and how many of them are reserved. Joined
// laterally it looks in an index once per user; "user_id = ANY" would filter the whole campaign.
const CountsOfUser = `(SELECT count(*)::int AS n, count(*) FILTER (WHERE state = 'reserved')::int AS reserved
	FROM positions WHERE campaign_id = u.campaign_id AND user_id = u.user_id)`

// QueueCountOfUsers counts what users have in campaigns: held, reserved and sold
// positions. A user who has none is in the map, with 0.
func QueueCountOfUsers(b *pgx.Batch, users []User, into map[User]int) {
	queueCountOfUsers(b, "n", users, into)
}

// QueueCountReservedOfUsers counts the reserved positions of users in campaigns.
func QueueCountReservedOfUsers(b *pgx.Batch, users []User, into map[User]int) {
	queueCountOfUsers(b, "reserved", users, into)
}

func queueCountOfUsers(b *pgx.Batch, which string, users []User, into map[User]int) {
	campaigns, ids := make([]uuid.UUID, len(users)), make([]string, len(users))
	for i, u := range users {
		campaigns[i], ids[i] = u.CampaignID, u.ID
	}
	b.Queue(`
		SELECT u.campaign_id, u.user_id, p.`+which+` FROM unnest($1::uuid[], $2::text[]) AS u (campaign_id, user_id)
		CROSS JOIN LATERAL `+CountsOfUser+` p`, campaigns, ids).
		Query(func(rows pgx.Rows) error { return ScanCounts(rows, into) })
}

// ScanCounts reads rows of campaign, user and a number into a map.
func ScanCounts(rows pgx.Rows, into map[User]int) error {
	var u User
	var n int
	_, err := pgx.ForEachRow(rows, []any{&u.CampaignID, &u.ID, &n}, func() error { into[u] = n; return nil })
	return err
}
