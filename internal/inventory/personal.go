package inventory

import "triprize/internal/platform/personal"

// OfPerson selects the ids of the holds of a person, see [personal.Table].
const OfPerson = `SELECT h.id FROM holds h WHERE h.user_id = $2 AND ($1::text IS NULL OR h.client = $1)`

// WithPurchases renames the user of the sold positions of purchases, see package purchase.
const WithPurchases = `UPDATE positions s SET user_id = $2 FROM purchases p
	WHERE p.id = ANY($1::text[]::uuid[]) AND s.campaign_id = p.campaign_id AND s.user_id = p.user_id AND s.purchase_id = p.id AND p.user_id = $3`

// Personal is what holds have of persons. sold selects their purchases.
func Personal(sold string) []personal.Table {
	return []personal.Table{
		{Name: "positions", Else: []string{"user_id"}, Of: `t.purchase_id IN (` + sold + `)`, Omit: []string{"rank", "block_reason"}, Why: "what is held and sold", Till: "the campaign"},
		{Name: "held_times", Gone: []string{"user_id"}, Why: "the limit of holding without buying", Till: "a day", // it has no client
			Of: `t.user_id = $2 AND ($1::text IS NULL OR EXISTS (SELECT FROM holds h WHERE h.user_id = $2 AND h.client = $1 AND h.campaign_id = t.campaign_id)
				OR EXISTS (SELECT FROM purchases p WHERE p.user_id = $2 AND p.client = $1 AND p.campaign_id = t.campaign_id))`},
		{Name: "holds", Of: `t.user_id = $2 AND ($1::text IS NULL OR t.client = $1)`, Open: `t.user_id = $2 AND ($1::text IS NULL OR t.client = $1) AND t.state = 'active'`, Gone: []string{"user_id", "metadata"},
			Why: "what a user has held", Till: "holds.retention"},
	}
}
