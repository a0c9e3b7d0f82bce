package sale_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"triprize/internal/domain/access"
	"triprize/internal/domain/fault"
	"triprize/internal/job"
	"triprize/internal/payment"
	"triprize/internal/purchase"
	"triprize/internal/sale"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

// endCampaign cancels a campaign, as far as sales and payments see it.
func endCampaign(t *testing.T, db *pgxpool.Pool, id uuid.UUID) {
	t.Helper()
	_, err := db.Exec(t.Context(), `UPDATE campaigns SET state = 'cancelled', cancelled_at = clock_timestamp(), cancelled_by = 'operator:test' WHERE id = $1`, id)
	if err != nil {
		t.Fatal(err)
	}
}

// isAsOf tells whether the result of a job, if it has one, names the version of the board that it
// has made. The campaign is quiet.
func isAsOf(t *testing.T, db *pgxpool.Pool, jobID uuid.UUID) bool {
	t.Helper()
	return servers.Value[bool](t, db, `
		SELECT coalesce((j.result ->> 'board_version')::bigint = c.board_version, j.state <> 'succeeded')
		FROM jobs j JOIN campaigns c ON c.id = j.campaign_id WHERE j.id = $1`, jobID)
}

// setPayment changes a payment by hand.
func setPayment(t *testing.T, db *pgxpool.Pool, id uuid.UUID, set string) {
	t.Helper()
	servers.Exec(t, db, `UPDATE payments SET `+set+` WHERE purchase_id = $1`, id)
}

// takeBack asks to cancel a purchase that is being paid, which waits for the payment.
func takeBack(t *testing.T, db *pgxpool.Pool, id, bought uuid.UUID) (back job.Ref) {
	t.Helper()
	back = fixture.Accept(t, db, fixture.CancelRequest(t, id, bought))[0]
	report := finalize(t, fixture.Seller(db), back)
	if j := fixture.Job(t, db, back.ID); len(report.Finalized) != 0 || j.State != job.Queued || j.PurchaseID == nil || *j.PurchaseID != bought {
		t.Fatalf("the cancellation does not wait: %+v, %+v", report, j.Problem)
	}
	return back
}

