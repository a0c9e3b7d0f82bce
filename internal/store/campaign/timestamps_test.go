package campaign_test

import (
	"testing"

	"triprize/internal/store/campaign"
	"triprize/internal/testkit/fixture"
)

func TestAWitnessNeedsAuthoritiesAndABeacon(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		policies campaign.Policies
		knows    campaign.Bounds
		want     string
	}{
		"both":           {campaign.Policies{Beacon: true, Witness: true}, campaign.Bounds{Beacon: true, Timestamps: true}, ""},
		"no witness":     {campaign.Policies{Beacon: true}, campaign.Bounds{Beacon: true}, ""},
		"no authorities": {campaign.Policies{Beacon: true, Witness: true}, campaign.Bounds{Beacon: true}, "/policies/witness"},
		"no beacon":      {campaign.Policies{Witness: true}, campaign.Bounds{Beacon: true, Timestamps: true}, "/policies/witness"},
	} {
		d := fixture.Draft(4)
		c.policies.LatePayment, c.policies.Unsold = d.Policies.LatePayment, d.Policies.Unsold
		d.Policies = c.policies
		c.knows.MaxPositions = 1275
		if got := pointersOf(t, d.Check(c.knows)); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
