package sale_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/inventory"
	"triprize/internal/job"
	"triprize/internal/lease"
	"triprize/internal/payment"
	"triprize/internal/platform/postgres"
	"triprize/internal/sale"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

// A statement about payments in the way of every purchase would make all of them slower.
func TestAPurchaseWithoutACardCostsNoStatementAboutPayments(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := fixture.Campaign(t, db, fixture.Draft(4))
	fixture.Wallet(t, db, "w", 10_000)
	var statements []string
	seller := sale.NewSeller(listening{db, &statements}, time.Hour, fixture.Reservations)
	refs := fixture.Accept(t, db, fixture.PurchaseRequest(t, id, "a", 0, 1), fixture.WalletRequest(t, id, "w", 0, 1))
	report, err := seller.Sell(t.Context(), refs, sale.WaitForCampaign)
	if err != nil || report.Sold != 2 {
		t.Fatalf("%+v, %v", report, err)
	}
	var cancellations []job.Request
	for _, ref := range refs {
		cancellations = append(cancellations, fixture.CancelRequest(t, id, resultOf(t, fixture.Job(t, db, ref.ID)).PurchaseID))
	}
	bought := len(statements)
	finalize(t, seller, fixture.Accept(t, db, cancellations...)...)
	if n := sold(t, db, id); n != 0 || len(statements) < 10 {
		t.Errorf("%d are sold after %d statements", n, len(statements))
	}
	refunds := 0
	for i, s := range statements {
		if i >= bought && strings.Contains(s, "INSERT INTO refunds") { // one for all that are cancelled
			refunds++
			continue
		}
		if strings.Contains(s, "payments") || strings.Contains(s, "payment_steps") || strings.Contains(s, "refunds") || strings.Contains(s, "held_times") {
			t.Errorf("this costs something: %s", s)
		}
	}
	if refunds != 1 {
		t.Errorf("%d statements make refunds", refunds)
	}
	statements = nil
	refs = fixture.Accept(t, db, fixture.CardRequest(t, id, "a", 0, 1), fixture.CardRequest(t, id, "b", 0, 1), fixture.CardRequest(t, id, "b", 0, 1))
	all := func(about string) (n int) {
		for _, s := range statements {
			if strings.Contains(s, about) {
				n++
			}
		}
		return n
	}
	report, err = seller.Sell(t.Context(), refs, sale.WaitForCampaign)
	if reads, forgets, guards := all("FROM held_times\n"), all("DELETE FROM held_times"), all("held_times"); err != nil || len(report.Payments) != 3 ||
		all("INSERT INTO payments") != 1 || reads != 1 || forgets != 1 || guards != 3 {
		t.Errorf("the test is deaf, or a batch by card looks more often than once: %v, %q", err, statements)
	}
}

// listening notes the statements of batches.
type listening struct {
	postgres.Beginner
	statements *[]string
}

// Begin implements postgres.Beginner.
func (l listening) Begin(ctx context.Context) (pgx.Tx, error) {
	tx, err := l.Beginner.Begin(ctx)
	return &listeningTx{tx, l.statements}, err
}

type listeningTx struct {
	pgx.Tx
	statements *[]string
}

// SendBatch implements pgx.Tx.
func (t *listeningTx) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	for _, q := range b.QueuedQueries {
		*t.statements = append(*t.statements, q.SQL)
	}
	return t.Tx.SendBatch(ctx, b)
}

