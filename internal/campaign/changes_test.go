package campaign_test

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"triprize/internal/campaign"
	"triprize/internal/platform/postgres"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

// What is given back must be counted in a cancelled campaign too. Nothing may be taken
// from one.
func TestACancelledCampaignGivesBackAndSellsNothing(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	active, cancelled := fixture.Campaign(t, db, fixture.Draft(3)), fixture.Campaign(t, db, fixture.Draft(3))
	pending, drawing := fixture.Campaign(t, db, fixture.Draft(3)), fixture.Campaign(t, db, fixture.Draft(3))
	for id, set := range map[any]string{
		cancelled: `positions_reserved = 3, positions_sold = 3, state = 'cancelled', cancelled_at = now(), cancelled_by = 'operator:test'`,
		active:    `positions_reserved = 3, positions_sold = 3`,
		drawing:   `positions_sold = 6, state = 'drawing'`,
		pending:   `positions_reserved = 3`,
	} {
		servers.Exec(t, db, `UPDATE campaigns SET `+set+` WHERE id = $1`, id)
	}
	for name, c := range map[string]struct {
		changes     campaign.Changes
		plain, back bool
	}{
		"an active one":                {campaign.Changes{active: {Reserved: -1, Sold: 1}}, true, true},
		"released in a cancelled one":  {campaign.Changes{cancelled: {Reserved: -1}}, false, true},
		"cancelled in a cancelled one": {campaign.Changes{cancelled: {Sold: -1}}, false, true},
		"moved in a cancelled one":     {campaign.Changes{cancelled: {}}, false, true},
		"sold in a cancelled one":      {campaign.Changes{cancelled: {Sold: 1}}, false, false},
		"reserved in a cancelled one":  {campaign.Changes{cancelled: {Reserved: 1}}, false, false},
		"paid in a cancelled one":      {campaign.Changes{cancelled: {Reserved: -1, Sold: 1}}, false, false},
		"one of both is cancelled":     {campaign.Changes{active: {Sold: 1, Reserved: -1}, cancelled: {Sold: 1, Reserved: -1}}, false, false},
		"drawing":                      {campaign.Changes{drawing: {Sold: -1}}, false, false},
		"nothing":                      {nil, true, true},
	} {
		for way, want := range map[string]bool{"Queue": c.plain, "QueueBack": c.back} {
			queue := map[string]func(*pgx.Batch){"Queue": c.changes.Queue, "QueueBack": c.changes.QueueBack}[way]
			if err := rollback(t, db, queue); (err == nil) != want || err != nil && !errors.Is(err, postgres.ErrRows) {
				t.Errorf("%s, %s: %v", name, way, err)
			}
		}
	}
}

// rollback sends a batch in a transaction that it does not commit.
func rollback(t *testing.T, db postgres.Beginner, queue func(b *pgx.Batch)) error {
	t.Helper()
	tx, err := db.Begin(t.Context())
	servers.NoError(t, err)
	defer func() { _ = tx.Rollback(t.Context()) }()
	var b pgx.Batch
	queue(&b)
	return tx.SendBatch(t.Context(), &b).Close()
}
