package sale_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"triprize/internal/campaign"
	"triprize/internal/domain/access"
	"triprize/internal/domain/fault"
	"triprize/internal/inventory"
	"triprize/internal/job"
	"triprize/internal/payment"
	"triprize/internal/platform/postgres"
	"triprize/internal/purchase"
	"triprize/internal/sale"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

// cancel asks for a cancellation, finalizes it and returns its job.
func cancel(t *testing.T, db *pgxpool.Pool, request job.Request) job.Job {
	t.Helper()
	ref := fixture.Accept(t, db, request)[0]
	finalize(t, fixture.Seller(db), ref)
	return fixture.Job(t, db, ref.ID)
}

// forAll waits for campaigns and wallets until a test lets them go.
var forAll = sale.LockWait{Campaign: time.Minute, Wallets: walletWait}

// finalize finalizes cancellations in one transaction and returns the report.
func finalize(t *testing.T, seller *sale.Seller, refs ...job.Ref) sale.Report {
	t.Helper()
	report, err := seller.Cancel(t.Context(), refs, forAll)
	if err != nil {
		t.Error(err)
	}
	return report
}

// refused fails the test unless a job was refused with state-conflict for a
// reason with these words.
func refused(t *testing.T, what string, j job.Job, words string) {
	t.Helper()
	if j.State != job.Failed || j.Problem.Code != fault.StateConflict || !strings.Contains(j.Problem.Detail, words) {
		t.Errorf("%s: %s, %+v; want the words %q", what, j.State, j.Problem, words)
	}
}

func TestACancelledPurchaseGivesBackPositionsCounterAndLimit(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	draft, limit := fixture.Draft(4), 2
	draft.PurchaseLimit = &limit
	id := fixture.Campaign(t, db, draft)
	bought := fixture.Buy(t, db, id, "a", 2, 2)
	before := time.Now().Add(-time.Minute)
	j := cancel(t, db, fixture.CancelRequestOf(t, id, sale.Cancellation{PurchaseID: bought, By: "user:jwt:x/a", Reason: "changed my mind"}))
	want := fmt.Sprintf(`{"purchase_id":"%s","state":"cancelled","positions":[{"layer":2,"column":1,"number":2,"label":"2","price":200},{"layer":2,"column":2,"number":3,"label":"3","price":200}],"amount":400,"currency":"JPY","board_version":2}`, bought)
	if j.State != job.Succeeded || string(j.Result) != want {
		t.Errorf("the job: %s %s", j.State, j.Result)
	}
	p, err := purchase.Get(t.Context(), db, access.Everything(), bought)
	if err != nil {
		t.Fatal(err)
	}
	c := p.Cancellation
	if p.State != purchase.Cancelled || c == nil || c.By != "user:jwt:x/a" || *c.Reason != "changed my mind" || c.At.Before(before) || len(p.Items) != 2 || p.CompletedAt == nil {
		t.Errorf("the purchase: %+v, %+v", p, c)
	}
	if now, err := campaign.Get(t.Context(), db, id); err != nil || now.Counts.Sold != 0 || now.Counts.Available() != 10 {
		t.Errorf("the counters: %+v, %v", now.Counts, err)
	}
	all, err := inventory.OfUser(t.Context(), db, id, "test", "a")
	if err != nil || len(all) != 0 {
		t.Errorf("the user still has %+v, %v", all, err)
	}
	// The same positions are sold to another, and the user may buy up to the limit again.
	again, others := fixture.Buy(t, db, id, "b", 2, 2), fixture.Buy(t, db, id, "a", 3, 2)
	if again == bought || others == bought {
		t.Error("a new sale is the old purchase")
	}
	var purchases int
	err = db.QueryRow(t.Context(), `SELECT count(DISTINCT purchase_id) FROM purchase_items JOIN purchases p ON p.id = purchase_id
		WHERE p.campaign_id = $1 AND (layer, col) = (2, 1)`, id).Scan(&purchases)
	if err != nil || purchases != 2 {
		t.Errorf("position 2/1 was in %d purchases, %v", purchases, err)
	}
	fixture.Sound(t, db)
}

