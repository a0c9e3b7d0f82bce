package schema_test

import (
	"strings"
	"testing"

	"triprize/internal/store/campaign"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

func TestShapesAreTakenBackWhenAllAreTriangles(t *testing.T) {
	t.Parallel()
	raffle := fixture.Draft(3)
	raffle.BaseLength, raffle.Layers = 0, []campaign.Layer{{Layer: 1, Positions: 5, Label: "Ticket", Price: 100}}
	for name, c := range map[string]struct {
		draft campaign.Draft
		why   string // it is refused; empty: it is not
	}{"a triangle": {fixture.Draft(3), ""}, "a raffle": {raffle, "are no triangles"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := servers.DB(t)
			m, id := migrator(t, db), fixture.Campaign(t, db, c.draft)
			fixture.Sell(t, db, id, 2)
			err := downFrom(t, m, "00020")
			if c.why == "" && err != nil || c.why != "" && (err == nil || !strings.Contains(err.Error(), c.why)) {
				t.Fatalf("taken back: %v", err)
			}
			up(t, m)
			fixture.Sound(t, db)
			fixture.SellOut(t, db, id)
			fixture.Sound(t, db)
		})
	}
}
