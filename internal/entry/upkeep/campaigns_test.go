package upkeep_test

import (
	"context"
	"slices"
	"testing"

	"triprize/internal/platform/audit"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

// Damages to a campaign on sale, and what each must break. Mina has two positions, Nora one, and
// Otto holds one. $1 is the campaign.
var campaignDamages = map[string]string{
	"board_versions":    `UPDATE positions SET board_version = 1000 WHERE campaign_id = $1 AND (layer, col) = (4, 1)`,
	"draw_times":        `UPDATE campaigns SET sale_ends_at = now(), draws_at = now() WHERE id = $1`,
	"drawing_campaigns": `UPDATE campaigns SET state = 'drawing', draw_started_at = now() WHERE id = $1`,
	"held_positions":    `UPDATE holds SET user_id = 'nobody' WHERE campaign_id = $1`,
	"lost_campaigns":    `UPDATE holds SET campaign_id = gen_random_uuid() WHERE campaign_id = $1`,
	"purchase_limits":   `UPDATE campaigns SET purchase_limit = 1 WHERE id = $1`,
	"used_holds":        `UPDATE holds SET state = 'used', purchase_id = gen_random_uuid(), ended_at = now() WHERE campaign_id = $1`,
	"oversold": `
		UPDATE purchase_items i SET layer = m.layer, col = m.col
		FROM purchases n, purchases p JOIN purchase_items m ON m.purchase_id = p.id
		WHERE n.campaign_id = $1 AND n.user_id = 'nora' AND i.purchase_id = n.id AND p.campaign_id = $1 AND p.user_id = 'mina'`,
}

func TestTheAuditFindsWhatIsWrongWithACampaignOnSale(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := fixture.Campaign(t, db, fixture.Draft(4))
	fixture.Buy(t, db, id, "mina", 0, 2)
	fixture.Buy(t, db, id, "nora", 0, 1)
	fixture.Hold(t, fixture.Holds(t, db, nil, nil), fixture.HoldAnyRequest(id, "otto", 0, 1))
	fixture.Sound(t, db)
	for check, sql := range campaignDamages {
		t.Run(check, func(t *testing.T) {
			tx, err := db.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = tx.Rollback(context.Background()) }()
			servers.Exec(t, tx, `ALTER TABLE campaigns DISABLE TRIGGER USER`)
			servers.Exec(t, tx, sql, id)
			found, err := checkIn(t.Context(), tx)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.ContainsFunc(found, func(v audit.Violation) bool { return v.Check == check }) {
				t.Errorf("found %v", found)
			}
		})
	}
}
