package sale_test

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"triprize/internal/domain/fault"
	"triprize/internal/job"
	"triprize/internal/lease"
	"triprize/internal/payment"
	"triprize/internal/platform/postgres"
	"triprize/internal/platform/stripe"
	"triprize/internal/purchase"
	"triprize/internal/sale"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

func TestACardOrderReservesAndIsSoldWhenItIsPaid(t *testing.T) {
	db, id := campaignOn(t, 4)
	ref := fixture.Accept(t, db, fixture.CardRequest(t, id, "a", 2, 2))[0]
	reservations := fixture.Reservations
	reservations.For = 10 * time.Hour
	seller := sale.NewSeller(spied{Beginner: db, commits: func(tx pgx.Tx) { // due soon, and not in the middle of this
		servers.Exec(t, tx, `UPDATE payments SET due_at = due_at + interval '5 hours' WHERE due_at - created_at BETWEEN '0 s' AND '90 s'`)
	}}, time.Hour, reservations)
	changed := fixture.Watch(t, db)
	report := sell(t, seller, ref)
	changed(`
		~ campaign 1: free=1,2,3,4 → free=1,0,3,4 positions_reserved=2 board_version=1
		+ position 2,1 reserved a purchase 1 v1 board_version=1 expires_at=11h
		+ position 2,2 reserved a purchase 1 v1 board_version=1 expires_at=11h
		~ job 1: → purchase 1 attempts=1
		+ purchase 1 a card 400 pending 2,1@200 2,2@200 job 1
		+ payment of purchase 1 reserved amount=400 payment_method=pm_card_visa due_at=5h deadline=10h latest=11h
		+ step of purchase 1 reserved`)
	if len(report.Due) != 1 || len(report.Outcomes) != 0 {
		t.Fatalf("%+v", report)
	}
	if again := sell(t, seller, ref); len(again.Outcomes)+len(again.Due)+len(again.Busy) != 0 {
		t.Errorf("delivered again: %+v", again)
	}
	changed(``)
	fixture.Sound(t, db)
	fixture.Advance(t, db, report.Due[0].ID, payment.Captured)
	if report := fixture.SettlePayments(t, db, ref); report.Sold != 2 || len(report.Outcomes) != 1 || len(report.Messages) != 0 {
		t.Errorf("finalized: %+v", report)
	}
	changed(`
		~ campaign 1: positions_reserved=2 board_version=1 → positions_sold=2 board_version=2
		~ position 2,1: reserved → sold; v1 board_version=1 expires_at=11h → v2 board_version=2
		~ position 2,2: reserved → sold; v1 board_version=1 expires_at=11h → v2 board_version=2
		~ job 1: queued → succeeded; → result={amount: 400, board_version: 2, positions: 2,1@200 2,2@200, purchase_id: purchase 1}
		~ purchase 1: pending → completed
		~ payment of purchase 1: reserved → settled; due_at=5h → v2; → attempt=1 intent_id=pi_job 1 received=400`)
	if report := fixture.SettlePayments(t, db, ref); report.Sold != 0 || len(report.Outcomes) != 0 {
		t.Errorf("finalized again: %+v", report)
	}
	changed(``)
	fixture.Sound(t, db)
}

// Pause, window and state count when positions are reserved, and not later.
func TestAPausedCampaignReservesNothingAndSettlesWhatIsPaid(t *testing.T) {
	db, id := campaignOn(t, 3)
	bought, ref := fixture.Reserve(t, db, id, "a", 2, time.Hour)
	for _, closed := range []string{`paused_at = clock_timestamp()`, `sale_ends_at = clock_timestamp()`} {
		servers.Exec(t, db, `UPDATE campaigns SET `+closed+` WHERE id = $1`, id)
		expect(t, closed, fixture.Complete(t, db, fixture.CardRequest(t, id, "b", 0, 1)), "campaign-paused")
	}
	fixture.Advance(t, db, bought, payment.Captured)
	fixture.SettlePayments(t, db, ref)
	if n := nowOf(t, db, bought, ref); n != completed {
		t.Errorf("%+v", n)
	}
}

