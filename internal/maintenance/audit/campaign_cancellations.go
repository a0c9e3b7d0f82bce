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
	{check: "wallet_refunds", name: "a refund by wallet or by the app is of a cancelled purchase, of the price of its items to its buyer", sql: `
		SELECT format('refund %s by %s to %s over %s %s; purchase %s by %s of %s over %s %s is %s', r.id, r.method, r.user_id, r.amount, r.currency,
		              r.purchase_id, p.payment_method, p.user_id, i.price, p.currency, p.state)
		FROM refunds r LEFT JOIN purchases p ON p.id = r.purchase_id
		CROSS JOIN LATERAL (SELECT sum(price) AS price FROM purchase_items WHERE purchase_id = r.purchase_id) i
		WHERE r.method <> 'card'
		  AND (r.method, r.campaign_id, r.user_id, r.amount, r.currency, 'cancelled')
		      IS DISTINCT FROM (p.payment_method, p.campaign_id, p.user_id, i.price, p.currency, p.state)`},
}
