package campaign

import "triprize/internal/platform/audit"

// Invariants are those of campaigns, their layers and their rules.
var Invariants = []audit.Invariant{
	{Check: "layers", Name: "a campaign has as many positions as its layers together, and their numbers follow one another", SQL: `
		SELECT format('campaign %s has %s positions, its layers %s; layer %s begins with %s instead of %s', c.id, c.positions_total, l.total, l.layer, l.first, l.before + 1)
		FROM campaigns c CROSS JOIN LATERAL (
			SELECT layer, sum(n) OVER () AS total, first, n, sum(n) OVER (ORDER BY layer) - n AS before
			FROM (SELECT layer, positions AS n, first_number AS first FROM layers WHERE campaign_id = c.id) s) l
		WHERE l.total <> c.positions_total OR l.first <> l.before + 1`},
	{Check: "drawing_campaigns", Name: "a campaign is drawing or completed only when every position is sold, or the end of its sale has come that it is drawn at", SQL: `
		SELECT format('campaign %s is %s with %s of %s sold, %s reserved; it is drawn at %s, and its draw began at %s',
		              id, state, positions_sold, positions_total, positions_reserved, draws_at, draw_started_at)
		FROM campaigns WHERE state IN ('drawing', 'completed') AND positions_sold <> positions_total
		  AND NOT coalesce(positions_reserved = 0 AND draws_at <= draw_started_at, false)`},
	{Check: "draw_times", Name: "a campaign is drawn at the end of its sale exactly when its rules say so", SQL: `
		SELECT format('campaign %s is drawn at %s, and its rules say %s', c.id, c.draws_at, m.rules::jsonb -> 'unsold')
		FROM campaigns c LEFT JOIN commitments m ON m.campaign_id = c.id
		WHERE (m.rules::jsonb -> 'unsold' ->> 'ends_at')::timestamptz IS DISTINCT FROM c.draws_at`},
	// An earlier release accepted unsold: draw and did nothing about it: the invariant above is
	// all that can be said of it.
	{Check: "draw_promises", Name: "the rules of a published campaign name the beacon that its policies promise", SQL: `
		SELECT format('campaign %s has the policies %s, and its rules say: beacon %s', c.id, c.policies, m.rules::jsonb -> 'beacon')
		FROM campaigns c JOIN commitments m ON m.campaign_id = c.id
		WHERE c.policies ->> 'beacon' = 'true' AND coalesce(m.rules::jsonb -> 'beacon', 'null') = 'null'`},
	{Check: "sold_out_campaigns", Name: "a sold-out campaign is no longer on sale", SQL: `
		SELECT format('campaign %s', id) FROM campaigns WHERE state = 'active' AND positions_sold = positions_total`},
	{Check: "cancelled_campaigns", Name: "a campaign whose cancellation has succeeded is cancelled, and nothing of it is sold", SQL: `
		SELECT format('job %s, campaign %s is %s with %s sold', j.id, c.id, c.state, c.positions_sold)
		FROM jobs j JOIN campaigns c ON c.id = j.campaign_id
		WHERE j.kind = 'campaign-cancellation' AND j.state = 'succeeded' AND (c.state <> 'cancelled' OR c.positions_sold <> 0)`},
}
