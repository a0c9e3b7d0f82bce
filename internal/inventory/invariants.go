package inventory

import "triprize/internal/platform/audit"

// Invariants are those of positions and holds.
var Invariants = []audit.Invariant{
	{Check: "counters", Name: "the counters of a campaign equal its rows", SQL: `
		SELECT format('campaign %s counts %s sold, %s reserved, %s blocked of %s; its rows are %s, %s, %s of %s', c.id,
		              c.positions_sold, c.positions_reserved, c.positions_blocked, c.positions_total, r.sold, r.reserved, r.blocked, r.total)
		FROM campaigns c CROSS JOIN LATERAL (
			SELECT count(*) AS total, count(*) FILTER (WHERE state = 'sold') AS sold,
			       count(*) FILTER (WHERE state IN ('held', 'reserved')) AS reserved,
			       count(*) FILTER (WHERE state = 'blocked') AS blocked
			FROM positions p WHERE p.campaign_id = c.id) r
		WHERE c.state <> 'pending' AND c.published_at IS NOT NULL
		  AND (c.positions_sold, c.positions_reserved, c.positions_blocked, c.positions_total) IS DISTINCT FROM (r.sold, r.reserved, r.blocked, r.total)`},
	// The rules are read once: read again for each layer, a campaign of 1,000 layers takes minutes.
	{Check: "layer_positions", Name: "a layer of a published campaign has its positions, in the columns 1 to their number, as the rules say", SQL: `
		WITH r AS MATERIALIZED (
			SELECT campaign_id, x.layer, x.positions FROM commitments, jsonb_to_recordset(rules::jsonb -> 'layers') AS x (layer int, positions int))
		SELECT format('campaign %s, layer %s: %s positions, the rules say %s; it has %s, up to column %s', l.campaign_id, l.layer, l.n, r.positions, p.n, p.last)
		FROM (SELECT campaign_id, layer, positions AS n FROM layers) l JOIN campaigns c ON c.id = l.campaign_id
		LEFT JOIN commitments m ON m.campaign_id = c.id
		LEFT JOIN r ON r.campaign_id = l.campaign_id AND r.layer = l.layer
		CROSS JOIN LATERAL (SELECT count(*) AS n, max(col) AS last FROM positions WHERE campaign_id = l.campaign_id AND layer = l.layer) p
		WHERE c.state <> 'pending' AND c.published_at IS NOT NULL
		  AND ((l.n, l.n) IS DISTINCT FROM (p.n, p.last) OR m.campaign_id IS NOT NULL AND l.n IS DISTINCT FROM r.positions)`},
	{Check: "board_versions", Name: "no position has changed at a version that its board has not reached", SQL: `
		SELECT format('position %s/%s/%s: %s, the board is at %s', p.campaign_id, p.layer, p.col, p.board_version, c.board_version)
		FROM positions p JOIN campaigns c ON c.id = p.campaign_id WHERE p.board_version > c.board_version`},
	{Check: "held_positions", Name: "a held position belongs to an active hold of its owner, with its deadline", SQL: `
		SELECT format('position %s/%s/%s', s.campaign_id, s.layer, s.col)
		FROM positions s LEFT JOIN holds h ON h.id = s.hold_id
		WHERE s.state = 'held'
		  AND (h.state, h.campaign_id, h.user_id, h.expires_at) IS DISTINCT FROM ('active', s.campaign_id, s.user_id, s.expires_at)`},
	{Check: "holds", Name: "an active hold keeps exactly its positions, and an ended hold none", SQL: `
		SELECT format('hold %s is %s with %s positions and keeps %s', h.id, h.state, h.size, k.n)
		FROM holds h CROSS JOIN LATERAL (
			SELECT count(*) AS n, count(*) FILTER (WHERE p.layer IS NOT NULL) AS listed
			FROM positions s LEFT JOIN jsonb_to_recordset(h.positions) AS p (layer int, "column" int) ON p.layer = s.layer AND p."column" = s.col
			WHERE s.campaign_id = h.campaign_id AND s.hold_id = h.id) k
		WHERE (k.n, k.listed) IS DISTINCT FROM (CASE WHEN h.state = 'active' THEN h.size ELSE 0 END, CASE WHEN h.state = 'active' THEN h.size ELSE 0 END)`},
	{Check: "purchase_limits", Name: "no user has more positions than the limit", SQL: `
		SELECT format('the user of purchase or hold %s has %s of %s in campaign %s', max(coalesce(s.purchase_id, s.hold_id)::text), count(*), c.purchase_limit, c.id)
		FROM campaigns c JOIN positions s ON s.campaign_id = c.id
		WHERE s.user_id IS NOT NULL AND c.purchase_limit IS NOT NULL
		GROUP BY c.id, c.purchase_limit, s.user_id HAVING count(*) > c.purchase_limit`},
	{Check: "cancelled_holds", Name: "a cancelled campaign has no active holds", SQL: `
		SELECT format('hold %s of campaign %s', h.id, c.id)
		FROM campaigns c JOIN holds h ON h.campaign_id = c.id WHERE c.state = 'cancelled' AND h.state = 'active'`},
}
