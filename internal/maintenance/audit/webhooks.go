package audit

// webhooks are the invariants of what apps are told. There are no foreign keys there.
var webhooks = []invariant{
	{check: "webhook_deliveries", name: "every delivery and every attempt has its event", sql: `
		SELECT format('event %s for endpoint %s', d.event_id, d.endpoint_id)
		FROM (SELECT event_id, endpoint_id FROM webhook_deliveries UNION SELECT event_id, endpoint_id FROM webhook_attempts) d
		LEFT JOIN webhook_events e ON e.id = d.event_id WHERE e.id IS NULL`},
	{check: "webhook_clients", name: "an endpoint hears of its own client's resources, and of what is everybody's", sql: `
		SELECT format('event %s of %s went to endpoint %s of %s', e.id, e.client, p.id, p.client)
		FROM webhook_deliveries d JOIN webhook_events e ON e.id = d.event_id JOIN webhook_endpoints p ON p.id = d.endpoint_id
		WHERE e.client <> p.client`},
	{check: "public_events", name: "only an event of a campaign is everybody's", sql: `
		SELECT format('event %s: %s', id, type) FROM webhook_events WHERE client IS NULL AND type NOT LIKE 'campaign.%'`},
	{check: "event_clients", name: "an event is its resource's client's", sql: `
		SELECT format('event %s of %s: its resource is %s''s', e.id, e.client, r.client)
		FROM webhook_events e JOIN (
			SELECT id, client, 'purchase' AS kind FROM purchases UNION ALL SELECT id, client, 'dispute' FROM purchases
			UNION ALL SELECT r.id, p.client, 'refund' FROM refunds r JOIN purchases p ON p.id = r.purchase_id
			UNION ALL SELECT id, client, 'hold' FROM holds
			UNION ALL SELECT id, client, 'job' FROM jobs UNION ALL SELECT id, client, 'wallet' FROM wallets
			UNION ALL SELECT id, client, 'webhook-endpoint' FROM webhook_endpoints) r ON r.id = e.subject AND r.kind = split_part(e.type, '.', 1)
		WHERE e.client <> r.client`},
	{check: "webhook_attempts", name: "what was delivered to an endpoint has arrived there", sql: `
		SELECT format('event %s for endpoint %s', d.event_id, d.endpoint_id)
		FROM webhook_deliveries d JOIN webhook_endpoints p ON p.id = d.endpoint_id
		WHERE d.state = 'delivered'
		  AND NOT EXISTS (SELECT FROM webhook_attempts a WHERE a.event_id = d.event_id AND a.endpoint_id = d.endpoint_id AND a.error IS NULL)`},
	{check: "webhook_messages", name: "a message says what its event is", sql: `
		SELECT format('event %s: %s, its message %s', id, type, payload ->> 'type')
		FROM webhook_events WHERE payload IS NOT NULL AND payload ->> 'type' IS DISTINCT FROM type`},
	{check: "webhook_secrets", name: "an endpoint has one present secret", sql: `
		SELECT format('endpoint %s has %s', p.id, s.n)
		FROM webhook_endpoints p CROSS JOIN LATERAL (SELECT count(*) AS n FROM webhook_secrets WHERE endpoint_id = p.id AND expires_at IS NULL) s
		WHERE p.deleted_at IS NULL AND s.n <> 1`},
}
