package sale_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"triprize/internal/job"
	"triprize/internal/payment"
	"triprize/internal/platform/postgres"
	"triprize/internal/sale"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

// lockPayment locks a payment until it is let go.
func lockPayment(t *testing.T, db *pgxpool.Pool, id uuid.UUID) (unlock func()) {
	t.Helper()
	tx, err := db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	servers.Exec(t, tx, `SELECT FROM payments WHERE purchase_id = $1 FOR NO KEY UPDATE`, id)
	return func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }
}

func TestALockedCampaignOrPaymentDelaysNoOtherConclusion(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	ids := []uuid.UUID{fixture.Campaign(t, db, fixture.Draft(4)), fixture.Campaign(t, db, fixture.Draft(4))}
	for name, lock := range map[string]func(id, bought uuid.UUID) func(){
		"campaign": func(id, _ uuid.UUID) func() { return fixture.LockCampaign(t, db, id) },
		"payment":  func(_, bought uuid.UUID) func() { return lockPayment(t, db, bought) },
	} {
		locked, ref := fixture.Reserve(t, db, ids[0], "a", 1, time.Hour)
		free, other := fixture.Reserve(t, db, ids[1], "a", 1, time.Hour)
		fixture.Advance(t, db, locked, payment.Captured)
		fixture.Advance(t, db, free, payment.Captured)
		unlock := lock(ids[0], locked)
		report, err := fixture.Seller(db).Conclude(t.Context(), []job.Ref{ref, other}, sale.SkipLocked)
		if err != nil || len(report.Busy) != 1 || report.Busy[0] != ref || report.Sold != 1 || report.TimedOut || slices.Contains(report.Locked, ref) != (name == "campaign") {
			t.Errorf("a locked %s: %+v, %v", name, report, err)
		}
		report, err = fixture.Seller(db).Conclude(t.Context(), []job.Ref{ref}, sale.LockWait{Campaign: 50 * time.Millisecond, Wallets: 50 * time.Millisecond})
		if err != nil || len(report.Busy) != 1 || !report.TimedOut {
			t.Errorf("a locked %s, after a wait: %+v, %v", name, report, err)
		}
		done := make(chan sale.Report)
		go func() {
			report, err := fixture.Seller(db).Conclude(context.WithoutCancel(t.Context()), []job.Ref{ref}, forAll)
			if err != nil {
				t.Error(err)
			}
			done <- report
		}()
		servers.AwaitBlocked(t, db, 1)
		unlock()
		if report := <-done; report.Sold != 1 {
			t.Errorf("%s: after it was unlocked: %+v", name, report)
		}
	}
	fixture.Sound(t, db)
}

func TestACancellationOfALockedPaymentIsPutOff(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := fixture.Campaign(t, db, fixture.Draft(4))
	bought, _ := fixture.Reserve(t, db, id, "a", 1, time.Hour)
	back := fixture.Accept(t, db, fixture.CancelRequest(t, id, bought))[0]
	unlock := lockPayment(t, db, bought)
	report, err := fixture.Seller(db).Cancel(t.Context(), []job.Ref{back}, sale.WaitForCampaign)
	if unlock(); err != nil || len(report.Busy) != 1 || len(report.Finalized) != 0 {
		t.Errorf("%+v, %v", report, err)
	}
	if report := finalize(t, fixture.Seller(db), back); len(report.Payments) != 1 || report.Payments[0].Version != fixture.Payment(t, db, bought).Version {
		t.Errorf("%+v", report)
	}
}

// before changes something before the n-th batch of a transaction.
type before struct {
	postgres.Beginner
	n       int
	disturb func(tx pgx.Tx) error
}

// Begin implements postgres.Beginner.
func (d before) Begin(ctx context.Context) (pgx.Tx, error) {
	tx, err := d.Beginner.Begin(ctx)
	return &disturbedTx{Tx: tx, disturb: d.disturb, batches: 3 - d.n}, err
}

