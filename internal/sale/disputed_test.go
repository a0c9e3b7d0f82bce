package sale_test

import (
	"testing"
	"time"

	"triprize/internal/domain/access"
	"triprize/internal/domain/fault"
	"triprize/internal/job"
	"triprize/internal/payment"
	"triprize/internal/purchase"
	"triprize/internal/sale"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

func TestADisputedPurchaseIsCancelledByOperatorsOnly(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := fixture.Campaign(t, db, fixture.Draft(6))
	for name, c := range map[string]struct {
		dispute  string
		captured bool // and not finalized yet
		operator bool
		refused  bool
	}{
		"open":                  {`"status":"needs_response","refundable":false`, false, false, true},
		"lost":                  {`"status":"lost","refundable":false`, false, false, true},
		"won":                   {`"status":"won","refundable":true`, false, false, false},
		"only an inquiry":       {`"status":"warning_needs_response","refundable":true`, false, false, false},
		"an inquiry that holds": {`"status":"warning_under_review","refundable":false`, false, false, true},
		"of tomorrow's":         {`"status":"frozen","refundable":true`, false, false, false},
		"untold":                {`"status":"warning_needs_response"`, false, false, true},
		"none":                  {"", false, false, false},
		"open, by an operator":  {`"status":"needs_response","refundable":false`, false, true, false},
		"before it was final":   {`"status":"needs_response","refundable":false`, true, false, true},
	} {
		bought, ref := fixture.Reserve(t, db, id, "mina", 1, time.Hour)
		fixture.Advance(t, db, bought, payment.Captured)
		if !c.captured {
			fixture.Conclude(t, db, ref)
		}
		if c.dispute != "" {
			setPayment(t, db, bought, `disputed_at = clock_timestamp(), dispute = '{"id":"du_1","reason":"fraudulent",`+c.dispute+`}'`)
		}
		back := fixture.Accept(t, db, fixture.CancelRequestOf(t, id, sale.Cancellation{PurchaseID: bought, By: "app:shop", AnyTime: c.operator}))[0]
		finalize(t, fixture.Seller(db), back)
		j := fixture.Job(t, db, back.ID)
		p, err := purchase.Get(t.Context(), db, access.Everything(), bought)
		if err != nil {
			t.Fatal(err)
		}
		refused := j.State == job.Failed && j.Problem.Code == fault.PurchaseDisputed
		if refused != c.refused || !refused && (j.State != job.Succeeded || p.State != purchase.Refunding) || refused && p.State == purchase.Refunding {
			t.Errorf("%s: the cancellation is %s %+v, the purchase %s", name, j.State, j.Problem, p.State)
		}
		if c.captured {
			fixture.Conclude(t, db, ref)
		}
	}
}

// A dispute that is just being recorded has the payment's row: the cancellation waits for it.
func TestACancellationWaitsForADisputeThatIsBeingRecorded(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := fixture.Campaign(t, db, fixture.Draft(3))
	bought, _ := fixture.BuyByCard(t, db, id, "mina", 0, 1)
	back := fixture.Accept(t, db, fixture.CancelRequest(t, id, bought))
	tx, err := db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := payment.Lock(t.Context(), tx, bought); err != nil {
		t.Fatal(err)
	}
	report, err := fixture.Seller(db).Cancel(t.Context(), back, sale.SkipLocked)
	if err != nil || len(report.Busy) != 1 || len(report.Finalized) != 0 {
		t.Errorf("%+v, %v", report, err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	finalize(t, fixture.Seller(db), back[0])
	if j := fixture.Job(t, db, back[0].ID); j.State != job.Succeeded {
		t.Errorf("%s %+v", j.State, j.Problem)
	}
}

// A slow method cannot be cancelled at the provider. Its buyer is told of
// the cancellation when the positions are free, and not when the payment ends hours later; what it
// still brings goes back.
func TestTheCancellationOfASlowPaymentEndsWhenItsPositionsAreFree(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := fixture.Campaign(t, db, fixture.Draft(3))
	bought, ref := fixture.Reserve(t, db, id, "mina", 2, time.Hour)
	fixture.Advance(t, db, bought, payment.Processing)
	back := takeBack(t, db, id, bought)
	setPayment(t, db, bought, `uncancellable = true`)
	fixture.Conclude(t, db, ref) // its time is not over: the positions are still its own
	if j := fixture.Job(t, db, back.ID); j.State != job.Queued {
		t.Fatalf("too early: %s", j.State)
	}
	setPayment(t, db, bought, `deadline = clock_timestamp()`)
	fixture.Conclude(t, db, ref)
	j, p := fixture.Job(t, db, back.ID), fixture.Payment(t, db, bought)
	if j.State != job.Succeeded || p.Phase != payment.Cancelled || p.DueAt == nil {
		t.Errorf("the cancellation is %s, the payment %s, due at %v", j.State, p.Phase, p.DueAt)
	}
	if j := fixture.Job(t, db, ref.ID); j.State != job.Failed || j.Problem.Code != fault.PurchaseCancelled {
		t.Errorf("the purchase's job is %s %+v", j.State, j.Problem)
	}
	fixture.Sound(t, db)
	money := fixture.Payment(t, db, bought)
	money.Phase, money.Received = payment.Captured, money.Amount
	if err := payment.Write(t.Context(), db, &money, payment.Always, 0, nil); err != nil {
		t.Fatal(err)
	}
	fixture.Conclude(t, db, ref)
	if p, err := purchase.Get(t.Context(), db, access.Everything(), bought); err != nil || p.State != purchase.Refunding {
		t.Errorf("late money: the purchase is %s, %v", p.State, err)
	}
	fixture.Sound(t, db)
}
