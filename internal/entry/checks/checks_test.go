package checks_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"triprize/internal/entry/checks"
	"triprize/internal/payment"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

func TestMain(m *testing.M) { servers.Main(m) }

// What the api judges is what Prometheus compares with a bound. Where cards are switched off, operators see what waits for
// them all the same. An invariant that nobody has checked has no value.
func TestAValueIsJudgedByTheExpressionOfItsAlert(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := fixture.Campaign(t, db, fixture.Draft(4))
	for _, reason := range []payment.BlockedReason{payment.WaitsForOperator, payment.WaitsForKey, payment.WaitsForKey} {
		bought, _ := fixture.Reserve(t, db, id, "mina", 1, time.Hour)
		servers.Exec(t, db, `UPDATE payments SET waiting_for = $2, waiting_since = clock_timestamp() WHERE purchase_id = $1`, bought, reason)
	}
	for _, state := range []string{"failed", "requires_action"} { // what needs an action waits for its buyer
		returned, _ := fixture.BuyByCard(t, db, id, "otto", 0, 1)
		servers.Exec(t, db, `INSERT INTO refunds (id, purchase_id, number, campaign_id, user_id, method, amount, currency, reason, state)
			SELECT gen_random_uuid(), id, 1, campaign_id, user_id, 'card', amount, currency, 'cancelled', $2 FROM purchases WHERE id = $1`, returned, state)
	}
	servers.Exec(t, db, `INSERT INTO audit_checks VALUES ('counters', to_timestamp(3599)), ('holds', to_timestamp(3600)), ('oversold', to_timestamp(3600))`)
	servers.Exec(t, db, `INSERT INTO audit_violations SELECT 'campaigns', gen_random_uuid(), 'oversold', '{row}' FROM generate_series(1, 2)`)
	servers.Exec(t, db, `INSERT INTO audit_violations SELECT 'campaigns', gen_random_uuid(), unnest('{counters,counters,holds}'::text[]), '{row}'`)
	var r checks.Reading
	servers.NoError(t, r.ReadMoney(t.Context(), db))
	servers.NoError(t, r.ReadAudit(t.Context(), db))
	r.Add("redis_memory_used_ratio", "", .81)
	r.Add("worker_crashes", "", 2)
	r.Add("campaigns_drawing_age_seconds", "", 601)
	for kind, age := range map[string]float64{"purchase": 61, "another": 65, "cancellation": 60, "draw": 9000, "campaign-cancellation": 9000} {
		r.Add("jobs_queued_age_seconds", "", age, "kind", kind)
	}
	for name, want := range map[string]string{"payments": "1 payment(s) wait for", "payments_without_key": "2 payment(s) wait because", "refunds": "1 card refund(s) wait", "oversold": "2 case(s)",
		"audit": "3 violation(s) of counters, holds", "audit_late": "not checked counters for 1h0m1s", "redis_memory": "uses 81 % of", "worker_crashes": "in order", "draws": "drawing for 10m1s", "jobs": "job is 1m5s old",
		"drawn_twice": "unknown", "webhooks": "unknown", "card_provider": "unknown"} {
		c, got := checks.All[slices.IndexFunc(checks.All, func(c checks.Check) bool { return c.Name == name })], "unknown"
		if v, known := c.Measure(&r, time.Unix(7200, 0)); known && v.Number > v.Bound {
			got = c.Describe(v)
		} else if known {
			got = "in order"
		}
		if !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}