func TestAReasonMayBeLeftOut(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := fixture.Campaign(t, db, fixture.Draft(3))
	bought := fixture.Buy(t, db, id, "a", 0, 1)
	if j := cancel(t, db, fixture.CancelRequestOf(t, id, sale.Cancellation{PurchaseID: bought, By: "app:test"})); j.State != job.Succeeded {
		t.Fatalf("%+v", j.Problem)
	}
	if p, err := purchase.Get(t.Context(), db, access.Everything(), bought); err != nil || p.Cancellation.Reason != nil {
		t.Errorf("%+v, %v", p.Cancellation, err)
	}
}

func TestOfTwentyCancellationsAtOnceOneFreesAndTheOthersAreRefused(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := fixture.Campaign(t, db, fixture.Draft(4))
	bought := fixture.Buy(t, db, id, "a", 0, 3)
	fixture.Buy(t, db, id, "b", 0, 1)
	var requests []job.Request
	for range 20 {
		requests = append(requests, fixture.CancelRequest(t, id, bought))
	}
	refs := fixture.Accept(t, db, requests...)
	seller := fixture.Seller(db)
	var all sync.WaitGroup
	for _, ref := range append(refs, refs...) { // each is delivered twice
		all.Go(func() {
			finalize(t, seller, ref)
		})
	}
	all.Wait()
	succeeded := 0
	for _, ref := range refs {
		if j := fixture.Job(t, db, ref.ID); j.State == job.Succeeded {
			succeeded++
		} else {
			refused(t, "another", j, "cancelled already")
		}
	}
	if succeeded != 1 {
		t.Errorf("%d cancellations succeeded", succeeded)
	}
	if c, err := campaign.Get(t.Context(), db, id); err != nil || c.Counts.Sold != 1 {
		t.Errorf("%d are sold, %v", c.Counts.Sold, err)
	}
	fixture.Sound(t, db)
}

// A cancellation that comes again must not take what was sold to another user in the meantime.
func TestACancellationThatIsDeliveredAgainLeavesTheNewOwnerAlone(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := fixture.Campaign(t, db, fixture.Draft(3))
	bought := fixture.Buy(t, db, id, "a", 1, 1)
	ref := fixture.Accept(t, db, fixture.CancelRequest(t, id, bought))[0]
	seller := fixture.Seller(db)
	first := finalize(t, seller, ref).Finalized[0]
	fixture.Buy(t, db, id, "b", 1, 1)
	if again := finalize(t, seller, ref); len(again.Finalized)+len(again.Busy) != 0 {
		t.Errorf("got %+v", again)
	}
	refused(t, "with another key", cancel(t, db, fixture.CancelRequest(t, id, bought)), "cancelled already")
	if j := fixture.Job(t, db, ref.ID); string(j.Result) != string(first.Result) {
		t.Errorf("the job has changed: %s", j.Result)
	}
	if own, err := inventory.OfUser(t.Context(), db, id, "test", "b"); err != nil || len(own) != 1 || own[0].State != inventory.Sold {
		t.Errorf("the new owner has %+v, %v", own, err)
	}
	fixture.Sound(t, db)
}

func TestAfterTheDeadlineOnlyAnOperatorCancels(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	draft, until := fixture.Draft(4), time.Now().Add(time.Hour).UTC()
	draft.Policies.CancellationUntil = &until
	id := fixture.Campaign(t, db, draft)
	inTime, waited := fixture.Buy(t, db, id, "a", 0, 1), fixture.Buy(t, db, id, "b", 0, 1)
	late, operators := fixture.Buy(t, db, id, "c", 0, 1), fixture.Buy(t, db, id, "d", 0, 1)
	if j := cancel(t, db, fixture.CancelRequest(t, id, inTime)); j.State != job.Succeeded {
		t.Errorf("in time: %+v", j.Problem)
	}
	asked := fixture.Accept(t, db, fixture.CancelRequest(t, id, waited))[0]
	var day string
	err := db.QueryRow(t.Context(), `UPDATE campaigns SET policies = jsonb_set(policies, '{cancellation_until}', to_jsonb(clock_timestamp())) WHERE id = $1
		RETURNING left(policies->>'cancellation_until', 11)`, id).Scan(&day)
	if err != nil {
		t.Fatal(err)
	}
	refused(t, "late", cancel(t, db, fixture.CancelRequest(t, id, late)), "could be cancelled until "+day)
	finalize(t, fixture.Seller(db), asked)
	if j := fixture.Job(t, db, asked.ID); j.State != job.Succeeded {
		t.Errorf("asked in time, and only the queue was late: %+v", j.Problem)
	}
	if j := cancel(t, db, fixture.CancelRequestOf(t, id, sale.Cancellation{PurchaseID: operators, By: "operator:office", AnyTime: true})); j.State != job.Succeeded {
		t.Errorf("an operator: %+v", j.Problem)
	}
	fixture.Sound(t, db)
}