func TestAUserKeepsFewPositionsFromOthersWithoutPaying(t *testing.T) {
	db, id := campaignOn(t, 8)
	seller := sale.NewSeller(db, time.Hour, sale.Reservations{For: time.Hour, MaxPerUser: 5, Takes: stripe.Takes})
	card := func(user string, n int) job.Request { return fixture.CardRequest(t, id, user, 0, n) }
	refs := fixture.Accept(t, db, card("mallory", 3))
	sell(t, seller, refs[0])
	refs = append(refs, fixture.Accept(t, db, card("mallory", 3), card("mallory", 2), card("alice", 5), card("bob", 3), card("bob", 3))...) // in one transaction
	sell(t, seller, refs...)
	expect(t, "five may wait", jobsOf(t, db, refs), "queued", "hold-limit-exceeded", "queued", "queued", "queued", "hold-limit-exceeded")
	fixture.Advance(t, db, *fixture.Job(t, db, refs[0].ID).PurchaseID, payment.Captured)
	fixture.SettlePayments(t, db, refs[0])
	refs = fixture.Accept(t, db, card("mallory", 3))
	sell(t, seller, refs...)
	expect(t, "what is paid waits no more", jobsOf(t, db, refs), "queued")
}

func TestCardsDoNotPayWithoutAMethodTooLittleOrWhereTheProviderCountsInAnotherUnit(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	draft := fixture.Draft(3)
	id := fixture.Campaign(t, db, draft)
	draft.Currency = "ISK"
	without := fixture.PurchaseRequestOf(t, id, sale.Order{UserID: "a", Selection: fixture.Random(0, 1), Payment: sale.Payment{Method: purchase.Card}})
	expect(t, "cards", fixture.Complete(t, db, without, fixture.CardRequest(t, fixture.Campaign(t, db, draft), "a", 0, 1)), "invalid-request /payment/payment_method", "cards-not-accepted")
	draft.Currency, draft.Layers[0].Price = "JPY", 49
	cheap := fixture.Campaign(t, db, draft) // 49 alone, and with any other position enough
	expect(t, "the provider's minimum", fixture.Complete(t, db, fixture.CardRequest(t, cheap, "a", 1, 1), fixture.CardRequest(t, cheap, "a", 2, 1)), "payment-refused", "queued")
	_, err := db.Exec(t.Context(), `
		INSERT INTO purchases (id, campaign_id, user_id, client, amount, currency, payment_method, nonce, state, completed_at)
		VALUES (gen_random_uuid(), $1, 'u', 'shop', 100, 'JPY', 'card', decode(repeat('00', 16), 'hex'), 'completed', now())`, id)
	if broken, ok := errors.AsType[*pgconn.PgError](err); !ok || broken.ConstraintName != "card_purchases_begin_pending" {
		t.Errorf("one that is sold before it is paid: %v", err)
	}
}

func TestMoneyIsSettledThoughItsJobWasFinalBefore(t *testing.T) {
	db, id := campaignOn(t, 3)
	bought, ref := fixture.Reserve(t, db, id, "a", 2, time.Hour)
	fixture.Advance(t, db, bought, payment.Captured)
	servers.Exec(t, db, `UPDATE jobs SET state = 'failed', problem = '{"code": "internal-error", "detail": "given up"}', finished_at = now() WHERE id = $1`, ref.ID)
	if report := fixture.SettlePayments(t, db, ref); len(report.Broken) != 1 {
		t.Errorf("it is not said loudly: %v", report.Broken)
	}
	want := completed
	want.Job, want.Code = job.Failed, fault.InternalError
	if n := nowOf(t, db, bought, ref); n != want {
		t.Errorf("%+v", n)
	}
}

// Forty cards at once in four campaigns: no more are tried than may be declined. Those of another
// client's user of the same name are its own.
func TestCardsThatAreBeingTriedCountInAllCampaigns(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	seller := sale.NewSeller(db, time.Hour, sale.Reservations{For: time.Hour, Takes: stripe.Takes})
	tried, refused := 0, 0
	var id uuid.UUID
	for range 4 {
		id = fixture.Campaign(t, db, fixture.Draft(8))
		var requests []job.Request
		for range 10 {
			requests = append(requests, fixture.CardRequest(t, id, "mallory", 0, 1))
		}
		refs := fixture.Accept(t, db, requests...)
		sell(t, seller, refs...)
		for _, j := range jobsOf(t, db, refs) {
			switch {
			case j.Problem == nil && j.PurchaseID != nil:
				tried++
			case j.Problem.Code != fault.DeclineLimitExceeded || !j.Problem.RetryAt.After(time.Now()):
				t.Errorf("refused with %+v", j.Problem)
			default:
				refused++
			}
		}
	}
	if tried != payment.MaxDeclines || refused != 40-payment.MaxDeclines {
		t.Errorf("%d cards are being tried, %d were refused; want %d and %d", tried, refused, payment.MaxDeclines, 40-payment.MaxDeclines)
	}
	another := fixture.CardRequest(t, id, "mallory", 0, 1)
	another.Client = "kiosk"
	refs := fixture.Accept(t, db, another)
	sell(t, seller, refs...)
	expect(t, "another client's user", jobsOf(t, db, refs), "queued")
}