func TestWhatBecomesOfAPaymentWhoseEndIsKnown(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	refunding := func(code fault.Code, reason payment.RefundReason) now {
		return now{purchase.Refunding, payment.RefundDue, job.Failed, code, reason, 0, 0}
	}
	ends := func(state purchase.State, code fault.Code) now {
		return now{state, payment.Cancelled, job.Failed, code, "", 0, 0}
	}
	for name, c := range map[string]struct {
		happens func(id, bought uuid.UUID)
		want    now
		steps   string
	}{
		"captured": {func(_, bought uuid.UUID) { fixture.Advance(t, db, bought, payment.Captured) }, completed, ""},
		"captured though its time was over": {func(_, bought uuid.UUID) {
			fixture.Advance(t, db, bought, payment.Expiring)
			fixture.Advance(t, db, bought, payment.Captured)
		}, completed, ""},
		"captured in a cancelled campaign": {func(id, bought uuid.UUID) {
			fixture.Advance(t, db, bought, payment.Captured)
			endCampaign(t, db, id)
		}, refunding(fault.CampaignNotActive, payment.RefundCampaignCancelled), " released refund-requested"},
		"captured and cancelled meanwhile": {func(id, bought uuid.UUID) {
			fixture.Advance(t, db, bought, payment.Capturing)
			takeBack(t, db, id, bought)
			fixture.Advance(t, db, bought, payment.Captured)
		}, refunding(fault.PurchaseCancelled, payment.RefundPurchaseCancelled), " released refund-requested"},
		"captured after it was given up by its buyer": {func(id, bought uuid.UUID) {
			fixture.Advance(t, db, bought, payment.Confirming)
			takeBack(t, db, id, bought)
			fixture.Advance(t, db, bought, payment.Captured)
		}, refunding(fault.PurchaseCancelled, payment.RefundPurchaseCancelled), " released refund-requested"},
		"cancelled by its buyer, with its campaign, and captured": {func(id, bought uuid.UUID) {
			fixture.Advance(t, db, bought, payment.Captured)
			takeBack(t, db, id, bought)
			endCampaign(t, db, id)
		}, refunding(fault.PurchaseCancelled, payment.RefundPurchaseCancelled), " released refund-requested"},
		"expired":  {func(_, bought uuid.UUID) { fixture.EndAs(t, db, bought, payment.Expired) }, ends(purchase.Failed, fault.ReservationExpired), " released"},
		"declined": {func(_, bought uuid.UUID) { fixture.EndAs(t, db, bought, payment.Declined) }, ends(purchase.Failed, fault.PaymentDeclined), " released"},
		"refused":  {func(_, bought uuid.UUID) { fixture.EndAs(t, db, bought, payment.Refused) }, ends(purchase.Failed, fault.PaymentRefused), " released"},
		"given up with its campaign": {func(id, bought uuid.UUID) {
			fixture.EndAs(t, db, bought, payment.CampaignCancelled)
			endCampaign(t, db, id)
		}, ends(purchase.Failed, fault.CampaignNotActive), " released"},
		"given up by its buyer": {func(id, bought uuid.UUID) {
			takeBack(t, db, id, bought)
			fixture.Advance(t, db, bought, payment.Ended)
		}, ends(purchase.Cancelled, fault.PurchaseCancelled), " released"},
		"cancelled while it was captured, which did not succeed": {func(id, bought uuid.UUID) {
			fixture.Advance(t, db, bought, payment.Capturing)
			takeBack(t, db, id, bought)
			fixture.EndAs(t, db, bought, payment.Expired)
		}, ends(purchase.Cancelled, fault.PurchaseCancelled), " released"},
		"over, and not to be cancelled": {func(_, bought uuid.UUID) {
			fixture.Advance(t, db, bought, payment.Processing)
			fixture.Advance(t, db, bought, payment.Expiring)
			setPayment(t, db, bought, `uncancellable = true, deadline = clock_timestamp()`)
		}, now{purchase.Pending, payment.Late, job.Queued, "", "", 0, 0}, " released"},
		"not to be cancelled, and not over yet": {func(_, bought uuid.UUID) {
			fixture.Advance(t, db, bought, payment.Processing)
			fixture.Advance(t, db, bought, payment.Expiring)
			setPayment(t, db, bought, `uncancellable = true`)
		}, now{purchase.Pending, payment.Expiring, job.Queued, "", "", 2, 0}, ""},
	} {
		id := fixture.Campaign(t, db, fixture.Draft(4))
		fixture.Sell(t, db, id, 1)
		bought, ref := fixture.Reserve(t, db, id, "a", 2, time.Hour)
		c.happens(id, bought)
		report := fixture.Conclude(t, db, ref)
		if got := nowOf(t, db, bought, ref); got != c.want {
			t.Errorf("%s: %+v; want %+v", name, got, c.want)
		}
		if !isAsOf(t, db, ref.ID) {
			t.Errorf("%s: the result is %s", name, fixture.Job(t, db, ref.ID).Result)
		}
		if n := counts(t, db, id); n.Reserved != c.want.Reserved || n.Sold != c.want.Sold+1 {
			t.Errorf("%s: counted %+v", name, n)
		}
		if s := stepsOf(t, db, bought); s != "reserved"+c.steps {
			t.Errorf("%s: steps %s", name, s)
		}
		if (c.want.Refund != "") != (len(report.Refunds) == 1) || (c.want.Payment == payment.Late) != (len(report.Payments) == 1) || report.Sold != c.want.Sold {
			t.Errorf("%s: %+v", name, report)
		}
		if again := fixture.Conclude(t, db, ref); len(again.Finalized)+len(again.Refunds)+len(again.Payments)+again.Sold != 0 {
			t.Errorf("%s, again: %+v", name, again)
		}
	}
	fixture.Sound(t, db)
}

func TestNothingBecomesOfPaymentsThatGoOn(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := fixture.Campaign(t, db, fixture.Draft(6))
	for _, phase := range []payment.Phase{payment.Reserved, payment.Creating, payment.Confirming, payment.Action, payment.Processing, payment.Capturing, payment.Expiring} {
		bought, ref := fixture.Reserve(t, db, id, "a", 2, -time.Second)
		fixture.Advance(t, db, bought, phase)
		before := fixture.Payment(t, db, bought)
		report := fixture.Conclude(t, db, ref)
		if after := fixture.Payment(t, db, bought); after.Version != before.Version || after.Phase != phase || len(report.Finalized) != 0 || nowOf(t, db, bought, ref).Reserved != 2 {
			t.Errorf("%s: %+v, %+v", phase, report, after)
		}
	}
	if report := fixture.Conclude(t, db, job.Ref{ID: uuid.New(), CampaignID: id}, job.Ref{ID: uuid.New(), CampaignID: uuid.New()}); len(report.Finalized) != 0 {
		t.Errorf("no payments: %+v", report)
	}
	fixture.Sound(t, db)
}

