package approval

import "triprize/internal/platform/personal"

// ofPerson is a condition on a request t: it is about what ids selects, moves money there, or is about a new wallet of the user, of whose client the
// preview tells.
func ofPerson(ids string) string {
	return `t.target IN (SELECT o.id::text FROM (` + ids + `) o (id))
		OR t.path = '/v1/transfers' AND EXISTS (SELECT FROM unnest(ARRAY(SELECT o.id::text FROM (` + ids + `) o (id))) o (id) WHERE position(o.id IN t.preview::text) > 0)
		OR t.path = '/v1/wallets' AND (t.target = $3 OR t.target = $2 AND ($1::text IS NULL OR EXISTS (SELECT FROM json_array_elements(t.preview) f WHERE f ->> 'value' = $2 || ' of ' || $1)))`
}

// About selects the ids of requests about what ids selects, see [personal.Table].
func About(ids string) string { return `SELECT t.id FROM approvals t WHERE ` + ofPerson(ids) }

// Personal is what requests about what ids selects, and about new wallets, have of persons.
func Personal(ids string) []personal.Table {
	return []personal.Table{
		{Name: "approvals", Of: `t.state <> 'pending' AND (` + ofPerson(ids) + `)`, Open: `t.state = 'pending' AND (` + ofPerson(ids) + `)`, Omit: []string{"requester", "requested_by", "decided_by", "deciding"},
			Wipe: map[string]string{"target": `CASE t.target WHEN $2 THEN $3 ELSE t.target END`, "body": `NULL`, "preview": `'[]'`, "deciding": `'{}'`, "result": `NULL`,
				"requested_by": `(t.requested_by::jsonb - '{reason,target}'::text[])::json`, "decided_by": `(t.decided_by::jsonb - '{reason,target}'::text[])::json`},
			Why: "what another person has approved", Till: "never; its body 30 days"},
		{Name: "approval_movements", Of: `t.owner IN (SELECT w.client || E'\n' || w.owner_id FROM wallets w WHERE w.owner_id IN ($2, $3) AND ($1::text IS NULL OR w.client = $1))`, Gone: []string{"owner"},
			Why: "the threshold of approvals", Till: "a day"},
	}
}