// While one transaction counts the cards of a buyer, another campaign's leaves its orders by card for
// later, and waits for nobody.
func TestCardsOfABuyerAreCountedByOneTransactionAtATime(t *testing.T) {
	db, id := campaignOn(t, 8)
	refs := fixture.Accept(t, db, fixture.CardRequest(t, id, "mallory", 0, 1), fixture.CardRequest(t, id, "alice", 0, 1))
	counting, err := db.Begin(t.Context())
	servers.NoError(t, err)
	defer func() { _ = counting.Rollback(context.Background()) }()
	var b pgx.Batch
	payment.QueueCards(&b, []payment.Buyer{{Client: "test", ID: "mallory"}}, uuid.Nil, true, nil, nil)
	servers.NoError(t, counting.SendBatch(t.Context(), &b).Close())
	if report := sell(t, fixture.Seller(db), refs...); len(report.Busy) != 1 || report.Busy[0] != refs[0] || len(report.Due) != 1 {
		t.Errorf("%+v", report)
	}
	servers.NoError(t, counting.Rollback(t.Context()))
	if report := sell(t, fixture.Seller(db), refs...); len(report.Busy) != 0 || len(report.Due) != 1 {
		t.Errorf("later: %+v", report)
	}
}

// A statement about payments in the way of every purchase would make all of them slower.
func TestAPurchaseWithoutACardCostsNoStatementAboutPayments(t *testing.T) {
	db, id := campaignOn(t, 4)
	fixture.Wallet(t, db, "w", 10_000)
	var statements []string
	all := func(abouts ...string) (n int) {
		for _, s := range statements {
			for _, about := range abouts {
				n += min(strings.Count(s, about), 1)
			}
		}
		return n
	}
	seller := sale.NewSeller(spied{Beginner: db, before: func(_ pgx.Tx, _ int, b *pgx.Batch) {
		for _, q := range b.QueuedQueries {
			statements = append(statements, q.SQL)
		}
	}}, time.Hour, fixture.Reservations)
	refs := fixture.Accept(t, db, fixture.PurchaseRequest(t, id, "a", 0, 1), fixture.WalletRequest(t, id, "w", 0, 1))
	sell(t, seller, refs...)
	if n := all("payments", "payment_steps", "refunds", "held_times"); n != 0 || len(statements) < 5 {
		t.Errorf("%d of these cost something: %q", n, statements)
	}
	var cancellations []job.Request
	for _, j := range jobsOf(t, db, refs) {
		cancellations = append(cancellations, fixture.CancelRequest(t, id, resultOf(t, j).PurchaseID))
	}
	statements = nil
	report := complete(t, seller, fixture.Accept(t, db, cancellations...)...)
	if n := all("payments", "payment_steps", "held_times"); len(report.Outcomes) != 2 || all("INSERT INTO refunds") != 1 || n != all("payments") || all("payments") > 1 { // one for all that are cancelled
		t.Errorf("cancellations: %d cost something: %q", n, statements)
	}
	statements = nil
	report = sell(t, seller, fixture.Accept(t, db, fixture.CardRequest(t, id, "a", 0, 1), fixture.CardRequest(t, id, "b", 0, 1), fixture.CardRequest(t, id, "b", 0, 1))...)
	if len(report.Due) != 3 || all("INSERT INTO payments") != 1 || all("FROM held_times\n") != 1 || all("DELETE FROM held_times") != 1 || all("held_times") != 3 {
		t.Errorf("the test is deaf, or a batch by card looks more often than once: %q", statements)
	}
}

