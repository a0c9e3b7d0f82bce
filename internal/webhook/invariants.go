package webhook

import "triprize/internal/platform/audit"

// Invariants are those of webhooks. There are no foreign keys there.
var Invariants = []audit.Invariant{
	{Check: "webhook_deliveries", Name: "every delivery and every attempt has its event", SQL: `
		SELECT format('event %s for endpoint %s', d.event_id, d.endpoint_id)
		FROM (SELECT event_id, endpoint_id FROM webhook_deliveries UNION SELECT event_id, endpoint_id FROM webhook_attempts) d
		LEFT JOIN webhook_events e ON e.id = d.event_id WHERE e.id IS NULL`},
	{Check: "webhook_clients", Name: "an endpoint hears of its own client's resources, and of what is everybody's", SQL: `
		SELECT format('event %s of %s went to endpoint %s of %s', e.id, e.client, p.id, p.client)
		FROM webhook_deliveries d JOIN webhook_events e ON e.id = d.event_id JOIN webhook_endpoints p ON p.id = d.endpoint_id
		WHERE e.client <> p.client`},
	{Check: "public_events", Name: "only an event of a campaign is everybody's", SQL: `
		SELECT format('event %s: %s', id, type) FROM webhook_events WHERE client IS NULL AND type NOT LIKE 'campaign.%'`},
	{Check: "event_clients", Name: "an event is its resource's client's", SQL: `
		SELECT format('event %s of %s: its resource is %s''s', e.id, e.client, r.client)
		FROM webhook_events e JOIN (
			SELECT id, client, 'purchase' AS kind FROM purchases UNION ALL SELECT id, client, 'dispute' FROM purchases
			UNION ALL SELECT r.id, p.client, 'refund' FROM refunds r JOIN purchases p ON p.id = r.purchase_id
			UNION ALL SELECT id, client, 'hold' FROM holds
			UNION ALL SELECT id, client, 'job' FROM jobs UNION ALL SELECT id, client, 'wallet' FROM wallets
			UNION ALL SELECT id, client, 'webhook-endpoint' FROM webhook_endpoints) r ON r.id = e.subject AND r.kind = split_part(e.type, '.', 1)
		WHERE e.client <> r.client`},
	{Check: "webhook_attempts", Name: "what was delivered to an endpoint has arrived there", SQL: `
		SELECT format('event %s for endpoint %s', d.event_id, d.endpoint_id)
		FROM webhook_deliveries d JOIN webhook_endpoints p ON p.id = d.endpoint_id
		WHERE d.state = 'delivered'
		  AND NOT EXISTS (SELECT FROM webhook_attempts a WHERE a.event_id = d.event_id AND a.endpoint_id = d.endpoint_id AND a.error IS NULL)`},
	{Check: "webhook_messages", Name: "a message says what its event is", SQL: `
		SELECT format('event %s: %s, its message %s', id, type, payload ->> 'type')
		FROM webhook_events WHERE payload IS NOT NULL AND payload ->> 'type' IS DISTINCT FROM type`},
	{Check: "webhook_secrets", Name: "an endpoint has one present secret", SQL: `
		SELECT format('endpoint %s has %s', p.id, s.n)
		FROM webhook_endpoints p CROSS JOIN LATERAL (SELECT count(*) AS n FROM webhook_secrets WHERE endpoint_id = p.id AND expires_at IS NULL) s
		WHERE p.deleted_at IS NULL AND s.n <> 1`},
}