// A writer that changes rows without the locks makes the conclusion fail as a whole.
func TestRowsThatMoveUnderTheLocksRollTheConclusionBack(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	sell, free := payment.Captured, payment.Ended
	for name, c := range map[string]struct {
		phase   payment.Phase
		disturb string
		want    error
	}{
		"a position is free":      {sell, `UPDATE positions SET state = 'available', user_id = NULL, purchase_id = NULL, expires_at = NULL WHERE campaign_id = $1 AND state = 'reserved'`, postgres.ErrRows},
		"a position is another's": {free, `UPDATE positions SET purchase_id = gen_random_uuid() WHERE campaign_id = $1 AND state = 'reserved'`, postgres.ErrRows},
		"a position is sold":      {free, `UPDATE positions SET state = 'sold', sold_at = now(), expires_at = NULL WHERE campaign_id = $1 AND state = 'reserved'`, postgres.ErrRows},
		"the payment":             {sell, `UPDATE payments SET version = version + 1 WHERE campaign_id = $1`, postgres.ErrRows},
		"the phase":               {sell, `UPDATE payments SET phase = 'late', ending = 'expired' WHERE campaign_id = $1`, postgres.ErrRows},
		"the purchase is bought":  {sell, `UPDATE purchases SET state = 'completed', completed_at = now() WHERE campaign_id = $1`, postgres.ErrRows},
		"the purchase has ended":  {free, `UPDATE purchases SET state = 'failed', failure = 'internal-error' WHERE campaign_id = $1`, postgres.ErrRows},
		"the campaign is drawn":   {sell, `UPDATE campaigns SET state = 'drawing' WHERE id = $1`, postgres.ErrRows},
		"it is cancelled":         {sell, `UPDATE campaigns SET state = 'cancelled', cancelled_at = now(), cancelled_by = 'operator:test' WHERE id = $1`, postgres.ErrRows},
		"the job":                 {sell, `UPDATE jobs SET state = 'failed', problem = '{}', finished_at = now() WHERE campaign_id = $1`, job.ErrFinal},
	} {
		id := fixture.Campaign(t, db, fixture.Draft(4))
		bought, ref := fixture.Reserve(t, db, id, "a", 2, time.Hour)
		fixture.Advance(t, db, bought, payment.Confirming)
		fixture.Advance(t, db, bought, c.phase)
		want := nowOf(t, db, bought, ref)
		_, err := sale.NewSeller(before{db, 3, func(tx pgx.Tx) error {
			_, err := tx.Exec(t.Context(), c.disturb, id)
			return err
		}}, time.Hour, fixture.Reservations).Conclude(t.Context(), []job.Ref{ref}, forAll)
		if !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
		if got := nowOf(t, db, bought, ref); got != want {
			t.Errorf("%s, and something stayed: %+v", name, got)
		}
	}
	fixture.Sound(t, db)
}

// What does not fit together is no case for a guess.
func TestAPaymentThatDoesNotFitItsPurchaseIsNotConcluded(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	for name, damage := range map[string]string{
		"half of its positions":   `UPDATE positions SET purchase_id = gen_random_uuid() WHERE (campaign_id, layer, col) = (SELECT campaign_id, layer, col FROM positions WHERE purchase_id = $1 LIMIT 1)`,
		"no purchase":             `DELETE FROM purchases WHERE id = $1`,
		"a purchase that is paid": `UPDATE purchases SET state = 'completed', completed_at = now() WHERE id = $1`,
		"of another campaign":     `UPDATE payments SET campaign_id = gen_random_uuid() WHERE purchase_id = $1`,
	} {
		id := fixture.Campaign(t, db, fixture.Draft(4))
		bought, ref := fixture.Reserve(t, db, id, "a", 2, time.Hour)
		fixture.Advance(t, db, bought, payment.Captured)
		servers.Exec(t, db, damage, bought)
		if _, err := fixture.Seller(db).Conclude(t.Context(), []job.Ref{ref}, forAll); err == nil {
			t.Errorf("%s: concluded", name)
		}
		if n := counts(t, db, id); n.Reserved != 2 || n.Sold != 0 {
			t.Errorf("%s: counted %+v", name, n)
		}
	}
}
