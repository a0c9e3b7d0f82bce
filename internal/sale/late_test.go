package sale_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"triprize/internal/campaign"
	"triprize/internal/domain/access"
	"triprize/internal/domain/fault"
	"triprize/internal/job"
	"triprize/internal/payment"
	"triprize/internal/purchase"
	"triprize/internal/sale"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

// late makes a payment for positions of a campaign that is late: they are free again, and
// its money is there.
func late(t *testing.T, db *pgxpool.Pool, request job.Request) (bought uuid.UUID, ref job.Ref) {
	t.Helper()
	bought, ref = fixture.ReserveFor(t, db, request, time.Hour)
	fixture.Advance(t, db, bought, payment.Processing)
	fixture.Advance(t, db, bought, payment.Expiring)
	setPayment(t, db, bought, `uncancellable = true, deadline = clock_timestamp()`)
	fixture.Conclude(t, db, ref)
	if p := fixture.Payment(t, db, bought); p.Phase != payment.Late || p.DueAt == nil {
		t.Fatalf("not late: %+v", p)
	}
	fixture.Advance(t, db, bought, payment.Captured)
	return bought, ref
}

// reassigning publishes a campaign that gives late money other positions.
func reassigning(t *testing.T, db *pgxpool.Pool, limit int) uuid.UUID {
	t.Helper()
	draft := fixture.Draft(4)
	draft.Policies.LatePayment = campaign.LatePaymentReassign
	if limit > 0 {
		draft.PurchaseLimit = &limit
	}
	return fixture.Campaign(t, db, draft)
}

func TestLateMoneyGetsOtherPositionsOfItsLayersOrGoesBack(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	service := fixture.Holds(t, db, nil, nil)
	back := now{purchase.Refunding, payment.RefundDue, job.Failed, fault.ReservationExpired, payment.RefundLatePayment, 0, 0}
	// In each case a buyer wants 2/1, and both positions of layer 3 that a chosen order takes.
	for name, c := range map[string]struct {
		limit   int
		happens func(id uuid.UUID)
		want    now
	}{
		"all is free": {0, func(uuid.UUID) {}, now{purchase.Completed, payment.Settled, job.Succeeded, "", "", 0, 3}},
		"others are free": {0, func(id uuid.UUID) {
			fixture.Finalize(t, db, fixture.ChosenRequest(t, id, "b", fixture.At(2, 1), fixture.At(3, 1)))
		}, now{purchase.Completed, payment.Settled, job.Succeeded, "", "", 0, 3}},
		"a layer is short": {0, func(id uuid.UUID) {
			fixture.Finalize(t, db, fixture.ChosenRequest(t, id, "b", fixture.At(3, 1), fixture.At(3, 3)))
		}, back},
		"others hold it": {0, func(id uuid.UUID) {
			fixture.Hold(t, service, fixture.HoldRequest(id, "h", fixture.At(2, 1), fixture.At(2, 2)))
		}, back},
		"a hold of it is over": {0, func(id uuid.UUID) {
			fixture.EndHold(t, db, fixture.Hold(t, service, fixture.HoldRequest(id, "h", fixture.At(2, 1), fixture.At(2, 2))))
		}, now{purchase.Completed, payment.Settled, job.Succeeded, "", "", 0, 3}},
		"another has reserved it": {0, func(id uuid.UUID) { fixture.ReserveFor(t, db, fixture.CardRequest(t, id, "b", 2, 2), time.Hour) }, back},
		"the limit allows it":     {4, func(id uuid.UUID) { fixture.Buy(t, db, id, "a", 4, 1) }, now{purchase.Completed, payment.Settled, job.Succeeded, "", "", 0, 3}},
		"the limit forbids it":    {3, func(id uuid.UUID) { fixture.Buy(t, db, id, "a", 4, 1) }, back},
		"the sale is paused": {0, func(id uuid.UUID) {
			if _, err := db.Exec(t.Context(), `UPDATE campaigns SET paused_at = clock_timestamp() WHERE id = $1`, id); err != nil {
				t.Error(err)
			}
		}, now{purchase.Completed, payment.Settled, job.Succeeded, "", "", 0, 3}},
		"the campaign is cancelled": {0, func(id uuid.UUID) { endCampaign(t, db, id) },
			now{purchase.Refunding, payment.RefundDue, job.Failed, fault.CampaignNotActive, payment.RefundCampaignCancelled, 0, 0}},
		"it is sold out": {0, func(id uuid.UUID) { fixture.SellOut(t, db, id) }, back},
	} {
		id := reassigning(t, db, c.limit)
		bought, ref := late(t, db, fixture.PurchaseRequestOf(t, id, sale.Order{UserID: "a", Selection: fixture.Chosen(fixture.At(2, 1), fixture.At(3, 1), fixture.At(3, 2)),
			Payment: sale.Payment{Method: purchase.Card, PaymentMethod: "pm"}}))
		c.happens(id)
		before := counts(t, db, id)
		fixture.Conclude(t, db, ref)
		if got := nowOf(t, db, bought, ref); got != c.want {
			t.Errorf("%s: %+v; want %+v", name, got, c.want)
		}
		p, err := purchase.Get(t.Context(), db, access.Everything(), bought)
		if err != nil || p.Amount != 800 || len(p.Items) != 3 || p.Items[0].Layer != 2 || p.Items[1].Layer != 3 || p.Items[2].Layer != 3 {
			t.Errorf("%s: %+v, %v", name, p, err)
		}
		want := "reserved released payment-late reassigned"
		if n := counts(t, db, id); n.Sold != before.Sold+c.want.Sold {
			t.Errorf("%s: counted %+v, before %+v", name, n, before)
		}
		if c.want == back {
			want = "reserved released payment-late refund-requested"
		} else if c.want.Sold == 0 {
			want = "reserved released refund-requested"
		} else if got := resultOf(t, fixture.Job(t, db, ref.ID)); len(got.Positions) != 3 || got.Positions[0].Position != p.Items[0].Position {
			t.Errorf("%s: the result is %+v", name, got)
		}
		if s := stepsOf(t, db, bought); s != want {
			t.Errorf("%s: steps %s", name, s)
		}
	}
	fixture.Sound(t, db)
}

