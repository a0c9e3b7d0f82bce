package audit

// cancelledCampaigns is the invariants of cancelled campaigns and of refunds that are not by card.
var cancelledCampaigns = []invariant{
	{check: "cancelled_holds", name: "a cancelled campaign has no active holds", sql: `
		SELECT format('hold %s of campaign %s', h.id, c.id)
		FROM campaigns c JOIN holds h ON h.campaign_id = c.id WHERE c.state = 'cancelled' AND h.state = 'active'`},
	{check: "cancelled_campaigns", name: "a campaign whose cancellation has succeeded is cancelled, and nothing of it is sold", sql: `
		SELECT format('job %s, campaign %s is %s with %s sold', j.id, c.id, c.state, c.positions_sold)
		FROM jobs j JOIN campaigns c ON c.id = j.campaign_id
		WHERE j.kind = 'campaign-cancellation' AND j.state = 'succeeded' AND (c.state <> 'cancelled' OR c.positions_sold <> 0)`},
	{check: "wallet_refunds", name: "a purchase by wallet or external has a refund of each cancelled part, and of the rest when it is cancelled, to its buyer, and no other has one", sql: `
		SELECT format('purchase %s by %s of %s over %s %s is %s; refunds by %s to %s over %s %s', coalesce(p.id, r.purchase_id), p.payment_method, p.user_id,
		              p.cancelled, p.currency, p.state, r.method, r.user_id, r.amounts, r.currency)
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
}
