package wallet

import "triprize/internal/platform/audit"

// Invariants are those of money. Entries and events are the truth; everything else about wallets is
// computed again from them.
var Invariants = []audit.Invariant{
	{Check: "wallets", Name: "a wallet is what its events add up to, and their versions have no gap", SQL: `
		SELECT format('wallet %s has version %s, balance %s, held %s; its %s events from %s to %s give %s, %s',
		              w.id, w.version, w.balance, w.held, e.n, e.first, e.last, e.balance, e.held)
		FROM wallets w CROSS JOIN LATERAL (
			SELECT count(*) AS n, coalesce(min(version), 1) AS first, coalesce(max(version), 0) AS last,
			       coalesce(sum(delta_balance), 0) AS balance, coalesce(sum(delta_held), 0) AS held
			FROM wallet_events WHERE wallet_id = w.id) e
		WHERE (w.version, w.version, 1, w.balance, w.held) IS DISTINCT FROM (e.n, e.last, e.first, e.balance, e.held)`},
	{Check: "wallet_minimum", Name: "at no version a wallet has less than nothing, or less than it holds", SQL: `
		SELECT format('wallet %s at version %s: balance %s, held %s', wallet_id, version, balance, held)
		FROM (SELECT wallet_id, version, sum(delta_balance) OVER upward AS balance, sum(delta_held) OVER upward AS held
		      FROM wallet_events WINDOW upward AS (PARTITION BY wallet_id ORDER BY version)) s
		WHERE balance < 0 OR held < 0 OR held > balance`},
	{Check: "ledger_entries", Name: "every entry has exactly its event in each wallet it touches, and no event is without an entry", SQL: `
		SELECT format('entry %s, wallet %s: balance %s, held %s; its event has %s, %s',
		              coalesce(m.entry_id, v.entry_id), coalesce(m.wallet_id, v.wallet_id),
		              m.delta_balance, m.delta_held, v.delta_balance, v.delta_held)
		FROM (SELECT id AS entry_id, debit_wallet AS wallet_id,
		             CASE WHEN kind IN ('authorize', 'void', 'expire') THEN 0 ELSE -amount END AS delta_balance,
		             CASE kind WHEN 'authorize' THEN amount WHEN 'void' THEN -amount WHEN 'expire' THEN -amount
		                       WHEN 'capture' THEN -amount ELSE 0 END AS delta_held
		      FROM ledger_entries WHERE debit_wallet IS NOT NULL
		      UNION ALL SELECT id, credit_wallet, amount, 0 FROM ledger_entries WHERE credit_wallet IS NOT NULL) m
		FULL JOIN wallet_events v ON v.entry_id = m.entry_id AND v.wallet_id = m.wallet_id
		WHERE (m.delta_balance, m.delta_held) IS DISTINCT FROM (v.delta_balance, v.delta_held)`},
	{Check: "wallet_snapshots", Name: "a snapshot is what the events up to its version add up to", SQL: `
		SELECT format('wallet %s at version %s: balance %s, held %s; its events give %s, %s', s.wallet_id, s.version, s.balance, s.held, e.balance, e.held)
		FROM wallet_snapshots s LEFT JOIN (
			SELECT wallet_id, version, sum(delta_balance) OVER upward AS balance, sum(delta_held) OVER upward AS held
			FROM wallet_events WINDOW upward AS (PARTITION BY wallet_id ORDER BY version)) e USING (wallet_id, version)
		WHERE (s.balance, s.held) IS DISTINCT FROM (e.balance, e.held)`},
	{Check: "ledger_sum", Name: "in every currency what wallets have and what accounts have is zero together", SQL: `
		SELECT format('%s of %s are too many', sum(amount), currency)
		FROM (SELECT currency, balance AS amount FROM wallets
		      UNION ALL SELECT currency, amount FROM ledger_entries
		      WHERE credit_account IS NOT NULL AND kind NOT IN ('authorize', 'void', 'expire')
		      UNION ALL SELECT currency, -amount FROM ledger_entries
		      WHERE debit_account IS NOT NULL AND kind NOT IN ('authorize', 'void', 'expire')) a
		GROUP BY currency HAVING sum(amount) <> 0`},
	{Check: "entry_currencies", Name: "an entry is in the currency of its wallets", SQL: `
		SELECT format('entry %s in %s, wallet %s', e.id, e.currency, s.wallet_id)
		FROM ledger_entries e CROSS JOIN LATERAL (VALUES (e.debit_wallet), (e.credit_wallet)) s (wallet_id)
		LEFT JOIN wallets w ON w.id = s.wallet_id
		WHERE s.wallet_id IS NOT NULL AND w.currency IS DISTINCT FROM e.currency`},
	{Check: "held_money", Name: "a wallet holds what its active authorizations have left", SQL: `
		SELECT format('wallet %s holds %s; its active authorizations have %s left', w.id, w.held, a.remaining)
		FROM wallets w CROSS JOIN LATERAL (
			SELECT coalesce(sum(amount - captured), 0) AS remaining
			FROM authorizations WHERE wallet_id = w.id AND state = 'active') a
		WHERE w.held <> a.remaining`},
	{Check: "authorizations", Name: "an authorization is what its entries made of it", SQL: `
		SELECT format('authorization %s of wallet %s: %s of %s captured, %s; by its entries %s of %s', coalesce(a.id, e.id),
		              coalesce(a.wallet_id, e.wallet_id), a.captured, a.amount, a.state, e.captured, e.amount)
		FROM authorizations a FULL JOIN (
			SELECT authorization_id AS id, debit_wallet AS wallet_id,
			       coalesce(sum(amount) FILTER (WHERE kind = 'authorize'), 0) AS amount,
			       coalesce(sum(amount) FILTER (WHERE kind = 'capture'), 0) AS captured,
			       coalesce(sum(amount) FILTER (WHERE kind = 'void'), 0) AS voided,
			       coalesce(sum(amount) FILTER (WHERE kind = 'expire'), 0) AS expired
			FROM ledger_entries WHERE authorization_id IS NOT NULL GROUP BY 1, 2) e ON e.id = a.id AND e.wallet_id = a.wallet_id
		WHERE (a.amount, a.captured) IS DISTINCT FROM (e.amount, e.captured)
		   OR e.voided <> CASE a.state WHEN 'voided' THEN a.amount - a.captured ELSE 0 END
		   OR e.expired <> CASE a.state WHEN 'expired' THEN a.amount - a.captured ELSE 0 END`},
	{Check: "wallet_payments", Name: "what a wallet paid for a purchase of its client, and got back for a cancelled one or a part of one, is one entry each, and none is without its purchase", SQL: `
		SELECT format('%s of wallet %s over %s %s: entry %s; %s: purchase %s over %s %s', coalesce(e.kind, m.kind),
		              e.wallet_id, e.amount, e.currency, e.id, coalesce(e.reference, m.reference), m.id, m.amount, m.currency)
		FROM (SELECT id, CASE WHEN nonce IS NOT NULL THEN user_id END AS user_id, client, amount, currency, 'purchase' AS kind, '' AS scope, 'purchase:' || id AS reference, payment_reference AS entry_id
		      FROM purchases WHERE payment_method = 'wallet' AND state IN ('completed', 'cancelled')
		      UNION ALL
		      SELECT id, CASE WHEN nonce IS NOT NULL THEN user_id END, client, (SELECT sum(price) FROM purchase_items WHERE purchase_id = p.id), currency, 'refund', '', 'refund:' || id, NULL
		      FROM purchases p WHERE payment_method = 'wallet' AND state = 'cancelled'
		      UNION ALL
		      SELECT id, CASE WHEN nonce IS NOT NULL THEN user_id END, client, (part ->> 'amount')::bigint, currency, 'refund', '', 'refund:' || id || ':' || (part ->> 'job_id'), NULL
		      FROM purchases, jsonb_array_elements(partial_cancellations) AS part WHERE payment_method = 'wallet') m
		FULL JOIN (
			SELECT l.id, l.kind, l.scope, l.reference, l.amount, l.currency, l.purchase_id, w.id AS wallet_id, w.owner_id, w.client
			FROM ledger_entries l LEFT JOIN wallets w ON w.id = coalesce(l.debit_wallet, l.credit_wallet)
			WHERE l.kind IN ('purchase', 'refund')) e USING (kind, scope, reference)
		WHERE (coalesce(m.user_id, e.owner_id), m.client, m.amount, m.currency, m.id) IS DISTINCT FROM (e.owner_id, e.client, e.amount, e.currency, e.purchase_id)
		   OR m.kind = 'purchase' AND m.entry_id IS DISTINCT FROM e.id::text`},
}