func TestACancellationThatWaitedForAPaymentSaysWhatBecameOfIt(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := fixture.Campaign(t, db, fixture.Draft(4))
	for end, state := range map[payment.Phase]purchase.State{payment.Ended: purchase.Cancelled, payment.Captured: purchase.Refunding} {
		bought, ref := fixture.ReserveFor(t, db, fixture.CardRequest(t, id, "a", 2, 1), time.Hour)
		fixture.Advance(t, db, bought, payment.Action)
		back := takeBack(t, db, id, bought)
		if j := fixture.Job(t, db, ref.ID); j.State != job.Queued || j.Progress != nil {
			t.Errorf("the job still asks its buyer: %s, %+v", j.State, j.Progress)
		}
		refused(t, "another cancellation", cancel(t, db, fixture.CancelRequest(t, id, bought)), "is being cancelled already")
		fixture.Advance(t, db, bought, end)
		report := fixture.Conclude(t, db, ref)
		want := fmt.Sprintf(`{"purchase_id":"%s","state":"%s","positions":[{"layer":2,"column":`, bought, state)
		j := fixture.Job(t, db, back.ID)
		if j.State != job.Succeeded || !strings.HasPrefix(string(j.Result), want) || !strings.Contains(string(j.Result), `"price":200}],"amount":200,"currency":"JPY",`) || !isAsOf(t, db, back.ID) || len(report.Finalized) != 2 {
			t.Errorf("%s: %s, %s, %+v", end, j.State, j.Result, report)
		}
		p, err := purchase.Get(t.Context(), db, access.Everything(), bought)
		if err != nil || p.State != state || p.Failure != nil || p.Cancellation == nil || p.Cancellation.By != "app:test" || *p.Cancellation.Reason != "a test" || p.CompletedAt != nil {
			t.Errorf("%s: %+v, %v", end, p, err)
		}
		refused(t, "a late cancellation", cancel(t, db, fixture.CancelRequest(t, id, bought)), "already")
	}
	bought, _ := fixture.Reserve(t, db, id, "a", 1, time.Hour)
	fixture.Advance(t, db, bought, payment.Expiring)
	refused(t, "what expires", cancel(t, db, fixture.CancelRequest(t, id, bought)), "already being cancelled")
	fixture.Sound(t, db)
}

func TestACompletedCardPurchaseIsRefundedWhenItIsCancelled(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	draft, limit := fixture.Draft(4), 2
	draft.PurchaseLimit = &limit
	id := fixture.Campaign(t, db, draft)
	bought, ref := fixture.BuyByCard(t, db, id, "a", 0, 2)
	backs := fixture.Accept(t, db, fixture.CancelRequest(t, id, bought), fixture.CancelRequest(t, id, bought))
	report := finalize(t, fixture.Seller(db), backs...)
	if j := fixture.Job(t, db, backs[0].ID); j.State != job.Succeeded || !strings.Contains(string(j.Result), `"state":"refunding"`) || len(report.Refunds) != 1 {
		t.Errorf("%s, %s, %+v", j.State, j.Result, report)
	}
	refused(t, "a second cancellation", fixture.Job(t, db, backs[1].ID), "refunding already")
	if got := nowOf(t, db, bought, ref); got != (now{purchase.Refunding, payment.Settled, job.Succeeded, "", payment.RefundPurchaseCancelled, 0, 0}) {
		t.Errorf("%+v", got)
	}
	if s := stepsOf(t, db, bought); s != "reserved refund-requested" {
		t.Errorf("steps %s", s)
	}
	again, _ := fixture.BuyByCard(t, db, id, "a", 0, 2) // the limit is free again
	if n := counts(t, db, id); n.Sold != 2 || n.Reserved != 0 {
		t.Errorf("counted %+v", n)
	}
	late := fixture.CancelRequest(t, id, again)
	servers.Exec(t, db, `UPDATE campaigns SET policies = policies || jsonb_build_object('cancellation_until', clock_timestamp() - interval '1 hour') WHERE id = $1`, id)
	refused(t, "after the deadline", cancel(t, db, late), "could be cancelled until")
	open, _ := fixture.Reserve(t, db, id, "b", 1, time.Hour)
	takeBack(t, db, id, open) // the deadline is for what is bought
	fixture.Sound(t, db)
}

