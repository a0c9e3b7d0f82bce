package job

import "triprize/internal/platform/audit"

// Invariants are those of jobs.
var Invariants = []audit.Invariant{
	{Check: "cancelled_twice", Name: "a purchase is cancelled by one job", SQL: `
		SELECT format('purchase %s, by %s jobs', payload ->> 'purchase_id', count(*))
		FROM jobs WHERE kind = 'cancellation' AND state = 'succeeded' AND result ->> 'state' <> 'completed'
		GROUP BY payload ->> 'purchase_id' HAVING count(*) > 1`},
}
