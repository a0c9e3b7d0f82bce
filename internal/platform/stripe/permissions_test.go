package stripe_test

import (
	"maps"
	"net/http/httptest"
	"strings"
	"testing"

	"triprize/sandbox/stripesim"
)

// The probes are answered as Stripe answers, and leave nothing behind.
func TestTheProbesTellWhatTheKeyMayDoAndLeaveNoTrace(t *testing.T) {
	t.Parallel()
	sandbox, err := stripesim.New(stripesim.Settings{Key: testKey, Rate: -1, EndpointRate: -1})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(sandbox)
	t.Cleanup(func() { server.Close(); _ = sandbox.Close() })
	client := connect(t, settings(server.URL))
	all := func(value bool, other ...string) map[string]bool {
		has := map[string]bool{"payment_intent_write": value, "charge_write": value, "event_read": value, "balance_transaction_source_read": value, "dispute_read": value}
		for _, permission := range other {
			has[permission] = !value
		}
		return has
	}
	for name, c := range map[string]struct {
		key  stripesim.Key
		want map[string]bool
	}{
		"a whole key":           {stripesim.Key{}, all(true)},
		"one without refunds":   {stripesim.Key{Lacks: []string{"charge_write"}}, all(true, "charge_write")},
		"one that may not read": {stripesim.Key{Lacks: []string{"charge_read", "payment_intent_read", "event_read", "balance_transaction_source_read", "dispute_read"}}, all(false)},
		"an expired one":        {stripesim.Key{Expired: true}, all(false)},
	} {
		if err := sandbox.SetKey(c.key); err != nil {
			t.Fatal(err)
		}
		has, err := client.CheckPermissions(t.Context())
		if err != nil || !maps.Equal(has, c.want) {
			t.Errorf("%s: %v, %v", name, has, err)
		}
		for permission, allowed := range c.want {
			if missing := client.counted(t, "triprize_stripe_permission_missing", permission); (missing == 0) != allowed {
				t.Errorf("%s: the gauge of %s is %g", name, permission, missing)
			}
		}
	}
	if n := strings.Count(client.log.String(), "Stripe refuses our key"); n != 1 { // of 13 calls, and of all that wait for the key
		t.Errorf("that the key is refused is logged %d times", n)
	}
	if totals := sandbox.Totals(); totals.Requests != 9 || len(totals.Intents) != 0 || totals.Events != 0 || len(totals.Refunded) != 0 {
		t.Errorf("they have made or left %+v", totals) // the sandbox counts those that it permits
	}
	if err := sandbox.SetAway(stripesim.Unavailable); err != nil {
		t.Fatal(err)
	}
	if has, err := client.CheckPermissions(t.Context()); err == nil || len(has) != 0 {
		t.Errorf("Stripe is away, and tells %v", has)
	}
}