// When a payment changes after it was final here, its money goes back, once.
func TestMoneyThatAppearsOnAFinalPurchaseIsRefundedOnce(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := fixture.Campaign(t, db, fixture.Draft(6))
	for name, c := range map[string]struct {
		ended  func(bought uuid.UUID)
		reason payment.RefundReason
	}{
		"failed":             {func(bought uuid.UUID) { fixture.EndAs(t, db, bought, payment.Declined) }, payment.RefundLatePayment},
		"cancelled":          {func(bought uuid.UUID) { takeBack(t, db, id, bought); fixture.Advance(t, db, bought, payment.Ended) }, payment.RefundPurchaseCancelled},
		"with its campaign":  {func(bought uuid.UUID) { fixture.EndAs(t, db, bought, payment.CampaignCancelled) }, payment.RefundCampaignCancelled},
		"its job is deleted": {func(bought uuid.UUID) { fixture.EndAs(t, db, bought, payment.Expired) }, payment.RefundLatePayment},
	} {
		bought, ref := fixture.Reserve(t, db, id, "a", 2, time.Hour)
		fixture.Advance(t, db, bought, payment.Confirming)
		c.ended(bought)
		fixture.Conclude(t, db, ref)
		first := fixture.Job(t, db, ref.ID)
		if p := fixture.Payment(t, db, bought); p.DueAt == nil || p.FinishedAt == nil {
			t.Errorf("%s: nobody looks at it once more: %+v", name, p)
		}
		if name == "its job is deleted" {
			servers.Exec(t, db, `DELETE FROM jobs WHERE id = $1`, ref.ID)
		}
		for round := range 2 {
			fixture.Advance(t, db, bought, payment.Captured)
			report := fixture.Conclude(t, db, ref)
			if (len(report.Refunds) == 1) != (round == 0) || len(report.Finalized) != 0 {
				t.Errorf("%s, round %d: %+v", name, round, report)
			}
		}
		p, err := purchase.Get(t.Context(), db, access.Everything(), bought)
		if err != nil || p.State != purchase.Refunding || fixture.Payment(t, db, bought).Phase != payment.RefundDue || (p.Cancellation != nil) != (name == "cancelled") {
			t.Errorf("%s: %+v, %v", name, p, err)
		}
		var reason payment.RefundReason
		if err := db.QueryRow(t.Context(), `SELECT reason FROM refunds WHERE purchase_id = $1`, bought).Scan(&reason); err != nil || reason != c.reason {
			t.Errorf("%s: refunded for %s, %v", name, reason, err)
		}
		if name != "its job is deleted" {
			if j := fixture.Job(t, db, ref.ID); j.State != first.State || j.Problem.Code != first.Problem.Code {
				t.Errorf("%s: the job was %+v and is %+v", name, first.Problem, j.Problem)
			}
		}
	}
	fixture.Sound(t, db)
}

func TestADeclineIsToldInTheWordsOfTheProvider(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := fixture.Campaign(t, db, fixture.Draft(3))
	bought, ref := fixture.Reserve(t, db, id, "a", 1, time.Hour)
	setPayment(t, db, bought, `decline = '{"code": "card_declined", "decline_code": "insufficient_funds", "advice": "try_again_later", "message": "Your card has insufficient funds."}'`)
	fixture.EndAs(t, db, bought, payment.Declined)
	fixture.Conclude(t, db, ref)
	p := fixture.Job(t, db, ref.ID).Problem
	if p.Code != fault.PaymentDeclined || p.Detail != "Your card has insufficient funds." || p.DeclineCode != "insufficient_funds" || p.Advice != "try_again_later" {
		t.Errorf("%+v", p)
	}
}

func TestManyPaymentsOfManyCampaignsAreConcludedTogether(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	var refs []job.Ref
	var ids, bought []uuid.UUID
	for i := range 4 {
		id := fixture.Campaign(t, db, fixture.Draft(8))
		var requests []job.Request
		for n := range 12 {
			requests = append(requests, fixture.CardRequest(t, id, fmt.Sprint(i, n), 0, 2))
		}
		accepted := fixture.Accept(t, db, requests...)
		report, err := fixture.Seller(db).Sell(t.Context(), accepted, sale.WaitForCampaign)
		if err != nil || len(report.Payments) != 12 {
			t.Fatalf("%+v, %v", report, err)
		}
		for n, p := range report.Payments {
			fixture.Advance(t, db, p.PurchaseID, []payment.Phase{payment.Captured, payment.Ended, payment.Action}[n%3])
			bought = append(bought, p.PurchaseID)
		}
		ids, refs = append(ids, id), append(refs, accepted...)
	}
	endCampaign(t, db, ids[3])
	report := fixture.Conclude(t, db, append(refs, refs...)...)
	if report.Sold != 3*4*2 || len(report.Refunds) != 4 || len(report.Finalized) != 4*8 {
		t.Errorf("sold %d, %d refunds, %d finalized", report.Sold, len(report.Refunds), len(report.Finalized))
	}
	for i, id := range ids {
		if n := counts(t, db, id); n.Reserved != 8 || n.Sold != map[bool]int{true: 0, false: 8}[i == 3] {
			t.Errorf("campaign %d: %+v", i, n)
		}
	}
	if n := len(bought); n != 48 {
		t.Errorf("%d payments", n)
	}
	fixture.Sound(t, db)
}
