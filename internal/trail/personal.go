package trail

import "triprize/internal/platform/personal"

// erase is the operation whose entry keeps its reason.
const erase = "eraseUser"

// isUser is a condition on a text x of an entry a: it is the user id $2, where one stands.
const isUser = `CASE WHEN 'sha256:' || encode(x.hash, 'hex') IN (a.after ->> 'user_id', a.after ->> 'owner_id', a.before ->> 'user_id', a.before ->> 'owner_id')
	THEN x.text::json #>> '{}' = $2 ELSE false END`

// Personal is what the trail has of persons: the texts of entries about what ids selects, and of those that name the user.
func Personal(ids string) []personal.Table {
	return []personal.Table{{Name: "audit_texts", Omit: []string{"salt", "hash"}, Gone: []string{"salt", "text"}, Why: "what operators have changed, and why", Till: "never",
		Of: `t.entry_id IN (
			SELECT a.id FROM audit_trail a WHERE a.target IN (SELECT o.id::text FROM (` + ids + `) o (id))
			UNION SELECT x.entry_id FROM audit_texts x JOIN audit_trail a ON a.id = x.entry_id
			WHERE ` + isUser + ` AND a.operation <> '` + erase + `' AND ($1::text IS NULL OR coalesce(a.after ->> 'client', a.before ->> 'client', a.client) = $1))`}}
}
