package sale_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"triprize/internal/campaign"
	"triprize/internal/domain/access"
	"triprize/internal/domain/fault"
	"triprize/internal/inventory"
	"triprize/internal/job"
	"triprize/internal/payment"
	"triprize/internal/purchase"
	"triprize/internal/sale"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

// now is what is stored about a card purchase.
type now struct {
	Purchase purchase.State
	Payment  payment.Phase
	Job      job.State
	Code     fault.Code           // of the job; empty: it did not fail
	Refund   payment.RefundReason // empty: there is none
	Reserved int                  // positions of its buyer
	Sold     int
}

// nowOf reads what is stored about a card purchase.
func nowOf(t *testing.T, db *pgxpool.Pool, id uuid.UUID, ref job.Ref) (n now) {
	t.Helper()
	p, err := purchase.Get(t.Context(), db, access.Everything(), id)
	if err != nil {
		t.Fatal(err)
	}
	j := fixture.Job(t, db, ref.ID)
	n = now{Purchase: p.State, Payment: fixture.Payment(t, db, id).Phase, Job: j.State}
	if j.Problem != nil {
		n.Code = j.Problem.Code
	}
	err = db.QueryRow(t.Context(), `
		SELECT (SELECT coalesce(max(reason), '') FROM refunds WHERE purchase_id = $1 AND amount = $2 AND method = 'card' AND state = 'open' AND due_at IS NOT NULL),
		       count(*) FILTER (WHERE state = 'reserved'), count(*) FILTER (WHERE state = 'sold') FROM positions WHERE purchase_id = $1`, id, p.Amount).
		Scan(&n.Refund, &n.Reserved, &n.Sold)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// stepsOf returns the events of a purchase.
func stepsOf(t *testing.T, db *pgxpool.Pool, id uuid.UUID) string {
	t.Helper()
	steps, err := payment.StepsOf(t.Context(), db, []uuid.UUID{id})
	if err != nil {
		t.Fatal(err)
	}
	events := make([]string, len(steps))
	for i, s := range steps {
		events[i] = s.Event
	}
	return strings.Join(events, " ")
}

func counts(t *testing.T, db *pgxpool.Pool, id uuid.UUID) campaign.Counts {
	t.Helper()
	c, err := campaign.Get(t.Context(), db, id)
	if err != nil {
		t.Fatal(err)
	}
	return c.Counts
}

var (
	reserved  = now{purchase.Pending, payment.Reserved, job.Queued, "", "", 2, 0}
	completed = now{purchase.Completed, payment.Settled, job.Succeeded, "", "", 0, 2}
)

func TestACardOrderReservesAndIsSoldWhenItIsPaid(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := fixture.Campaign(t, db, fixture.Draft(4))
	ref := fixture.Accept(t, db, fixture.CardRequest(t, id, "a", 3, 2))[0]
	report, err := fixture.Seller(db).Sell(t.Context(), []job.Ref{ref}, sale.WaitForCampaign)
	if err != nil || len(report.Finalized) != 0 || len(report.Busy) != 0 || report.Sold != 0 || len(report.Payments) != 1 {
		t.Fatalf("%+v, %v", report, err)
	}
	pay := report.Payments[0]
	bought, j := pay.PurchaseID, fixture.Job(t, db, ref.ID)
	if pay != (payment.Ref{PurchaseID: bought, CampaignID: id, JobID: ref.ID}) || j.PurchaseID == nil || *j.PurchaseID != bought || j.Attempts != 1 {
		t.Errorf("the payment is %+v, the job %+v", pay, j)
	}
	if n := nowOf(t, db, bought, ref); n != reserved {
		t.Errorf("reserved: %+v", n)
	}
	if c := counts(t, db, id); c.Reserved != 2 || c.Sold != 0 {
		t.Errorf("counted: %+v", c)
	}
	p := fixture.Payment(t, db, bought)
	if p.Amount != 600 || p.Currency != "JPY" || p.PaymentMethod != "pm_card_visa" || p.ReturnURL != nil || p.Latest.Sub(p.Deadline) != time.Hour || p.DueAt == nil {
		t.Errorf("the payment is %+v", p)
	}
	fixture.Sound(t, db)
	if report, err := fixture.Seller(db).Sell(t.Context(), []job.Ref{ref}, sale.WaitForCampaign); err != nil || len(report.Finalized)+len(report.Payments)+len(report.Busy) != 0 {
		t.Errorf("delivered again: %+v, %v", report, err)
	}
	fixture.Advance(t, db, bought, payment.Captured)
	if report := fixture.Conclude(t, db, ref); report.Sold != 2 || len(report.Finalized) != 1 || len(report.Messages) != 0 {
		t.Errorf("concluded: %+v", report)
	}
	want := fmt.Sprintf(`{"purchase_id":"%s","positions":[`, bought)
	if j := fixture.Job(t, db, ref.ID); nowOf(t, db, bought, ref) != completed || !strings.HasPrefix(string(j.Result), want) || !strings.HasSuffix(string(j.Result), `],"amount":600,"currency":"JPY","board_version":2}`) {
		t.Errorf("paid: %+v, %s", nowOf(t, db, bought, ref), j.Result)
	}
	if got, err := purchase.Get(t.Context(), db, access.Everything(), bought); err != nil || got.CompletedAt == nil {
		t.Errorf("completed at %v, %v", got.CompletedAt, err)
	}
	if c := counts(t, db, id); c.Reserved != 0 || c.Sold != 2 {
		t.Errorf("counted: %+v", c)
	}
	if report := fixture.Conclude(t, db, ref); report.Sold != 0 || len(report.Finalized) != 0 {
		t.Errorf("concluded again: %+v", report)
	}
	if s := stepsOf(t, db, bought); s != "reserved" {
		t.Errorf("steps: %s", s)
	}
	fixture.Sound(t, db)
}

func TestWhatACardWantsIsReservedAsAnyOtherOrderIsServed(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	draft, limit := fixture.Draft(4), 2
	draft.PurchaseLimit = &limit
	id := fixture.Campaign(t, db, draft)
	hold := fixture.Hold(t, fixture.Holds(t, db, nil, nil), fixture.HoldRequest(id, "h", fixture.At(2, 1), fixture.At(2, 2))).ID
	card := sale.Payment{Method: purchase.Card, PaymentMethod: "pm_1", ReturnURL: "https://shop.test/back"}
	order := func(user string, selection inventory.Selection, pay sale.Payment) job.Request {
		return fixture.PurchaseRequestOf(t, id, sale.Order{UserID: user, Selection: selection, Payment: pay})
	}
	refs := fixture.Accept(t, db,
		order("c", fixture.Chosen(fixture.At(1, 1)), card), order("d", fixture.Chosen(fixture.At(1, 1)), card), // one gets it
		order("h", fixture.FromHold(hold), card), order("h", fixture.FromHold(hold), card), // once
		order("e", fixture.Random(0, 2), card), order("e", fixture.Random(0, 1), card), // no more than two
		order("f", fixture.Random(0, 1), sale.Payment{Method: purchase.Card}))
	report, err := fixture.Seller(db).Sell(t.Context(), refs, sale.WaitForCampaign)
	if err != nil || len(report.Payments) != 3 || report.HoldsUsed != 1 || len(report.Finalized) != 4 {
		t.Fatalf("%+v, %v", report, err)
	}
	for i, want := range []fault.Code{"", fault.PositionTaken, "", fault.StateConflict, "", fault.PurchaseLimitExceeded, fault.InvalidRequest} {
		j := fixture.Job(t, db, refs[i].ID)
		if want == "" && (j.State != job.Queued || j.PurchaseID == nil) || want != "" && (j.Problem == nil || j.Problem.Code != want) {
			t.Errorf("order %d: %s, %+v", i, j.State, j.Problem)
		}
	}
	if c := counts(t, db, id); c.Reserved != 5 {
		t.Errorf("counted: %+v", c)
	}
	if p := fixture.Payment(t, db, report.Payments[1].PurchaseID); p.PaymentMethod != "pm_1" || *p.ReturnURL != card.ReturnURL || p.Amount != 400 {
		t.Errorf("the payment is %+v", p)
	}
	fixture.Sound(t, db)
	fixture.Advance(t, db, report.Payments[1].PurchaseID, payment.Captured)
	fixture.EndAs(t, db, report.Payments[0].PurchaseID, payment.Expired)
	fixture.Conclude(t, db, refs...)
	if c := counts(t, db, id); c.Reserved != 2 || c.Sold != 2 {
		t.Errorf("concluded: %+v", c)
	}
	fixture.Sound(t, db)
}

// Pause, window and state count when positions are reserved, and not later.
func TestAPausedCampaignReservesNothingAndSettlesWhatIsPaid(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := fixture.Campaign(t, db, fixture.Draft(3))
	bought, ref := fixture.Reserve(t, db, id, "a", 2, time.Hour)
	for _, closed := range []string{`UPDATE campaigns SET paused_at = clock_timestamp() WHERE id = $1`,
		`UPDATE campaigns SET sale_ends_at = clock_timestamp() WHERE id = $1`} {
		servers.Exec(t, db, closed, id)
		late := fixture.Accept(t, db, fixture.CardRequest(t, id, "b", 0, 1))
		if report, err := fixture.Seller(db).Sell(t.Context(), late, sale.WaitForCampaign); err != nil || len(report.Payments) != 0 || len(report.Finalized) != 1 || report.Finalized[0].Problem == nil {
			t.Errorf("%+v, %v", report, err)
		}
	}
	fixture.Advance(t, db, bought, payment.Captured)
	fixture.Conclude(t, db, ref)
	if n := nowOf(t, db, bought, ref); n != completed {
		t.Errorf("%+v", n)
	}
}

func TestTheDrawBeginsWhenTheLastPositionIsPaidAndSettled(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	for name, last := range map[string]int{"one payment": 1, "two payments": 2} {
		id := fixture.Campaign(t, db, fixture.Draft(3))
		var bought []uuid.UUID
		var refs []job.Ref
		for i := range last {
			b, ref := fixture.Reserve(t, db, id, fmt.Sprint(i), 1, time.Hour)
			bought, refs = append(bought, b), append(refs, ref)
		}
		fixture.Sell(t, db, id, 6-last)
		for _, b := range bought {
			fixture.Advance(t, db, b, payment.Capturing)
		}
		fixture.Conclude(t, db, refs...)
		for _, b := range bought {
			fixture.Advance(t, db, b, payment.Captured)
		}
		if c, err := campaign.Get(t.Context(), db, id); err != nil || c.State != campaign.Active {
			t.Errorf("%s, captured: %s, %v", name, c.State, err)
		}
		report := fixture.Conclude(t, db, refs...)
		c, err := campaign.Get(t.Context(), db, id)
		if err != nil || c.State != campaign.Drawing || len(report.Messages) != 1 || report.Sold != last {
			t.Errorf("%s, finalized: %s, %+v, %v", name, c.State, report, err)
		}
	}
	fixture.Sound(t, db)
}

func TestAReservationIsNotSoldOut(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := fixture.Campaign(t, db, fixture.Draft(3))
	refs := fixture.Accept(t, db, fixture.CardRequest(t, id, "a", 0, 6), fixture.PurchaseRequest(t, id, "b", 0, 1), fixture.CardRequest(t, id, "b", 1, 1))
	report, err := fixture.Seller(db).Sell(t.Context(), refs, sale.WaitForCampaign)
	if err != nil || len(report.Payments) != 1 || len(report.Messages) != 0 {
		t.Fatalf("%+v, %v", report, err)
	}
	expectCodes(t, db, refs[1:], fault.NoneAvailable, fault.NoneAvailable)
}