func TestWhatCannotBeCancelledIsRefusedAndSaysWhy(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	set := func(sql string, args ...any) {
		t.Helper()
		servers.Exec(t, db, sql, args...)
	}
	operators := func(id, bought uuid.UUID) job.Request {
		return fixture.CancelRequestOf(t, id, sale.Cancellation{PurchaseID: bought, By: "operator:office", AnyTime: true})
	}
	drawing := fixture.Campaign(t, db, fixture.Draft(3))
	last := fixture.Buy(t, db, drawing, "a", 0, 6)
	refused(t, "the campaign is drawing", cancel(t, db, operators(drawing, last)), "drawing: its sale has ended")

	id := fixture.Campaign(t, db, fixture.Draft(4))
	failed, ref := fixture.Reserve(t, db, id, "a", 1, time.Hour)
	fixture.EndAs(t, db, failed, payment.Expired)
	fixture.Conclude(t, db, ref)
	refused(t, "a failed purchase", cancel(t, db, operators(id, failed)), "the purchase is failed")
	if j := cancel(t, db, operators(id, uuid.New())); j.State != job.Failed || j.Problem.Code != fault.NotFound {
		t.Errorf("no purchase: %s, %+v", j.State, j.Problem)
	}
	external := fixture.Buy(t, db, id, "c", 0, 1)
	set(`UPDATE campaigns SET state = 'cancelled', cancelled_at = clock_timestamp(), cancelled_by = 'operator:test' WHERE id = $1`, id)
	refused(t, "the campaign is cancelled", cancel(t, db, operators(id, external)), "the campaign is cancelled")
	if n := sold(t, db, id); n != 1 {
		t.Errorf("%d positions are sold", n)
	}
	fixture.Sound(t, db)
}

func TestAPausedCampaignsPurchasesCanBeCancelled(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := fixture.Campaign(t, db, fixture.Draft(3))
	bought := fixture.Buy(t, db, id, "a", 0, 1)
	if err := postgres.InTx(t.Context(), db, func(tx pgx.Tx) error { return campaign.Pause(t.Context(), tx, id) }); err != nil {
		t.Fatal(err)
	}
	if j := cancel(t, db, fixture.CancelRequest(t, id, bought)); j.State != job.Succeeded {
		t.Errorf("%+v", j.Problem)
	}
}

func sold(t *testing.T, db postgres.DB, id uuid.UUID) (n int) {
	t.Helper()
	if err := db.QueryRow(t.Context(), `SELECT count(*) FROM positions WHERE campaign_id = $1 AND state = 'sold'`, id).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestTheResultOfACancellationIsThatOfThePurchase(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := fixture.Campaign(t, db, fixture.Draft(5))
	ref := fixture.Accept(t, db, fixture.PurchaseRequest(t, id, "a", 0, 5))[0]
	if _, err := fixture.Seller(db).Sell(t.Context(), []job.Ref{ref}, sale.WaitForCampaign); err != nil {
		t.Fatal(err)
	}
	var bought, cancelled sale.Result
	if err := json.Unmarshal(fixture.Job(t, db, ref.ID).Result, &bought); err != nil {
		t.Fatal(err)
	}
	j := cancel(t, db, fixture.CancelRequest(t, id, bought.PurchaseID))
	if err := json.Unmarshal(j.Result, &cancelled); err != nil {
		t.Fatal(err)
	}
	same := sale.Result{PurchaseID: cancelled.PurchaseID, Positions: cancelled.Positions, Amount: cancelled.Amount, Currency: cancelled.Currency, Board: cancelled.Board - 1}
	if fmt.Sprint(same) != fmt.Sprint(bought) {
		t.Errorf("bought %+v, cancelled %+v", bought, cancelled)
	}
}
