package purchase_test

import (
	"slices"
	"testing"

	"github.com/google/uuid"

	"triprize.example/draw/fairdraw"
	"triprize/internal/domain/access"
	"triprize/internal/platform/postgres"
	"triprize/internal/purchase"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

func TestMain(m *testing.M) { servers.Main(m) }

func TestAPageOfPurchasesReadsNoMoreThanItHas(t *testing.T) {
	t.Parallel()
	const n, limit = 30_000, 20
	db, old, campaign := servers.DB(t), uuid.New(), uuid.New()
	_, err := db.Exec(t.Context(), `
		INSERT INTO purchases (id, campaign_id, user_id, client, amount, currency, payment_method, payment_reference, state, cancelled_at, cancelled_by, completed_at, nonce)
		SELECT (lpad(to_hex(1700000000000 + i), 12, '0') || '7000' || substr(md5(i::text), 1, 16))::uuid, CASE WHEN i < 3000 THEN $2::uuid ELSE $3::uuid END, 'user-' || i % 1000, CASE WHEN i % 1000 = 500 THEN 'kiosk' ELSE 'shop' END,
		       100, 'JPY', 'external', CASE WHEN i % 2 = 0 THEN 'order-' || i ELSE 'cash' END, CASE WHEN i % 100 = 7 THEN 'cancelled' ELSE 'completed' END,
		       CASE WHEN i % 100 = 7 THEN now() END, CASE WHEN i % 100 = 7 THEN 'app:shop' END, now(), decode(md5(i::text), 'hex')
		FROM generate_series(1, $1::int) AS i`, n, old, campaign)
	servers.NoError(t, err)
	servers.Exec(t, db, `VACUUM (ANALYZE, INDEX_CLEANUP ON) purchases`)
	reads, all := servers.CountReads(t, db), access.Everything()
	for name, c := range map[string]struct {
		filter     purchase.Filter
		rows, most int
	}{
		"of a campaign":           {purchase.Filter{Who: all, CampaignID: campaign}, limit, 2 * limit},
		"of an old campaign":      {purchase.Filter{Who: all, CampaignID: old}, limit, 2 * limit},
		"of a client":             {purchase.Filter{Who: access.OfClient("kiosk"), CampaignID: campaign}, limit, 2 * limit},
		"of a client without any": {purchase.Filter{Who: access.OfClient("nobody"), CampaignID: campaign}, 0, 2},
		"of nobody":               {purchase.Filter{CampaignID: campaign}, 0, 2},
		"of a user at a client":   {purchase.Filter{Who: access.OfUser("shop", "user-7"), UserID: "user-7"}, limit, 2 * limit},
		"at another client":       {purchase.Filter{Who: access.OfUser("kiosk", "user-7"), UserID: "user-7"}, 0, 60},
		"of a user":               {purchase.Filter{Who: all, UserID: "user-7"}, limit, 2 * limit},
		"of a user in a campaign": {purchase.Filter{Who: all, UserID: "user-8", CampaignID: old}, 3, 100},
		"of a reference":          {purchase.Filter{Who: all, Reference: "order-4"}, 1, 2},
		"of a common reference":   {purchase.Filter{Who: all, Reference: "cash"}, limit, 2 * limit},
		"that are cancelled":      {purchase.Filter{Who: all, CampaignID: campaign, State: purchase.Cancelled}, limit, 2 * limit},
		"that have failed":        {purchase.Filter{Who: all, CampaignID: campaign, State: purchase.Failed}, 0, 2},
		"by wallet":               {purchase.Filter{Who: all, CampaignID: campaign, Method: purchase.Wallet}, 0, 2*postgres.ListWindow + 10},
	} {
		list, _, err := purchase.List(t.Context(), reads, c.filter, postgres.ListPage{Limit: limit})
		if err != nil {
			t.Fatal(name, err)
		}
		if rows, plan := reads.Rows(); rows > c.most || len(list) != c.rows {
			t.Errorf("%s: %d purchases, want %d, %d rows looked at, want %d at most: %s", name, len(list), c.rows, rows, c.most, plan)
		}
	}
}

func TestNoSoldPositionIsLostBetweenTwoPages(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := fixture.Campaign(t, db, fixture.Draft(4))
	fixture.SellOut(t, db, id)
	var want []fairdraw.SoldLine
	for line, err := range purchase.SoldLines(t.Context(), db, id) {
		servers.NoError(t, err)
		want = append(want, line)
	}
	if len(want) != 10 {
		t.Fatal(want)
	}
	for size := 1; size <= 11; size++ { // the pages end within layers and at their ends
		var got []fairdraw.SoldLine
		for line, err := range purchase.SoldLinesBy(t.Context(), db, id, size) {
			servers.NoError(t, err)
			got = append(got, line)
		}
		if !slices.Equal(got, want) {
			t.Errorf("by pages of %d: %v, want %v", size, got, want)
		}
	}
}
