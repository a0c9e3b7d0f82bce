package payment

import "triprize/internal/platform/audit"

// Invariants are those of purchases by card, with their payments and refunds here, and of refunds that
// are not by card. The comparison with what the provider says is package reconciliation.
var Invariants = []audit.Invariant{
	{Check: "used_holds", Name: "a used hold was used by a purchase of its owner, of all its positions", SQL: `
		SELECT format('hold %s, purchase %s', h.id, h.purchase_id)
		FROM holds h LEFT JOIN purchases p ON p.id = h.purchase_id
		WHERE h.state = 'used'
		  AND ((p.campaign_id, p.user_id) IS DISTINCT FROM (h.campaign_id, h.user_id)
		       OR EXISTS (SELECT layer, "column" FROM jsonb_to_recordset(h.positions) AS w (layer int, "column" int)
		                  EXCEPT (SELECT layer, col FROM purchase_items WHERE purchase_id = p.id
		                          UNION ALL SELECT (x ->> 'layer')::int, (x ->> 'column')::int FROM jsonb_path_query(p.partial_cancellations, '$[*].positions[*]') x))
		       OR h.size <> (SELECT count(*) FROM purchase_items WHERE purchase_id = p.id) + (SELECT count(*) FROM jsonb_path_query(p.partial_cancellations, '$[*].positions[*]')))`},
	{Check: "queued_jobs", Name: "a queued job is in the outbox, or its payment goes on", SQL: `
		SELECT format('job %s', j.id) FROM jobs j
		WHERE j.state = 'queued' AND NOT EXISTS (SELECT FROM payments p WHERE p.purchase_id = j.purchase_id AND p.finished_at IS NULL)
		  AND j.id NOT IN (SELECT unnest(jobs) FROM outbox_messages)`},
	{Check: "wallet_refunds", Name: "a purchase by wallet or external has a refund of each cancelled part, and of the rest when it is cancelled, to its buyer, and no other has one", SQL: `
		SELECT format('purchase %s by %s over %s %s is %s; refunds by %s, to its user: %s, over %s %s', coalesce(p.id, r.purchase_id), p.payment_method,
		              p.cancelled, p.currency, p.state, r.method, p.user_id = r.user_id, r.amounts, r.currency)
		FROM (WITH few AS MATERIALIZED (SELECT * FROM purchases WHERE payment_method <> 'card' AND (state = 'cancelled' OR partial_cancellations IS NOT NULL))
		      SELECT few.*, ARRAY(
		          SELECT (part ->> 'amount')::bigint FROM jsonb_array_elements(few.partial_cancellations) AS part
		          UNION ALL SELECT sum(price)::bigint FROM purchase_items WHERE purchase_id = few.id AND few.state = 'cancelled' HAVING count(*) > 0
		          ORDER BY 1) AS cancelled
		      FROM few) p
		FULL JOIN (
			SELECT purchase_id, method, campaign_id, user_id, currency, array_agg(amount ORDER BY amount) AS amounts
			FROM refunds WHERE method <> 'card' GROUP BY purchase_id, method, campaign_id, user_id, currency) r ON r.purchase_id = p.id
		WHERE (p.payment_method, p.campaign_id, p.user_id, p.currency, p.cancelled)
		      IS DISTINCT FROM (r.method, r.campaign_id, r.user_id, r.currency, r.amounts)`},
	{Check: "payments", Name: "a purchase by card has its payment, and no other purchase has one", SQL: `
		SELECT format('purchase %s by %s: %s %s; its payment: %s %s', coalesce(p.id, y.purchase_id), p.payment_method,
		              p.amount, p.currency, y.amount, y.currency)
		FROM (SELECT * FROM purchases WHERE payment_method = 'card') p FULL JOIN payments y ON y.purchase_id = p.id
		WHERE (p.id, p.campaign_id, p.amount, p.currency)
		      IS DISTINCT FROM (y.purchase_id, y.campaign_id, y.amount, y.currency)`},
	{Check: "unpaid_purchases", Name: "a purchase that waits for its payment is paid by card", SQL: `
		SELECT format('purchase %s is %s, by %s', id, state, payment_method)
		FROM purchases WHERE state IN ('pending', 'awaiting_action') AND payment_method <> 'card'`},
	{Check: "payment_positions", Name: "an open payment keeps the positions of its purchase until they are released, and a finished one keeps none", SQL: `
		SELECT format('payment %s is %s and keeps %s of %s', y.purchase_id, y.phase, k.n, i.n)
		FROM payments y JOIN purchases p ON p.id = y.purchase_id
		CROSS JOIN LATERAL (SELECT count(*) AS n FROM purchase_items WHERE purchase_id = y.purchase_id) i
		CROSS JOIN LATERAL (
			SELECT count(*) AS n, count(*) FILTER (WHERE w.layer IS NOT NULL) AS listed
			FROM positions s LEFT JOIN purchase_items w ON w.purchase_id = s.purchase_id AND w.layer = s.layer AND w.col = s.col
			WHERE s.campaign_id = y.campaign_id AND s.user_id = p.user_id AND s.purchase_id = y.purchase_id AND s.state = 'reserved') k
		CROSS JOIN LATERAL (
			SELECT y.finished_at IS NOT NULL OR EXISTS (SELECT FROM payment_steps t WHERE t.purchase_id = y.purchase_id AND t.event = 'released') AS gone) r
		WHERE (k.n, k.listed) IS DISTINCT FROM (CASE WHEN r.gone THEN 0 ELSE i.n END, CASE WHEN r.gone THEN 0 ELSE i.n END)
		   OR y.phase = 'late' AND NOT r.gone`},
	{Check: "reservations", Name: "a reserved position belongs to an open payment", SQL: `
		SELECT format('position %s/%s/%s, payment %s', s.campaign_id, s.layer, s.col, y.phase)
		FROM positions s LEFT JOIN payments y ON y.purchase_id = s.purchase_id
		WHERE s.state = 'reserved' AND (y.finished_at IS NOT NULL OR y.purchase_id IS NULL)`},
	{Check: "payment_purchases", Name: "a purchase is what its payment has made of it", SQL: `
		SELECT format('payment %s is %s, its purchase is %s, completed at %s', y.purchase_id, y.phase, p.state, p.completed_at)
		FROM payments y JOIN purchases p ON p.id = y.purchase_id
		WHERE NOT CASE y.phase
			WHEN 'settled' THEN (p.state IN ('completed', 'refunding', 'refunded') OR ` + released + ` AND p.cancelled_by = 'system' AND y.disputed_at IS NOT NULL) AND p.completed_at IS NOT NULL
			WHEN 'refund_due' THEN p.state IN ('refunding', 'refunded') AND p.completed_at IS NULL
			WHEN 'cancelled' THEN p.state IN ('failed', 'cancelled') AND p.completed_at IS NULL
			WHEN 'captured' THEN p.state <> 'completed' AND p.completed_at IS NULL
			ELSE p.state IN ('pending', 'awaiting_action') AND p.completed_at IS NULL END`},
	{Check: "next_actions", Name: "a purchase that waits for its buyer says how to go on, and so does its job", SQL: `
		SELECT format('payment %s is %s with %s; purchase %s, job %s with %s', y.purchase_id, y.phase, y.next_action, p.state, j.state, j.progress)
		FROM payments y JOIN purchases p ON p.id = y.purchase_id LEFT JOIN jobs j ON j.id = y.purchase_id
		WHERE y.phase = 'action' AND y.next_action IS NULL
		   OR y.phase IN ('action', 'declined') AND (p.state <> 'awaiting_action' OR j.state IS DISTINCT FROM 'awaiting_action')
		   OR (p.state = 'awaiting_action') <> (coalesce(j.state, '') = 'awaiting_action')
		   OR j.state = 'awaiting_action' AND CASE y.phase WHEN 'declined' THEN j.progress -> 'next_action' -> 'decline' ->> 'code'
		                                                   ELSE j.progress -> 'next_action' ->> 'url' END IS NULL`},
	{Check: "waiting_jobs", Name: "only a job whose payment is open waits for a buyer", SQL: `
		SELECT format('job %s, payment %s', j.id, y.phase)
		FROM jobs j LEFT JOIN payments y ON y.purchase_id = j.id
		WHERE j.state = 'awaiting_action' AND (y.purchase_id IS NULL OR y.finished_at IS NOT NULL)`},
	{Check: "payment_jobs", Name: "the job of a payment is open as long as its purchase, and ends with it", SQL: `
		SELECT format('payment %s is %s, its purchase %s, its job %s is %s', y.purchase_id, y.phase, p.state, j.id, j.state)
		FROM payments y JOIN purchases p ON p.id = y.purchase_id JOIN jobs j ON j.id = y.purchase_id AND j.payload IS NOT NULL -- null: its user was erased
		WHERE j.purchase_id IS DISTINCT FROM y.purchase_id OR j.kind <> 'purchase'
		   OR (j.state IN ('queued', 'awaiting_action')) <> (p.state IN ('pending', 'awaiting_action'))
		   OR y.phase = 'settled' AND j.state <> 'succeeded' OR y.phase IN ('refund_due', 'cancelled') AND j.state <> 'failed'`},
	{Check: "unpaid_jobs", Name: "a purchase that waits for its payment has its job", SQL: `
		SELECT format('purchase %s', p.id) FROM purchases p
		WHERE p.state IN ('pending', 'awaiting_action') AND NOT EXISTS (SELECT FROM jobs j WHERE j.id = p.id)`},
	{Check: "waiting_cancellations", Name: "a cancellation waits for the open payment that ends with it, and for no other", SQL: `
		SELECT format('cancellation %s is %s, for purchase %s; payment %s is %s and ends with %s', j.id, j.state, j.purchase_id, y.purchase_id, y.phase, y.cancel_job)
		FROM (SELECT * FROM jobs WHERE kind = 'cancellation' AND purchase_id IS NOT NULL AND payload IS NOT NULL) j
		FULL JOIN (SELECT * FROM payments WHERE cancel_job IS NOT NULL) y ON y.cancel_job = j.id
		LEFT JOIN purchases p ON p.id = y.purchase_id
		WHERE j.id IS NOT NULL AND (y.purchase_id IS DISTINCT FROM j.purchase_id OR j.payload ->> 'purchase_id' <> j.purchase_id::text)
		   OR j.id IS NOT NULL AND (j.state = 'queued') <> coalesce(p.state IN ('pending', 'awaiting_action'), false)
		   OR j.id IS NULL AND p.state IN ('pending', 'awaiting_action')
		   OR j.state = 'failed'`},
	{Check: "card_refunds", Name: "a card purchase that is given back, in whole or in part, has refunds of ours to its buyer, and no other has one", SQL: `
		SELECT format('purchase %s in %s is %s; refund %s, to its user: %s, in %s', coalesce(p.id, r.purchase_id), p.currency, p.state, r.id, p.user_id = r.user_id, r.currency)
		FROM (WITH few AS MATERIALIZED (SELECT * FROM purchases WHERE state IN ('refunding', 'refunded') OR payment_method = 'card' AND partial_cancellations IS NOT NULL) SELECT * FROM few) p
		FULL JOIN (SELECT * FROM refunds WHERE method = 'card' AND number IS NOT NULL) r ON r.purchase_id = p.id
		WHERE (p.id, p.campaign_id, p.user_id, p.currency) IS DISTINCT FROM (r.purchase_id, r.campaign_id, r.user_id, r.currency)`},
	{Check: "finished_refunds", Name: "a purchase is refunded when its refunds are finished, and not before", SQL: `
		SELECT format('purchase %s is %s, its refund %s is %s', p.id, p.state, r.id, r.state)
		FROM (SELECT *, bool_and(state IN ('succeeded', 'resolved')) OVER (PARTITION BY purchase_id) AS finished FROM refunds
		      WHERE method = 'card' AND number IS NOT NULL) r JOIN purchases p ON p.id = r.purchase_id
		WHERE (p.state = 'refunded') <> r.finished AND p.state <> 'completed' AND NOT (` + released + `)`},
	// Money is given back twice only when somebody has said so of a refund that was then made, too. What is
	// not asked for is a refund of others that has failed since.
	{Check: "captured_money", Name: "what a card has paid is kept, given back by us, or given back out of band", SQL: `
		SELECT format('purchase %s is %s; paid %s, given back by us %s, out of band %s, asked for by us %s', p.id, p.state, y.paid, r.ours, r.others, r.asked)
		FROM payments y JOIN purchases p ON p.id = y.purchase_id
		CROSS JOIN LATERAL (SELECT p.amount - sum(price) AS debt FROM purchase_items WHERE purchase_id = p.id) i
		CROSS JOIN LATERAL (
			SELECT coalesce(sum(amount) FILTER (WHERE number IS NOT NULL), 0) AS asked,
			       coalesce(sum(amount) FILTER (WHERE number IS NOT NULL AND state IN ('succeeded', 'resolved')), 0) AS ours,
			       coalesce(sum(amount) FILTER (WHERE number IS NULL AND state NOT IN ('failed', 'canceled')), 0) AS others,
			       coalesce(bool_or(state = 'resolved'), false) AS by_hand
			FROM refunds WHERE purchase_id = p.id) r
		WHERE y.paid < r.ours + r.others AND NOT r.by_hand
		   OR p.state = 'refunded' AND y.paid > r.ours + r.others
		   OR p.state = 'refunding' AND y.paid > r.asked + r.others
		   OR (p.state = 'completed' OR ` + released + `) AND (r.asked > i.debt OR i.debt > r.asked + r.others)`},
	{Check: "refunded_payments", Name: "only captured money is refunded by card", SQL: `
		SELECT format('refund %s of purchase %s: its payment is %s', r.id, r.purchase_id, y.phase)
		FROM refunds r LEFT JOIN payments y ON y.purchase_id = r.purchase_id
		WHERE r.method = 'card' AND NOT coalesce(y.phase IN ('settled', 'refund_due') OR y.phase = 'captured' AND y.paid = y.amount OR r.number IS NULL AND y.received > 0, false)`},
	{Check: "due_items", Name: "an open payment and an open card refund are due sometime", SQL: `
		SELECT format('payment %s is %s', purchase_id, phase) FROM payments WHERE finished_at IS NULL AND due_at IS NULL
		UNION ALL SELECT format('refund %s is %s', id, state) FROM refunds
		WHERE method = 'card' AND number IS NOT NULL AND state IN ('open', 'pending', 'requires_action') AND due_at IS NULL`},
	{Check: "taken_back", Name: "a payment whose buyer took it back is given up or captured", SQL: `
		SELECT format('payment %s is %s', purchase_id, phase) FROM payments
		WHERE cancel_job IS NOT NULL AND phase NOT IN ('expiring', 'late', 'ended', 'cancelled', 'capturing', 'captured', 'refund_due')`},
}
