package sale_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/payment"
	"triprize/internal/platform/postgres"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

// No transaction of the end releases more than 100: a trigger of this test refuses that.
func TestManyHoldsEndWithTheSaleInSeveralTransactions(t *testing.T) {
	t.Parallel()
	db, clock := servers.DBWithClock(t)
	id, service := fixture.Campaign(t, db, fixture.DrawnAtEnd(20, aLongSale)), fixture.Holds(t, db, nil, nil)
	const many = 201
	for i := range many {
		held := fixture.Hold(t, service, fixture.HoldAnyRequest(id, fmt.Sprint("user-", i), 0, 1))
		fixture.MoveDeadline(t, db, held, 2*aLongSale)
	}
	_, err := db.Exec(t.Context(), `
		CREATE FUNCTION bound_holds() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			IF (SELECT count(*) FROM ended) > 100 THEN RAISE EXCEPTION 'too many at once'; END IF; RETURN NULL; END $$;
		CREATE TRIGGER bound_holds AFTER UPDATE ON holds REFERENCING NEW TABLE AS ended FOR EACH STATEMENT EXECUTE FUNCTION bound_holds()`)
	if err != nil {
		t.Fatal(err)
	}
	clock.MoveOn(aLongSale)
	if end := endSale(t, db, id); !end.Ended || end.Holds != many || len(end.Messages) != 1 {
		t.Errorf("%+v", end)
	}
	var active, transactions int
	err = db.QueryRow(t.Context(), `SELECT count(*) FILTER (WHERE state = 'active'), count(DISTINCT xmin::text) FROM holds`).Scan(&active, &transactions)
	if err != nil || active != 0 || transactions != 3 {
		t.Errorf("%d are active, ended in %d transactions, %v", active, transactions, err)
	}
	fixture.Sound(t, db)
}

// Of many payments that are out of time, a bounded number is looked at.
func TestALockedPaymentKeepsNobodyFromBeingFoundOutOfTime(t *testing.T) {
	t.Parallel()
	db, clock := servers.DBWithClock(t)
	id := fixture.Campaign(t, db, fixture.DrawnAtEnd(5, 10*aLongSale))
	var byLatest []uuid.UUID
	for i := range 3 { // the first bought is the last to be out of time
		bought, _ := fixture.Reserve(t, db, id, "a", 1, time.Duration(3-i)*time.Hour)
		fixture.Advance(t, db, bought, payment.Confirming)
		fixture.Advance(t, db, bought, payment.Expiring)
		byLatest = append([]uuid.UUID{bought}, byLatest...)
	}
	clock.MoveOn(aLongSale)
	find := func(limit int) (found []payment.Ref) {
		t.Helper()
		err := postgres.InTx(t.Context(), db, func(tx pgx.Tx) error {
			var b pgx.Batch
			payment.QueueOutOfTime(&b, id, limit, &found)
			return tx.SendBatch(t.Context(), &b).Close()
		})
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	if all := find(9); len(all) != 3 || all[0].PurchaseID != byLatest[0] || all[1].PurchaseID != byLatest[1] || all[2].PurchaseID != byLatest[2] {
		t.Errorf("found %+v, want %v", all, byLatest)
	}
	other, err := db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Rollback(t.Context()) }()
	servers.Exec(t, other, `SELECT FROM payments WHERE purchase_id = $1 FOR NO KEY UPDATE`, byLatest[0])
	if one := find(1); len(one) != 1 || one[0].PurchaseID != byLatest[1] {
		t.Errorf("with the first locked: %+v, want %s", one, byLatest[1])
	}
}
