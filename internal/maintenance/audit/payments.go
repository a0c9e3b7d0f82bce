package audit

// payments is the invariants of purchases by card: payments and refunds here, not what the
// provider says. The comparison with the provider's own list is another matter.
var payments = []invariant{
	{check: "payments", name: "a purchase by card has its payment, and no other purchase has one", sql: `
		SELECT format('purchase %s of job %s by %s: %s %s; payment of job %s: %s %s', coalesce(p.id, y.purchase_id), p.job_id, p.payment_method,
		              p.amount, p.currency, y.job_id, y.amount, y.currency)
		FROM (SELECT * FROM purchases WHERE payment_method = 'card') p FULL JOIN payments y ON y.purchase_id = p.id
		WHERE (p.id, p.job_id, p.campaign_id, p.amount, p.currency)
		      IS DISTINCT FROM (y.purchase_id, y.job_id, y.campaign_id, y.amount, y.currency)`},
	{check: "unpaid_purchases", name: "a purchase that waits for its payment is paid by card", sql: `
		SELECT format('purchase %s is %s, by %s', id, state, payment_method)
		FROM purchases WHERE state IN ('pending', 'awaiting_action') AND payment_method <> 'card'`},
	{check: "payment_positions", name: "an open payment keeps the positions of its purchase until they are released, and a finished one keeps none", sql: `
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
	{check: "reservations", name: "a reserved position belongs to an open payment", sql: `
		SELECT format('position %s/%s/%s, payment %s', s.campaign_id, s.layer, s.col, y.phase)
		FROM positions s LEFT JOIN payments y ON y.purchase_id = s.purchase_id
		WHERE s.state = 'reserved' AND (y.finished_at IS NOT NULL OR y.purchase_id IS NULL)`},
	{check: "payment_purchases", name: "a purchase is what its payment has made of it", sql: `
		SELECT format('payment %s is %s, its purchase is %s, completed at %s', y.purchase_id, y.phase, p.state, p.completed_at)
		FROM payments y JOIN purchases p ON p.id = y.purchase_id
		WHERE NOT CASE y.phase
			WHEN 'settled' THEN p.state IN ('completed', 'refunding', 'refunded') AND p.completed_at IS NOT NULL
			WHEN 'refund_due' THEN p.state IN ('refunding', 'refunded') AND p.completed_at IS NULL
			WHEN 'cancelled' THEN p.state IN ('failed', 'cancelled') AND p.completed_at IS NULL
			WHEN 'captured' THEN p.state <> 'completed' AND p.completed_at IS NULL
			ELSE p.state IN ('pending', 'awaiting_action') AND p.completed_at IS NULL END`},
	{check: "next_actions", name: "a purchase that waits for its buyer says how to go on, and so does its job", sql: `
		SELECT format('payment %s is %s with %s; purchase %s, job %s with %s', y.purchase_id, y.phase, y.next_action, p.state, j.state, j.progress)
		FROM payments y JOIN purchases p ON p.id = y.purchase_id LEFT JOIN jobs j ON j.id = y.job_id
		WHERE y.phase = 'action' AND y.next_action IS NULL
		   OR y.phase IN ('action', 'declined') AND (p.state <> 'awaiting_action' OR j.state IS DISTINCT FROM 'awaiting_action')
		   OR (p.state = 'awaiting_action') <> (coalesce(j.state, '') = 'awaiting_action')
		   OR j.state = 'awaiting_action' AND CASE y.phase WHEN 'declined' THEN j.progress -> 'next_action' -> 'decline' ->> 'code'
		                                                   ELSE j.progress -> 'next_action' ->> 'url' END IS NULL`},
	{check: "waiting_jobs", name: "only a job whose payment is open waits for a buyer", sql: `
		SELECT format('job %s, payment %s', j.id, y.phase)
		FROM jobs j LEFT JOIN payments y ON y.job_id = j.id
		WHERE j.state = 'awaiting_action' AND (y.purchase_id IS NULL OR y.finished_at IS NOT NULL)`},
	{check: "payment_jobs", name: "the job of a payment is open as long as its purchase, and ends with it", sql: `
		SELECT format('payment %s is %s, its purchase %s, its job %s is %s', y.purchase_id, y.phase, p.state, j.id, j.state)
		FROM payments y JOIN purchases p ON p.id = y.purchase_id JOIN jobs j ON j.id = y.job_id
		WHERE j.purchase_id IS DISTINCT FROM y.purchase_id OR j.kind <> 'purchase'
		   OR (j.state IN ('queued', 'awaiting_action')) <> (p.state IN ('pending', 'awaiting_action'))
		   OR y.phase = 'settled' AND j.state <> 'succeeded' OR y.phase IN ('refund_due', 'cancelled') AND j.state <> 'failed'`},
	{check: "unpaid_jobs", name: "a purchase that waits for its payment has its job", sql: `
		SELECT format('purchase %s', p.id) FROM purchases p
		WHERE p.state IN ('pending', 'awaiting_action') AND NOT EXISTS (SELECT FROM jobs j WHERE j.id = p.job_id)`},
	{check: "waiting_cancellations", name: "a cancellation waits for the open payment that ends with it, and for no other", sql: `
		SELECT format('cancellation %s is %s, for purchase %s; payment %s is %s and ends with %s', j.id, j.state, j.purchase_id, y.purchase_id, y.phase, y.cancel_job)
		FROM (SELECT * FROM jobs WHERE kind = 'cancellation' AND purchase_id IS NOT NULL) j
		FULL JOIN (SELECT * FROM payments WHERE cancel_job IS NOT NULL) y ON y.cancel_job = j.id
		LEFT JOIN purchases p ON p.id = y.purchase_id
		WHERE j.id IS NOT NULL AND (y.purchase_id IS DISTINCT FROM j.purchase_id OR j.payload ->> 'purchase_id' <> j.purchase_id::text)
		   OR j.id IS NOT NULL AND (j.state = 'queued') <> coalesce(p.state IN ('pending', 'awaiting_action'), false)
		   OR j.id IS NULL AND p.state IN ('pending', 'awaiting_action')
		   OR j.state = 'failed'`},
	{check: "card_refunds", name: "a card purchase that is given back, in whole or in part, has refunds of ours to its buyer, and no other has one", sql: `
		SELECT format('purchase %s of %s in %s is %s; refund %s to %s in %s', coalesce(p.id, r.purchase_id), p.user_id, p.currency, p.state, r.id, r.user_id, r.currency)
		FROM (WITH few AS MATERIALIZED (SELECT * FROM purchases WHERE state IN ('refunding', 'refunded') OR payment_method = 'card' AND partial_cancellations IS NOT NULL) SELECT * FROM few) p
		FULL JOIN (SELECT * FROM refunds WHERE method = 'card' AND number IS NOT NULL) r ON r.purchase_id = p.id
		WHERE (p.id, p.campaign_id, p.user_id, p.currency) IS DISTINCT FROM (r.purchase_id, r.campaign_id, r.user_id, r.currency)`},
	{check: "finished_refunds", name: "a purchase is refunded when its refunds are finished, and not before", sql: `
		SELECT format('purchase %s is %s, its refund %s is %s', p.id, p.state, r.id, r.state)
		FROM (SELECT *, bool_and(finished_at IS NOT NULL) OVER (PARTITION BY purchase_id) AS finished FROM refunds
		      WHERE method = 'card' AND number IS NOT NULL) r JOIN purchases p ON p.id = r.purchase_id
		WHERE (p.state = 'refunded') <> r.finished AND p.state <> 'completed'`},
	// Money is given back twice only when somebody has said so of a refund that was then made, too. What is
	// not asked for is a refund of others that has failed since.
	{check: "captured_money", name: "what a card has paid is kept, given back by us, or given back out of band", sql: `
		SELECT format('purchase %s is %s; captured %s, given back by us %s, out of band %s, asked for by us %s', p.id, p.state, y.received, r.ours, r.others, r.asked)
		FROM payments y JOIN purchases p ON p.id = y.purchase_id
		CROSS JOIN LATERAL (SELECT p.amount - sum(price) AS debt FROM purchase_items WHERE purchase_id = p.id) i
		CROSS JOIN LATERAL (
			SELECT coalesce(sum(amount) FILTER (WHERE number IS NOT NULL), 0) AS asked,
			       coalesce(sum(amount) FILTER (WHERE number IS NOT NULL AND finished_at IS NOT NULL), 0) AS ours,
			       coalesce(sum(amount) FILTER (WHERE number IS NULL AND state NOT IN ('failed', 'canceled')), 0) AS others,
			       coalesce(bool_or(state = 'resolved'), false) AS by_hand
			FROM refunds WHERE purchase_id = p.id) r
		WHERE y.received < r.ours + r.others AND NOT r.by_hand
		   OR p.state = 'refunded' AND y.received > r.ours + r.others
		   OR p.state = 'refunding' AND y.received > r.asked + r.others
		   OR p.state = 'completed' AND (r.asked > i.debt OR i.debt > r.asked + r.others)`},
	{check: "refunded_payments", name: "only captured money is refunded by card", sql: `
		SELECT format('refund %s of purchase %s: its payment is %s', r.id, r.purchase_id, y.phase)
		FROM refunds r LEFT JOIN payments y ON y.purchase_id = r.purchase_id
		WHERE r.method = 'card' AND NOT coalesce(y.phase IN ('settled', 'refund_due') OR y.phase = 'captured' AND y.received = y.amount OR r.number IS NULL AND y.received > 0, false)`},
	{check: "due_items", name: "an open payment and an open card refund are due sometime", sql: `
		SELECT format('payment %s is %s', purchase_id, phase) FROM payments WHERE finished_at IS NULL AND due_at IS NULL
		UNION ALL SELECT format('refund %s is %s', id, state) FROM refunds
		WHERE method = 'card' AND number IS NOT NULL AND state IN ('open', 'pending', 'requires_action') AND due_at IS NULL`},
	{check: "taken_back", name: "a payment whose buyer took it back is given up or captured", sql: `
		SELECT format('payment %s is %s', purchase_id, phase) FROM payments
		WHERE cancel_job IS NOT NULL AND phase NOT IN ('expiring', 'late', 'ended', 'cancelled', 'capturing', 'captured', 'refund_due')`},
}