// The workers count attempts at several jobs in one statement, which locks them by id. A
// batch that begins one job and refuses another locks them in the same order.
func TestABatchThatBeginsAndSettlesLocksItsJobsInOneOrder(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := fixture.Campaign(t, db, fixture.Draft(3))
	refs := fixture.Accept(t, db, fixture.PurchaseRequest(t, id, "a", 9, 1), fixture.CardRequest(t, id, "a", 0, 1)) // there is no layer 9
	tx, err := db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	lock := func(ref job.Ref) error {
		_, err := tx.Exec(t.Context(), `SELECT FROM jobs WHERE id = $1 FOR NO KEY UPDATE`, ref.ID)
		return err
	}
	if err := lock(refs[0]); err != nil {
		t.Fatal(err)
	}
	sells := make(chan error, 1)
	go func() {
		report, err := fixture.Seller(db).Sell(context.WithoutCancel(t.Context()), refs, sale.WaitForCampaign)
		if err == nil && (len(report.Payments) != 1 || len(report.Finalized) != 1) {
			err = fmt.Errorf("%+v", report)
		}
		sells <- err
	}()
	servers.AwaitBlocked(t, db, 1)
	if err := lock(refs[1]); err != nil { // a deadlock, if the batch had it already
		t.Error(err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Error(err)
	}
	if err := <-sells; err != nil {
		t.Error(err)
	}
}

// What a worker finds out about a payment that was cancelled meanwhile is not written.
func TestAWorkerWhosePaymentWasCancelledIsFenced(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := fixture.Campaign(t, db, fixture.Draft(3))
	bought, _ := fixture.Reserve(t, db, id, "a", 1, time.Hour)
	p, ok, err := payment.Claim(t.Context(), db, lease.Item{ID: bought}, time.Hour)
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	cancel(t, db, fixture.CancelRequest(t, id, bought))
	p.Phase, p.Attempt = payment.Creating, 1
	if err := fixture.Lead(t, db, &p, payment.Always); !errors.Is(err, lease.ErrFenced) {
		t.Errorf("the worker wrote: %v", err)
	}
	if now := fixture.Payment(t, db, bought); now.Phase != payment.Expiring || *now.Ending != payment.CancelledByBuyer || now.LeaseUntil != nil || now.DueAt.After(p.CreatedAt.Add(30*time.Minute)) {
		t.Errorf("the payment is %+v", now)
	}
	fixture.Sound(t, db)
}

// A statement that reads a whole table is quick as long as the table is small.
func TestTheSearchForReservationsReadsOnlyThose(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := fixture.Campaign(t, db, fixture.Draft(3))
	bought, ref := fixture.Reserve(t, db, id, "a", 2, -time.Second)
	_, err := db.Exec(t.Context(), `
		INSERT INTO payments (purchase_id, job_id, campaign_id, amount, currency, payment_method, phase, ending, deadline, latest, kept_since, finished_at)
		SELECT gen_random_uuid(), gen_random_uuid(), gen_random_uuid(), 1, 'JPY', 'pm', 'cancelled', 'expired', now(), now(), now(), now() FROM generate_series(1, 20000)`)
	if err != nil {
		t.Fatal(err)
	}
	servers.Exec(t, db, `ANALYZE payments`)
	var read, after int
	rows := `SELECT coalesce(sum(seq_tup_read), 0) FROM pg_stat_xact_user_tables WHERE relname = 'payments'`
	err = postgres.InTx(t.Context(), db, func(tx pgx.Tx) error {
		if err := tx.QueryRow(t.Context(), rows).Scan(&read); err != nil {
			return err
		}
		expired, err := payment.Expire(t.Context(), tx, 10)
		if err != nil || len(expired) != 1 {
			t.Errorf("expired %v, %v", expired, err)
		}
		var b pgx.Batch
		var found []payment.Ref
		n := make(map[uuid.UUID]int)
		locked, into := make(map[uuid.UUID]bool), make(map[uuid.UUID]*payment.Payment)
		payment.QueueOfJobs(&b, []uuid.UUID{ref.ID}, &found)
		payment.QueueLock(&b, []uuid.UUID{bought}, postgres.SkipLocked, locked, into)
		inventory.QueueCountReserved(&b, []uuid.UUID{bought}, n)
		if err := tx.SendBatch(t.Context(), &b).Close(); err != nil {
			return err
		}
		if len(found) != 1 || !locked[bought] || into[bought] == nil || n[bought] != 2 {
			t.Errorf("found %v, %v, %v, %v", found, locked, into, n)
		}
		return tx.QueryRow(t.Context(), rows).Scan(&after)
	})
	if err != nil || after != read {
		t.Errorf("%d rows were read one after the other, %v", after-read, err)
	}
}
