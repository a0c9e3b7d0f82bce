package job

import (
	"triprize/internal/domain/fault"
	"triprize/internal/platform/personal"
)

// OfPerson selects the ids of the jobs of a person, see [personal.Table].
const OfPerson = `SELECT j.id FROM jobs j WHERE j.user_id = $2 AND j.kind <> '` + string(KindErasure) + `' AND ($1::text IS NULL OR j.client = $1)`

// keptFor is how long a key is known after the acceptance at least: a request that is sent again has no second effect.
const keptFor = `interval '24 hours'`

// Personal is what jobs have of persons: those of the user, and commands about what ids selects. The key of one stays until the job expires, which is
// soon: a request that is sent again finds it, and not its hash.
func Personal(ids string) []personal.Table {
	about := ``
	for _, id := range []string{`t.payload ->> 'purchase_id'`, `t.result ->> 'purchase_id'`, `t.result ->> 'id'`, `t.result ->> 'wallet_id'`, `t.result ->> 'from'`, `t.result ->> 'to'`} {
		about += ` OR ` + id + ` IN (SELECT o.id::text FROM (` + ids + `) o (id))`
	}
	return []personal.Table{{Name: "jobs", Open: `t.user_id = $2 AND ($1::text IS NULL OR t.client = $1 OR t.payload ->> 'purchase_id' IN (SELECT o.id::text FROM (` + ids + `) o (id))) AND t.kind <> '` + string(KindErasure) + `' AND t.state NOT IN ('succeeded', 'failed')`,
		Of:  `t.state IN ('succeeded', 'failed') AND (t.user_id = $2 AND ($1::text IS NULL OR t.client = $1 OR t.payload ->> 'client' = $1)` + about + `)`,
		Own: `t.kind <> '` + string(KindApproval) + `'`, Omit: []string{"request_hash", "request_id", "traceparent"},
		Wipe: map[string]string{"user_id": `NULL`, "request_hash": `sha256(uuid_send(t.id))`, "payload": `NULL`, "progress": `NULL`, "result": `NULL`,
			"problem": `'{"code":"` + string(fault.Gone) + `","detail":"the user was erased"}'`},
		Else: []string{"idempotency_key"}, Also: `state = 'failed', expires_at = least(t.expires_at, t.accepted_at + ` + keptFor + `)`, Why: "what was requested, once", Till: "retention.jobs, retention.purchases"}}
}
