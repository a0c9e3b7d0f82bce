package inventory_test

import (
	"testing"

	"github.com/google/uuid"

	"triprize/internal/domain/access"
	"triprize/internal/inventory"
	"triprize/internal/platform/postgres"
	"triprize/internal/testkit/servers"
)

func TestAPageOfHoldsReadsNoMoreThanItHas(t *testing.T) {
	t.Parallel()
	const n, limit = 30_000, 20
	db, old, campaign := servers.DB(t), uuid.New(), uuid.New()
	_, err := db.Exec(t.Context(), `
		INSERT INTO holds (id, campaign_id, user_id, client, positions, currency, size, state, expires_at, ends_by, ended_at)
		SELECT (lpad(to_hex(1700000000000 + i), 12, '0') || '7000' || substr(md5(i::text), 1, 16))::uuid, CASE WHEN i < 3000 THEN $2::uuid ELSE $3::uuid END, 'user-' || i % 1000, CASE WHEN i % 1000 = 500 THEN 'kiosk' ELSE 'shop' END,
		       '[{"layer":1,"column":1,"price":100}]', 'JPY', 1, CASE WHEN i % 3000 = 0 THEN 'active' ELSE 'released' END, now() + interval '1 hour', now() + interval '1 hour', CASE WHEN i % 3000 > 0 THEN now() END
		FROM generate_series(1, $1::int) AS i`, n, old, campaign)
	if err != nil {
		t.Fatal(err)
	}
	servers.Exec(t, db, `VACUUM (ANALYZE, INDEX_CLEANUP ON) holds`)
	reads, all := servers.CountReads(t, db), access.Everything()
	for name, c := range map[string]struct {
		filter     inventory.HoldFilter
		rows, most int
	}{
		"of a campaign":           {inventory.HoldFilter{Who: all, CampaignID: campaign}, limit, 2 * limit},
		"of an old campaign":      {inventory.HoldFilter{Who: all, CampaignID: old}, limit, 2 * limit},
		"of a client":             {inventory.HoldFilter{Who: access.OfClient("kiosk"), CampaignID: campaign}, limit, 2 * limit},
		"of a client without any": {inventory.HoldFilter{Who: access.OfClient("nobody"), CampaignID: campaign}, 0, 2},
		"of nobody":               {inventory.HoldFilter{CampaignID: campaign}, 0, 2},
		"of a user":               {inventory.HoldFilter{Who: all, UserID: "user-7"}, limit, 2 * limit},
		"of a user in a campaign": {inventory.HoldFilter{Who: all, UserID: "user-7", CampaignID: old}, 3, 100},
		"active of a campaign":    {inventory.HoldFilter{Who: all, CampaignID: campaign, State: inventory.HoldActive}, 10, 2 * 10},
		"active of a user":        {inventory.HoldFilter{Who: all, UserID: "user-0", State: inventory.HoldActive}, 10, 100},
		"expired of a campaign":   {inventory.HoldFilter{Who: all, CampaignID: campaign, State: inventory.HoldExpired}, 0, 2*postgres.ListWindow + 10},
	} {
		list, _, err := inventory.ListHolds(t.Context(), reads, c.filter, postgres.ListPage{Limit: limit})
		if err != nil {
			t.Fatal(name, err)
		}
		if rows, plan := reads.Rows(); rows > c.most || len(list) != c.rows {
			t.Errorf("%s: %d holds, want %d, %d rows looked at, want %d at most: %s", name, len(list), c.rows, rows, c.most, plan)
		}
	}
}