// The workers count attempts at several jobs in one statement, which locks them by id. A
// batch that begins one job and refuses another locks them in the same order.
func TestABatchThatBeginsAndSettlesLocksItsJobsInOneOrder(t *testing.T) {
	db, id := campaignOn(t, 3)
	refs := fixture.Accept(t, db, fixture.PurchaseRequest(t, id, "a", 9, 1), fixture.CardRequest(t, id, "a", 0, 1)) // there is no layer 9
	tx, err := db.Begin(t.Context())
	servers.NoError(t, err)
	defer func() { _ = tx.Rollback(context.Background()) }()
	servers.Exec(t, tx, `SELECT FROM jobs WHERE id = $1 FOR NO KEY UPDATE`, refs[0].ID)
	sells := make(chan sale.Report, 1)
	go func() { sells <- sell(t, fixture.Seller(db), refs...) }()
	servers.AwaitBlocked(t, db, 1)
	if _, err := tx.Exec(t.Context(), `SELECT FROM jobs WHERE id = $1 FOR NO KEY UPDATE`, refs[1].ID); err != nil { // a deadlock, if the batch had it already
		t.Error(err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Error(err)
	}
	if report := <-sells; len(report.Due) != 1 || len(report.Outcomes) != 1 {
		t.Errorf("%+v", report)
	}
}

// What a worker finds out about a payment that was cancelled meanwhile is not written. A cancellation that finds
// the payment locked is put off.
func TestAWorkerWhosePaymentWasCancelledIsFenced(t *testing.T) {
	db, id := campaignOn(t, 3)
	bought, _ := fixture.Reserve(t, db, id, "a", 1, time.Hour)
	p, ok, err := payment.Claim(t.Context(), db, lease.Item{ID: bought}, time.Hour)
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	back := fixture.Accept(t, db, fixture.CancelRequest(t, id, bought))[0]
	unlock := fixture.LockRows(t, db, `payments WHERE purchase_id = $1`, bought)
	if report, err := fixture.Seller(db).Cancel(t.Context(), []job.Ref{back}, sale.WaitForCampaign); err != nil || len(report.Busy) != 1 || len(report.Outcomes) != 0 {
		t.Errorf("%+v, %v", report, err)
	}
	unlock()
	report := complete(t, fixture.Seller(db), back)
	if len(report.Due) != 1 || report.Due[0].Version != fixture.Payment(t, db, bought).Version {
		t.Errorf("%+v", report)
	}
	p.Phase, p.Attempt = payment.Creating, 1
	if err := fixture.Lead(t, db, &p, payment.Always); !errors.Is(err, lease.ErrFenced) {
		t.Errorf("the worker wrote: %v", err)
	}
	if now := fixture.Payment(t, db, bought); now.Phase != payment.Expiring || *now.Ending != payment.CancelledByBuyer || now.LeaseUntil != nil || now.DueAt.After(p.CreatedAt.Add(30*time.Minute)) {
		t.Errorf("the payment is %+v", now)
	}
	fixture.Sound(t, db)
}

// In a database that is new, the planner would else read all jobs of the campaign.
func TestTheJobsOfABatchAreFoundByTheirIDs(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	campaign := uuid.New()
	servers.Exec(t, db, `INSERT INTO jobs (id, client, idempotency_key, request_hash, kind, campaign_id, state, finished_at, expires_at)
		SELECT gen_random_uuid(), 'shop', n, sha256('x'), 'purchase', $1, 'succeeded', clock_timestamp(), clock_timestamp() FROM generate_series(1, 300) n`, campaign)
	index := regexp.MustCompile(`jobs_[a-z_]+|Seq Scan on jobs`)
	for _, statistics := range []string{"SELECT", "ANALYZE jobs"} {
		servers.Exec(t, db, statistics)
		for _, mode := range []string{"force_generic_plan", "force_custom_plan"} {
			for what, sql := range sale.ReadsOfJobs {
				tx, err := db.Begin(t.Context())
				servers.NoError(t, err)
				servers.Exec(t, tx, `SET LOCAL plan_cache_mode = `+mode)
				servers.Exec(t, tx, `PREPARE reading AS `+sql)
				plan, err := postgres.Collect(t.Context(), tx, pgx.RowTo[string], `EXPLAIN EXECUTE reading (ARRAY['`+uuid.NewString()+`', '`+uuid.NewString()+`']::uuid[], ARRAY['`+campaign.String()+`']::uuid[])`)
				servers.NoError(t, err)
				if used := index.FindAllString(strings.Join(plan, "\n"), -1); !slices.Equal(used, []string{"jobs_pkey"}) {
					t.Errorf("%s after %s, %s: %q", what, statistics, mode, plan)
				}
				servers.Exec(t, tx, `DEALLOCATE reading`)
				servers.NoError(t, tx.Rollback(t.Context()))
			}
		}
	}
}
