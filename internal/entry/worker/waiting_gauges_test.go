package worker

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"triprize/internal/payment"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

// Where cards are switched off, operators see what waits for them all the same.
func TestWhatWaitsForPeopleIsCountedWithoutAKey(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	w := newWorkerOn(t, workerSettings(t), registry)
	id := fixture.Campaign(t, w.db, fixture.Draft(4))
	for _, reason := range []payment.BlockedReason{payment.WaitsForOperator, payment.WaitsForKey, payment.WaitsForKey} {
		bought, _ := fixture.Reserve(t, w.db, id, "mina", 1, time.Hour)
		servers.Exec(t, w.db, `UPDATE payments SET waiting_for = $2, waiting_since = clock_timestamp() WHERE purchase_id = $1`, bought, reason)
	}
	for _, state := range []string{"failed", "requires_action"} { // what needs an action waits for its buyer
		returned, _ := fixture.BuyByCard(t, w.db, id, "otto", 0, 1)
		servers.Exec(t, w.db, `INSERT INTO refunds (id, purchase_id, number, campaign_id, user_id, method, amount, currency, reason, state)
			SELECT gen_random_uuid(), id, 1, campaign_id, user_id, 'card', amount, currency, 'cancelled', $2 FROM purchases WHERE id = $1`, returned, state)
	}
	got := gathered(t, registry)
	for series, want := range map[string]float64{"triprize_payments_waiting_for operator": 1, "triprize_payments_waiting_for key": 2,
		"triprize_payments_waiting_for provider": 0, "triprize_refunds_waiting_for_operator ": 1} {
		if value, ok := got[series]; !ok || value != want {
			t.Errorf("%s is %g, %t", series, value, ok)
		}
	}
}

// An invariant that nobody has checked has no gauge.
func TestWhatTheAuditHasFoundIsCounted(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	w := newWorkerOn(t, workerSettings(t), registry)
	servers.Exec(t, w.db, `INSERT INTO audit_looks VALUES ('counters', to_timestamp(1700000000)), ('oversold', to_timestamp(1800000000))`)
	servers.Exec(t, w.db, `INSERT INTO audit_violations SELECT 'campaigns', gen_random_uuid(), 'oversold', '{row}' FROM generate_series(1, 2)`)
	got := gathered(t, registry)
	for series, want := range map[string]float64{"triprize_audit_violations oversold": 2, "triprize_audit_violations counters": 0,
		"triprize_audit_last_look_timestamp_seconds oversold": 1_800_000_000, "triprize_audit_last_look_timestamp_seconds counters": 1_700_000_000} {
		if value, ok := got[series]; !ok || value != want {
			t.Errorf("%s is %g, %t", series, value, ok)
		}
	}
	if _, ok := got["triprize_audit_violations wallets"]; ok {
		t.Error("nobody has checked wallets")
	}
}

// gathered returns the gauges, by name and first label.
func gathered(t *testing.T, registry *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := make(map[string]float64)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			label := ""
			if len(m.GetLabel()) > 0 {
				label = m.GetLabel()[0].GetValue()
			}
			got[f.GetName()+" "+label] = m.GetGauge().GetValue()
		}
	}
	return got
}
