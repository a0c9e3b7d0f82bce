package campaign

import "time"

// WaitKind is what a campaign waits for.
type WaitKind string

// The kinds of waits.
const (
	WaitsForPayments WaitKind = "payments" // of purchases, after the end of the sale
	WaitsForDraw     WaitKind = "draw"     // which waits itself, for the round of the beacon or to try again
)

// Wait is what a campaign waits for after its sale, until it is drawn.
type Wait struct {
	Kind   WaitKind   `json:"kind"`
	Count  int        `json:"count"`  // of payments
	Reason string     `json:"reason"` // of a draw
	Until  *time.Time `json:"until"`  // later only while the provider does not answer; nil: money is being taken, which ends when it ends
}

// waiting is the Wait of a campaign, or null. It looks at payments only when the sale has ended.
// One that is late has no positions any more.
const waiting = `CASE
	WHEN state = 'active' AND sale_ends_at <= (SELECT clock_timestamp()) THEN (
		SELECT jsonb_build_object('kind', 'payments', 'count', count(*), 'until', CASE WHEN NOT bool_or(phase = 'capturing')
		       THEN max(CASE WHEN phase = 'expiring' THEN latest WHEN phase NOT IN ('captured', 'ended') THEN over_at END) END)
		FROM payments WHERE campaign_id = campaigns.id AND finished_at IS NULL AND phase <> 'late' HAVING count(*) > 0)
	WHEN state = 'drawing' THEN (
		SELECT jsonb_build_object('kind', 'draw', 'reason', reason, 'until', retry_at) FROM draw_waits WHERE campaign_id = campaigns.id)
	END`