func TestWithoutAPolicyLateMoneyGoesBack(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := fixture.Campaign(t, db, fixture.Draft(4)) // refund is the default
	bought, ref := late(t, db, fixture.CardRequest(t, id, "a", 0, 2))
	report := fixture.Conclude(t, db, ref)
	want := now{purchase.Refunding, payment.RefundDue, job.Failed, fault.ReservationExpired, payment.RefundLatePayment, 0, 0}
	if got := nowOf(t, db, bought, ref); got != want || len(report.Refunds) != 1 || report.Sold != 0 {
		t.Errorf("%+v, %+v", got, report)
	}
	fixture.Sound(t, db)
}

func TestALatePaymentThatDoesNotComeFailsItsJob(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := fixture.Campaign(t, db, fixture.Draft(4))
	bought, ref := late(t, db, fixture.CardRequest(t, id, "a", 0, 2))
	fixture.EndAs(t, db, bought, payment.Expired)
	fixture.Conclude(t, db, ref)
	if got := nowOf(t, db, bought, ref); got != (now{purchase.Failed, payment.Cancelled, job.Failed, fault.ReservationExpired, "", 0, 0}) {
		t.Errorf("%+v", got)
	}
	if n := counts(t, db, id); n.Reserved != 0 || n.Sold != 0 {
		t.Errorf("counted %+v", n)
	}
	fixture.Sound(t, db)
}

// Several late payments share what is free, in their order, and the last position begins
// the draw.
func TestLatePaymentsShareWhatIsFreeAndTheLastOneEndsTheSale(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := reassigning(t, db, 2)
	_, first := late(t, db, fixture.CardRequest(t, id, "a", 4, 2))
	_, second := late(t, db, fixture.CardRequest(t, id, "a", 4, 1)) // over the limit with the first
	_, third := late(t, db, fixture.CardRequest(t, id, "b", 4, 2))
	_, fourth := late(t, db, fixture.CardRequest(t, id, "c", 4, 1)) // nothing is left
	fixture.Finalize(t, db, fixture.PurchaseRequest(t, id, "d", 1, 1), fixture.PurchaseRequest(t, id, "e", 2, 2), fixture.PurchaseRequest(t, id, "f", 3, 2), fixture.PurchaseRequest(t, id, "g", 3, 1))
	report := fixture.Conclude(t, db, first, second, third, fourth)
	if report.Sold != 4 || len(report.Refunds) != 2 || len(report.Messages) != 1 {
		t.Errorf("%+v", report)
	}
	expectCodes(t, db, []job.Ref{first, second, third, fourth}, "", fault.ReservationExpired, "", fault.ReservationExpired)
	if c, err := campaign.Get(t.Context(), db, id); err != nil || c.State != campaign.Drawing {
		t.Errorf("the campaign is %s, %v", c.State, err)
	}
	fixture.Sound(t, db)
}
