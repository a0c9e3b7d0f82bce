package webhook

import "triprize/internal/platform/personal"

const truncated = `json_build_object('type', t.type, 'timestamp', to_char(t.at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'), 'data', json_build_object('id', t.subject, 'truncated', true))`

// Recipients selects the clients and URLs of endpoints to which events about what ids selects were to be sent.
func Recipients(ids string) string {
	return `SELECT DISTINCT p.client, p.url FROM webhook_events e JOIN webhook_deliveries d ON d.event_id = e.id JOIN webhook_endpoints p ON p.id = d.endpoint_id
		WHERE e.subject IN (` + ids + `) AND ($1::text IS NULL OR e.client = $1)`
}

// Personal is what events about what ids selects have of persons. A message that is sent later has only the id of its resource, see message: what was
// rendered before its user was erased, and is stored after, must not replace it.
func Personal(ids string) []personal.Table {
	return []personal.Table{
		{Name: "webhook_attempts", Omit: []string{"error"}, Of: `t.event_id IN (SELECT e.id FROM webhook_events e WHERE e.subject IN (` + ids + `))`,
			Own:  `($1::text IS NULL OR EXISTS (SELECT FROM webhook_events e WHERE e.id = t.event_id AND e.client = $1))`,
			Wipe: map[string]string{"error": `CASE WHEN t.error IS NOT NULL THEN 'erased' END`}, Why: "what an endpoint has answered", Till: "retention.webhooks"},
		{Name: "webhook_events", Own: `($1::text IS NULL OR t.client = $1)`, Of: `t.subject IN (` + ids + `) OR t.payload #>> '{data,event,entry_id}' IN (SELECT o.id::text FROM (` + ids + `) o (id)) OR $2 IN (t.payload #>> '{data,user_id}', t.payload #>> '{data,owner_id}') AND ($1::text IS NULL OR t.client = $1)`, Wipe: map[string]string{"payload": truncated}, Why: "what an app was told", Till: "retention.webhooks"},
	}
}
