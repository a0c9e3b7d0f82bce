package sale_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/metadata"
	"triprize/internal/job"
	"triprize/internal/platform/postgres"
	"triprize/internal/purchase"
	"triprize/internal/sale"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

// counted begins transactions that tell before their commit how many updates of jobs they
// have done, and how many of those have written to no index.
type counted struct {
	postgres.Beginner
	tell func(updates, hot int)
}

// Begin implements postgres.Beginner.
func (c counted) Begin(ctx context.Context) (pgx.Tx, error) {
	tx, err := c.Beginner.Begin(ctx)
	return countedTx{tx, c.tell}, err
}

type countedTx struct {
	pgx.Tx
	tell func(updates, hot int)
}

// Commit implements pgx.Tx.
func (t countedTx) Commit(ctx context.Context) error {
	var updates, hot int
	err := t.QueryRow(ctx, `SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_xact_user_tables WHERE relname = 'jobs'`).Scan(&updates, &hot)
	if err != nil {
		return err
	}
	t.tell(updates, hot)
	return t.Tx.Commit(ctx)
}

// An update whose row does not fit into its page, or changes what an index names, writes to
// every index of the table.
func TestFinalizingJobsWritesToNoIndex(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	for name, order := range map[string]sale.Order{
		"one position": {Selection: fixture.Random(0, 1)},
		"four, and metadata": {Selection: fixture.Random(0, 4),
			Metadata: metadata.Map{"order": strings.Repeat("x", 200), "channel": strings.Repeat("y", 200)}},
	} {
		id := fixture.Campaign(t, db, fixture.Draft(20))
		requests := make([]job.Request, 50)
		for i := range requests {
			order.UserID = "user-" + strings.Repeat("u", 32)
			order.Payment = sale.Payment{Method: purchase.External}
			requests[i] = fixture.PurchaseRequestOf(t, id, order)
		}
		refs := fixture.Accept(t, db, requests...)
		updates, hot := 0, 0
		seller := sale.NewSeller(counted{db, func(u, h int) { updates, hot = u, h }}, time.Hour, fixture.Reservations)
		if _, err := seller.Sell(t.Context(), refs, sale.SkipLocked); err != nil {
			t.Fatal(err)
		}
		if updates < len(refs) || hot != updates { // some of earlier transactions of the session may be counted, too
			t.Errorf("%s: %d of %d updates for %d jobs wrote to no index", name, hot, updates, len(refs))
		}
	}
}
