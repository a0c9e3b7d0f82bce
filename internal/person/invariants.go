package person

import (
	"triprize/internal/platform/audit"
	"triprize/internal/platform/keyring"
)

// Invariants are those of erasures. Without a key there are none. No sweep checks them: schedulers have no key, and what
// is erased comes back from a backup only.
func Invariants(hasher keyring.Hasher) []audit.Invariant {
	if len(hasher) == 0 {
		return nil
	}
	return []audit.Invariant{{Check: "erased_users", Key: hasher.Pads(), Name: "no row names a user who was erased after it was made", SQL: `
		SELECT format('%s %s: its user was erased at %s', r.what, r.id, e.finished_at)
		FROM (SELECT 'purchase' AS what, id, client, user_id, created_at AS at FROM purchases
		      UNION ALL SELECT 'hold', id, client, user_id, created_at FROM holds
		      UNION ALL SELECT 'wallet', id, client, owner_id, created_at FROM wallets
		      UNION ALL SELECT 'job', id, client, user_id, accepted_at FROM jobs WHERE user_id IS NOT NULL AND kind <> 'erasure') r
		CROSS JOIN LATERAL (SELECT finished_at FROM erasures
			WHERE hash = ANY(ARRAY(SELECT erased_hashes(r.user_id))) AND finished_at > r.at AND (client IS NULL OR client = r.client) LIMIT 1) e
		WHERE EXISTS (SELECT FROM erasures WHERE finished_at IS NOT NULL)`}}
}
