package upkeep_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"triprize/internal/domain/shape"
	"triprize/internal/job"
	"triprize/internal/platform/audit"
	"triprize/internal/sale"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

func TestMain(m *testing.M) { servers.Main(all{m}) }

type all struct{ tests *testing.M }

// Run runs the tests. Together they break each invariant.
func (a all) Run() (status int) {
	status = a.tests.Run()
	if unproven := unproven(); status == 0 && len(unproven) > 0 && flag.Lookup("test.run").Value.String() == "" {
		fmt.Fprintln(os.Stderr, "no test breaks", unproven)
		return 1
	}
	return status
}

// checkAll returns what the whole audit and the walks over parts find both.
func checkAll(t *testing.T, db *pgxpool.Pool) []audit.Violation {
	t.Helper()
	tx, err := db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	found, err := checkIn(t.Context(), tx)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestTheAuditFindsWhatIsWrongWithCancellations(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := fixture.Campaign(t, db, fixture.Draft(4))
	cancelled := func() (purchase, jobID uuid.UUID) {
		purchase = fixture.Buy(t, db, id, "a", 0, 1)
		ref := fixture.Accept(t, db, fixture.CancelRequest(t, id, purchase))[0]
		if _, err := fixture.Seller(db).Cancel(t.Context(), []job.Ref{ref}, sale.WaitForCampaign); err != nil {
			t.Fatal(err)
		}
		return purchase, ref.ID
	}
	fixture.Sound(t, db)
	for invariant, wrong := range map[string]string{
		"a succeeded cancellation job has cancelled the purchase it was about, or positions of it": `UPDATE jobs SET result = '{"purchase_id": "x"}' WHERE id = $2 AND $1::uuid IS NOT NULL`,
		"a purchase is cancelled by one job": `
			INSERT INTO jobs (id, client, idempotency_key, request_hash, kind, campaign_id, payload, state, result, finished_at, expires_at)
			SELECT gen_random_uuid(), client, 'another', request_hash, kind, campaign_id, payload, state, result, finished_at, expires_at
			FROM jobs WHERE id = $2 AND $1::uuid IS NOT NULL`,
		"a sold position belongs to a completed purchase of its owner": `
			WITH taken AS (SELECT layer, col FROM purchase_items WHERE purchase_id = $1 AND $2::uuid IS NOT NULL)
			UPDATE positions p SET state = 'sold', user_id = 'a', purchase_id = $1, sold_at = clock_timestamp()
			FROM taken WHERE (p.layer, p.col) = (taken.layer, taken.col)`,
		"a succeeded purchase job has exactly its purchase, completed or taken back since": `
			UPDATE purchases SET state = 'pending', cancelled_at = NULL, cancelled_by = NULL WHERE id = $1 AND $2::uuid IS NOT NULL`,
	} {
		purchase, jobID := cancelled()
		if _, err := db.Exec(t.Context(), wrong, purchase, jobID); err != nil {
			t.Fatal(invariant, err)
		}
		found := checkAll(t, db)
		names := make(map[string]bool)
		for _, v := range found {
			names[v.Invariant] = true
		}
		if !names[invariant] {
			t.Errorf("not found: %s; found %v", invariant, fmt.Sprint(names))
		}
	}
}

// A cancelled part by wallet or external has its refund, with its price.
func TestTheAuditFindsACancelledPartWithoutItsRefund(t *testing.T) {
	t.Parallel()
	for _, wrong := range []string{
		`DELETE FROM refunds WHERE number = 2`, `UPDATE refunds SET amount = amount - 1 WHERE number = 1`, `UPDATE refunds SET user_id = 'b'`,
		`INSERT INTO refunds (id, purchase_id, number, campaign_id, user_id, method, amount, currency, reason, state)
		 SELECT gen_random_uuid(), purchase_id, 3, campaign_id, user_id, method, 1, currency, reason, state FROM refunds WHERE number = 1`,
	} {
		db := servers.DB(t)
		id := fixture.Campaign(t, db, fixture.Draft(4))
		bought := fixture.Buy(t, db, id, "a", 4, 4)
		part := fixture.CancelRequestOf(t, id, sale.Cancellation{PurchaseID: bought, Positions: []shape.Position{fixture.At(4, 1)}, By: "app:test"})
		if _, err := fixture.Seller(db).Cancel(t.Context(), fixture.Accept(t, db, part, fixture.CancelRequest(t, id, bought)), sale.WaitForCampaign); err != nil {
			t.Fatal(err)
		}
		fixture.Sound(t, db)
		servers.Exec(t, db, wrong)
		if found := checkAll(t, db); len(found) == 0 || found[0].Check != "wallet_refunds" {
			t.Errorf("%s: found %+v", wrong, found)
		}
	}
}
