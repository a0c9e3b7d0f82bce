package purchase

import "triprize/internal/platform/personal"

// OfPerson selects the ids of the purchases of a person, also of those that are erased, see [personal.Table].
const OfPerson = `SELECT p.id FROM purchases p WHERE p.user_id IN ($2, $3) AND ($1::text IS NULL OR p.client = $1)`

// Personal is what purchases have of persons. with are statements about rows that name the user of a purchase too.
func Personal(with ...string) []personal.Table {
	return []personal.Table{
		{Name: "purchases", Of: `t.user_id = $2 AND ($1::text IS NULL OR t.client = $1)`, With: with, Omit: []string{"nonce"},
			Open: `t.user_id = $2 AND ($1::text IS NULL OR t.client = $1) AND (t.state IN ('pending', 'awaiting_action', 'refunding')
				OR t.state = 'completed' AND EXISTS (SELECT FROM campaigns c WHERE c.id = t.campaign_id AND c.state <> 'completed'))`,
			Wipe: map[string]string{"user_id": `$3`, "nonce": `NULL`, "metadata": `NULL`, "payment_reference": `CASE t.payment_method WHEN 'external' THEN NULL ELSE t.payment_reference END`,
				"cancelled_by": `split_part(t.cancelled_by, '/', 1)`, "cancel_reason": `NULL`,
				"partial_cancellations": `(SELECT jsonb_agg(part - 'reason' || jsonb_build_object('by', split_part(part ->> 'by', '/', 1))) FROM jsonb_array_elements(t.partial_cancellations) part)`},
			Why: "what was sold, to whom, and the proof of it", Till: "never"},
		{Name: "purchase_items", Of: `t.purchase_id IN (` + OfPerson + `)`, Why: "the positions of a purchase", Till: "never"},
	}
}
