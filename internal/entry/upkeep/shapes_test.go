package upkeep_test

import (
	"slices"
	"strings"
	"testing"

	"triprize/internal/campaign"
	"triprize/internal/platform/audit"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

func TestTheAuditFindsLayersThatAreNotWhatIsSold(t *testing.T) {
	t.Parallel()
	const (
		together = "as many positions as its layers together"
		asRules  = "in the columns 1 to their number, as the rules say"
	)
	db := servers.DB(t)
	d := fixture.Draft(3)
	d.BaseLength, d.Layers = 0, []campaign.Layer{{Layer: 1, Positions: 4, Price: 100}, {Layer: 2, Positions: 2, Price: 200}}
	id := fixture.Campaign(t, db, d)
	fixture.Campaign(t, db, fixture.Draft(3))
	fixture.Sound(t, db)
	for _, c := range []struct{ sql, invariant string }{
		{`UPDATE layers SET first_number = 6 WHERE campaign_id = $1 AND layer = 2`, together},
		{`UPDATE layers SET positions = 5 WHERE campaign_id = $1 AND layer = 1`, together},
		{`UPDATE layers SET positions = 5, first_number = 1 WHERE campaign_id = $1 AND layer = 1`, asRules},
		{`UPDATE positions SET col = 5 WHERE campaign_id = $1 AND layer = 1 AND col = 4`, asRules},
		{`UPDATE positions SET layer = 2, col = 3 WHERE campaign_id = $1 AND layer = 1 AND col = 4`, asRules},
		{`DELETE FROM positions WHERE campaign_id = $1 AND layer = 2`, asRules},
	} {
		tx, err := db.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		servers.Exec(t, tx, c.sql, id)
		violations, err := checkIn(t.Context(), tx)
		if err != nil || !slices.ContainsFunc(violations, func(v audit.Violation) bool { return strings.Contains(v.Invariant, c.invariant) }) {
			t.Errorf("%s: %+v, %v", c.sql, violations, err)
		}
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// The rules of a campaign of 1,000 layers and 10,000 prizes have half a megabyte. A query
// that reads them once for each layer takes minutes, and keeps its snapshot open.
func TestTheAuditReadsTheRulesOfACampaignOnceHoweverManyLayersItHas(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	d := fixture.Draft(3)
	d.BaseLength, d.Layers = 0, nil
	for i := range 60 {
		d.Layers = append(d.Layers, campaign.Layer{Layer: i + 1, Positions: 2, Price: 100})
	}
	fixture.Campaign(t, db, d)
	tx, err := db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(t.Context()) }()
	plans, err := plansOf(t.Context(), tx)
	if err != nil {
		t.Fatal(err)
	}
	scans := 0
	for _, plan := range plans {
		for line := range strings.Lines(plan) {
			if strings.Contains(line, "Function Scan on jsonb_to_recordset x (actual") {
				if scans++; !strings.Contains(line, "loops=1)") {
					t.Errorf("the rules are read more than once:\n%s", plan)
				}
			}
		}
	}
	if scans == 0 {
		t.Error("no invariant reads the rules")
	}
}
