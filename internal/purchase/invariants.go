package purchase

import "triprize/internal/platform/audit"

// Invariants are those of purchases, their positions and their jobs.
var Invariants = []audit.Invariant{
	{Check: "oversold", Name: "no position is in two completed purchases, and no campaign has sold more positions than it has", SQL: `
		SELECT format('campaign %s, position %s/%s: in %s completed purchases', p.campaign_id, i.layer, i.col, count(*))
		FROM purchases p CROSS JOIN LATERAL (SELECT * FROM purchase_items WHERE purchase_id = p.id OFFSET 0) i
		WHERE p.state = 'completed' GROUP BY p.campaign_id, i.layer, i.col HAVING count(*) > 1
		UNION ALL
		SELECT format('campaign %s has %s positions; %s are in completed purchases', c.id, c.positions_total, s.n)
		FROM campaigns c JOIN (
			SELECT p.campaign_id, count(*) AS n FROM purchases p CROSS JOIN LATERAL (SELECT * FROM purchase_items WHERE purchase_id = p.id OFFSET 0) i
			WHERE p.state = 'completed' GROUP BY p.campaign_id) s ON s.campaign_id = c.id
		WHERE s.n > c.positions_total`},
	{Check: "sold_positions", Name: "a sold position belongs to a completed purchase of its owner", SQL: `
		SELECT format('position %s/%s/%s', s.campaign_id, s.layer, s.col)
		FROM positions s LEFT JOIN purchases p ON p.id = s.purchase_id
		LEFT JOIN LATERAL (SELECT * FROM purchase_items WHERE purchase_id = p.id AND layer = s.layer AND col = s.col AND price = s.price LIMIT 1) i ON true
		WHERE s.state = 'sold'
		  AND (p.state, p.campaign_id, p.user_id) IS DISTINCT FROM ('completed', s.campaign_id, s.user_id)
		   OR s.state = 'sold' AND i.purchase_id IS NULL`},
	{Check: "reserved_positions", Name: "a reserved position belongs to an open purchase of its owner", SQL: `
		SELECT format('position %s/%s/%s', s.campaign_id, s.layer, s.col)
		FROM positions s LEFT JOIN purchases p ON p.id = s.purchase_id
		WHERE s.state = 'reserved'
		  AND NOT coalesce(p.state IN ('pending', 'awaiting_action') AND p.campaign_id = s.campaign_id AND p.user_id = s.user_id, false)`},
	{Check: "sold_items", Name: "every item of a completed purchase is a sold position of it", SQL: `
		SELECT format('purchase %s, position %s/%s', p.id, i.layer, i.col)
		FROM purchases p CROSS JOIN LATERAL (SELECT * FROM purchase_items WHERE purchase_id = p.id OFFSET 0) i
		LEFT JOIN positions s ON s.campaign_id = p.campaign_id AND s.layer = i.layer AND s.col = i.col
		WHERE p.state = 'completed' AND (s.state, s.purchase_id) IS DISTINCT FROM ('sold', p.id)`},
	{Check: "purchase_amounts", Name: "a purchase costs what its items cost, with those that were cancelled while others were left", SQL: `
		SELECT format('purchase %s costs %s, its items %s, and those that were cancelled %s', p.id, p.amount, i.price, c.price)
		FROM purchases p
		CROSS JOIN LATERAL (SELECT coalesce(sum(price), 0) AS price FROM purchase_items WHERE purchase_id = p.id) i
		CROSS JOIN LATERAL (
			SELECT coalesce(sum((x ->> 'price')::bigint), 0) AS price, count(*) AS n
			FROM jsonb_path_query(p.partial_cancellations, '$[*].positions[*]') x) c
		WHERE p.amount <> i.price + c.price OR i.price = 0 OR c.n > 0 AND p.completed_at IS NULL`},
	{Check: "purchase_jobs", Name: "a succeeded purchase job has exactly its purchase, completed or taken back since", SQL: `
		SELECT format('job %s, its purchase %s is %s', j.id, p.id, p.state)
		FROM jobs j LEFT JOIN purchases p ON p.id = j.id
		WHERE j.kind = 'purchase' AND j.state = 'succeeded'
		  AND NOT coalesce(p.id::text = j.result ->> 'purchase_id' AND p.completed_at IS NOT NULL
		                   AND p.state IN ('completed', 'cancelled', 'refunding', 'refunded'), false)`},
	{Check: "unsold_jobs", Name: "a purchase job that failed or is open has sold nothing", SQL: `
		SELECT format('job %s is %s, its purchase %s is %s', j.id, j.state, p.id, p.state)
		FROM jobs j JOIN purchases p ON p.id = j.id AND j.payload IS NOT NULL -- null: its user was erased
		WHERE j.state <> 'succeeded' AND p.completed_at IS NOT NULL
		   OR j.state = 'failed' AND p.state NOT IN ('failed', 'cancelled', 'refunding', 'refunded')
		   OR j.state IN ('queued', 'awaiting_action') AND p.state NOT IN ('pending', 'awaiting_action')`},
	{Check: "cancellation_jobs", Name: "a succeeded cancellation job has cancelled the purchase it was about, or positions of it", SQL: `
		SELECT format('job %s, its purchase %s is %s', j.id, p.id, p.state)
		FROM jobs j LEFT JOIN purchases p ON p.id::text = j.payload ->> 'purchase_id'
		LEFT JOIN LATERAL jsonb_array_elements(p.partial_cancellations) AS part ON part ->> 'job_id' = j.id::text
		WHERE j.kind = 'cancellation' AND j.state = 'succeeded'
		  AND ((p.campaign_id, p.id::text, coalesce(part -> 'amount', to_jsonb((SELECT sum(price) FROM purchase_items WHERE purchase_id = p.id)))::text)
		       IS DISTINCT FROM (j.campaign_id, j.result ->> 'purchase_id', j.result ->> 'amount')
		       OR (part IS NOT NULL) <> (j.result ->> 'state' = 'completed')
		       OR part IS NULL AND (p.cancelled_at IS NULL OR p.state NOT IN ('cancelled', 'refunding', 'refunded')))`},
	{Check: "lost_campaigns", Name: "what refers to a campaign refers to one that exists", SQL: `
		SELECT format('%s of campaign %s', what, campaign_id)
		FROM (SELECT DISTINCT 'positions' AS what, campaign_id FROM positions
		      UNION SELECT DISTINCT 'purchases', campaign_id FROM purchases
		      UNION SELECT DISTINCT 'holds', campaign_id FROM holds) r
		WHERE NOT EXISTS (SELECT FROM campaigns c WHERE c.id = r.campaign_id)`},
}
