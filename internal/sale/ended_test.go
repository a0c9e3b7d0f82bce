package sale_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"triprize/internal/campaign"
	"triprize/internal/domain/fault"
	"triprize/internal/inventory"
	"triprize/internal/job"
	"triprize/internal/payment"
	"triprize/internal/purchase"
	"triprize/internal/sale"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

// aLongSale is how long the sales of these tests last: nothing here takes so long.
const aLongSale = 24 * time.Hour

// endSale ends a sale, as the sweep does.
func endSale(t *testing.T, db *pgxpool.Pool, id uuid.UUID) sale.End {
	t.Helper()
	end, err := fixture.Seller(db).EndSale(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return end
}

func expectState(t *testing.T, db *pgxpool.Pool, id uuid.UUID, want campaign.State) {
	t.Helper()
	if c, err := campaign.Get(t.Context(), db, id); err != nil || c.State != want {
		t.Errorf("the campaign is %s, wanted %s; %v", c.State, want, err)
	}
}

// drawJobs counts the draw jobs of a campaign.
func drawJobs(t *testing.T, db *pgxpool.Pool, id uuid.UUID) (n int) {
	t.Helper()
	if err := db.QueryRow(t.Context(), `SELECT count(*) FROM jobs WHERE campaign_id = $1 AND kind = 'draw'`, id).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestFromItsEndOnNothingIsSoldHeldOrReserved(t *testing.T) {
	t.Parallel()
	db, clock := servers.DBWithClock(t)
	id, service := fixture.Campaign(t, db, fixture.DrawnAtEnd(5, aLongSale)), fixture.Holds(t, db, nil, nil)
	fixture.Wallet(t, db, "w", 10_000)
	held := fixture.Hold(t, service, fixture.HoldRequest(id, "h", fixture.At(5, 5))) // before others get it by chance
	fixture.Sell(t, db, id, 2)
	bought := fixture.Buy(t, db, id, "b", 0, 1)
	clock.MoveOn(aLongSale)
	if _, err := fixture.TryHold(t, service, fixture.HoldAnyRequest(id, "h", 0, 1)); fault.CodeOf(err) != fault.SaleNotOpen {
		t.Errorf("a hold: %v", err)
	}
	jobs := fixture.Finalize(t, db, fixture.PurchaseRequest(t, id, "e", 0, 1), fixture.WalletRequest(t, id, "w", 0, 1), fixture.CardRequest(t, id, "c", 0, 1),
		fixture.ChosenRequest(t, id, "d", fixture.At(5, 1)), fixture.HeldRequest(t, id, "h", held.ID))
	for i, j := range jobs {
		if j.State != job.Failed || j.Problem.Code != fault.SaleNotOpen {
			t.Errorf("order %d: %s, %+v", i, j.State, j.Problem)
		}
	}
	endSale(t, db, id)
	expectState(t, db, id, campaign.Drawing)
	refused(t, "a cancellation", cancel(t, db, fixture.CancelRequest(t, id, bought)), "drawing: its sale has ended")
	if n := drawJobs(t, db, id); n != 1 {
		t.Errorf("%d draw jobs", n)
	}
	if n := counts(t, db, id); n.Sold != 3 || n.Reserved != 0 {
		t.Errorf("counted %+v", n)
	}
	if h := fixture.HoldNow(t, db, held.ID); h.State == inventory.HoldActive || h.EndedAt == nil {
		t.Errorf("its hold is %+v", h)
	}
	fixture.Sound(t, db)
}

// An earlier release makes holds that last longer than the sale.
func TestAHoldThatOutlastsTheSaleEndsWithIt(t *testing.T) {
	t.Parallel()
	db, clock := servers.DBWithClock(t)
	id, service := fixture.Campaign(t, db, fixture.DrawnAtEnd(4, aLongSale)), fixture.Holds(t, db, nil, nil)
	held := fixture.Hold(t, service, fixture.HoldRequest(id, "h", fixture.At(4, 1), fixture.At(4, 2)))
	fixture.MoveDeadline(t, db, held, 2*aLongSale)
	clock.MoveOn(aLongSale)
	if end := endSale(t, db, id); !end.Ended || end.Holds != 1 {
		t.Errorf("%+v", end)
	}
	if h := fixture.HoldNow(t, db, held.ID); h.State != inventory.HoldReleased {
		t.Errorf("it is %+v", h)
	}
	fixture.Sound(t, db)
}

func TestASaleIsNotEndedBeforeItsEnd(t *testing.T) {
	t.Parallel()
	db, clock := servers.DBWithClock(t)
	id := fixture.Campaign(t, db, fixture.DrawnAtEnd(4, aLongSale))
	stays := fixture.DrawnAtEnd(4, aLongSale)
	stays.Policies.Unsold = campaign.UnsoldStay
	other := fixture.Campaign(t, db, stays)
	fixture.Sell(t, db, id, 2)
	for _, of := range []uuid.UUID{id, other, uuid.New()} {
		if end := endSale(t, db, of); end.Ended || len(end.Messages) > 0 {
			t.Errorf("%+v", end)
		}
	}
	bought, ref := fixture.Reserve(t, db, id, "a", 1, time.Hour)
	fixture.EndAs(t, db, bought, payment.Declined)
	fixture.Conclude(t, db, ref) // the last reservation ends, and the sale goes on
	expectState(t, db, id, campaign.Active)
	clock.MoveOn(2 * aLongSale)
	if end := endSale(t, db, other); end.Ended {
		t.Errorf("one that stays: %+v", end)
	}
	expectState(t, db, other, campaign.Active)
	fixture.Sound(t, db)
}

func TestAPausedSaleEndsAsWell(t *testing.T) {
	t.Parallel()
	db, clock := servers.DBWithClock(t)
	id := fixture.Campaign(t, db, fixture.DrawnAtEnd(4, aLongSale))
	servers.Exec(t, db, `UPDATE campaigns SET paused_at = clock_timestamp() WHERE id = $1`, id)
	clock.MoveOn(aLongSale)
	if end := endSale(t, db, id); !end.Ended {
		t.Errorf("%+v", end)
	}
	fixture.Sound(t, db)
}

func TestTheLastReservationThatEndsBeginsTheDraw(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		ends func(t *testing.T, db *pgxpool.Pool, bought uuid.UUID)
		sold int
	}{
		"it is paid": {func(t *testing.T, db *pgxpool.Pool, bought uuid.UUID) {
			fixture.Advance(t, db, bought, payment.Captured)
		}, 4},
		"it is declined": {func(t *testing.T, db *pgxpool.Pool, bought uuid.UUID) { fixture.EndAs(t, db, bought, payment.Declined) }, 2},
		"it is given up": {func(t *testing.T, db *pgxpool.Pool, bought uuid.UUID) { fixture.EndAs(t, db, bought, payment.Expired) }, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, clock := servers.DBWithClock(t)
			id := fixture.Campaign(t, db, fixture.DrawnAtEnd(4, aLongSale))
			fixture.Sell(t, db, id, 1)
			first, firstRef := fixture.Reserve(t, db, id, "a", 1, 2*aLongSale)
			last, lastRef := fixture.Reserve(t, db, id, "b", 2, 2*aLongSale)
			clock.MoveOn(aLongSale)
			if end := endSale(t, db, id); end.Ended || end.GivenUp != 0 {
				t.Errorf("with open payments: %+v", end)
			}
			fixture.Advance(t, db, first, payment.Captured)
			if report := fixture.Conclude(t, db, firstRef); report.Sold != 1 || len(report.Messages) != 0 {
				t.Errorf("the first: %+v", report)
			}
			expectState(t, db, id, campaign.Active)
			c.ends(t, db, last)
			report := fixture.Conclude(t, db, lastRef)
			if len(report.Messages) != 1 || report.Messages[0].Kind != job.KindDraw {
				t.Errorf("the last: %+v", report)
			}
			expectState(t, db, id, campaign.Drawing)
			if n := counts(t, db, id); n.Sold != c.sold || n.Reserved != 0 {
				t.Errorf("counted %+v", n)
			}
			if end := endSale(t, db, id); end.Ended || drawJobs(t, db, id) != 1 {
				t.Errorf("again: %+v, %d draw jobs", end, drawJobs(t, db, id))
			}
			fixture.Sound(t, db)
		})
	}
}

// The provider tells nothing about a payment that was given up and should have ended, with
// every extension: the draw does not wait for it, and its money goes back when it comes.
func TestNoReservationThatWasGivenUpIsWaitedForLongerThanItsExtensions(t *testing.T) {
	t.Parallel()
	for _, takenBack := range []bool{false, true} {
		t.Run(fmt.Sprintf("taken back %t", takenBack), func(t *testing.T) {
			t.Parallel()
			db, clock := servers.DBWithClock(t)
			draft := fixture.DrawnAtEnd(4, aLongSale)
			draft.Policies.LatePayment = campaign.LatePaymentReassign
			id := fixture.Campaign(t, db, draft)
			fixture.Sell(t, db, id, 3)
			bought, ref := fixture.Reserve(t, db, id, "a", 2, aLongSale)
			fixture.Advance(t, db, bought, payment.Confirming)
			if takenBack {
				takeBack(t, db, id, bought)
			} else {
				fixture.Advance(t, db, bought, payment.Expiring)
			}
			clock.MoveOn(aLongSale)
			if end := endSale(t, db, id); end.Ended || end.GivenUp != 0 {
				t.Errorf("while it can be extended: %+v", end)
			}
			clock.MoveOn(fixture.Reservations.MaxExtension)
			if end := endSale(t, db, id); !end.Ended || end.GivenUp != 1 {
				t.Errorf("when it should have ended: %+v", end)
			}
			expectState(t, db, id, campaign.Drawing)
			want := now{purchase.Pending, payment.Late, job.Queued, "", "", 0, 0}
			if takenBack {
				want = now{purchase.Cancelled, payment.Cancelled, job.Failed, fault.PurchaseCancelled, "", 0, 0}
			}
			if got := nowOf(t, db, bought, ref); got != want {
				t.Errorf("%+v; want %+v", got, want)
			}
			fixture.Sound(t, db)
			fixture.Advance(t, db, bought, payment.Captured)
			report := fixture.Conclude(t, db, ref)
			if len(report.Refunds) != 1 || report.Sold != 0 || len(report.Messages) != 0 {
				t.Errorf("paid after all: %+v", report)
			}
			if got := nowOf(t, db, bought, ref); got.Purchase != purchase.Refunding || got.Payment != payment.RefundDue || got.Sold != 0 {
				t.Errorf("paid after all: %+v", got)
			}
			if n := counts(t, db, id); n.Sold != 3 || n.Reserved != 0 {
				t.Errorf("counted %+v", n)
			}
			fixture.Sound(t, db)
		})
	}
}

// Its buyer has paid in time: the draw waits for the money, however long it takes.
func TestAPaymentThatIsBeingCapturedIsWaitedForAtTheEndOfTheSale(t *testing.T) {
	t.Parallel()
	db, clock := servers.DBWithClock(t)
	id := fixture.Campaign(t, db, fixture.DrawnAtEnd(4, aLongSale))
	fixture.Sell(t, db, id, 3)
	bought, ref := fixture.Reserve(t, db, id, "a", 2, aLongSale)
	fixture.Advance(t, db, bought, payment.Capturing)
	clock.MoveOn(10 * aLongSale)
	if end := endSale(t, db, id); end.Ended || end.GivenUp != 0 {
		t.Errorf("while it is captured: %+v", end)
	}
	expectState(t, db, id, campaign.Active)
	fixture.Advance(t, db, bought, payment.Captured) // by the worker that has it: nobody has fenced it
	if report := fixture.Conclude(t, db, ref); report.Sold != 2 || len(report.Messages) != 1 || len(report.Refunds) != 0 {
		t.Errorf("it is paid: %+v", report)
	}
	expectState(t, db, id, campaign.Drawing)
	fixture.Sound(t, db)
}

// Between the end and the draw, too: nothing new is sold.
func TestLateMoneyAfterTheEndIsRefundedWhateverThePolicy(t *testing.T) {
	t.Parallel()
	db, clock := servers.DBWithClock(t)
	draft := fixture.DrawnAtEnd(4, aLongSale)
	draft.Policies.LatePayment = campaign.LatePaymentReassign
	id := fixture.Campaign(t, db, draft)
	before, beforeRef := late(t, db, fixture.CardRequest(t, id, "a", 0, 1))
	fixture.Conclude(t, db, beforeRef)
	if got := nowOf(t, db, before, beforeRef); got.Purchase != purchase.Completed {
		t.Errorf("before the end: %+v", got)
	}
	bought, ref := late(t, db, fixture.CardRequest(t, id, "a", 0, 1))
	drawing, drawingRef := late(t, db, fixture.CardRequest(t, id, "b", 0, 1))
	fixture.Reserve(t, db, id, "c", 1, 2*aLongSale) // keeps it from being drawn
	clock.MoveOn(aLongSale)
	back := now{purchase.Refunding, payment.RefundDue, job.Failed, fault.ReservationExpired, payment.RefundLatePayment, 0, 0}
	fixture.Conclude(t, db, ref)
	if got := nowOf(t, db, bought, ref); got != back {
		t.Errorf("after the end: %+v", got)
	}
	expectState(t, db, id, campaign.Active)
	clock.MoveOn(2 * aLongSale)
	if _, err := sale.ExpireReservations(t.Context(), db, 10); err != nil {
		t.Fatal(err)
	}
	servers.Exec(t, db, `UPDATE payments SET phase = 'ended' WHERE phase = 'expiring'`)
	var open job.Ref
	if err := db.QueryRow(t.Context(), `SELECT job_id, campaign_id FROM payments WHERE phase = 'ended'`).Scan(&open.ID, &open.CampaignID); err != nil {
		t.Fatal(err)
	}
	if report := fixture.Conclude(t, db, open); len(report.Messages) != 1 {
		t.Errorf("the last reservation: %+v", report)
	}
	expectState(t, db, id, campaign.Drawing)
	fixture.Conclude(t, db, drawingRef)
	if got := nowOf(t, db, drawing, drawingRef); got != back {
		t.Errorf("when it is drawn: %+v", got)
	}
	fixture.Sound(t, db)
}

func TestTheSweepAndTheLastConclusionAtOnceBeginOneDraw(t *testing.T) {
	t.Parallel()
	db, clock := servers.DBWithClock(t)
	var ids []uuid.UUID
	var refs []job.Ref
	for range 10 {
		id := fixture.Campaign(t, db, fixture.DrawnAtEnd(3, aLongSale))
		bought, ref := fixture.Reserve(t, db, id, "a", 1, 2*aLongSale)
		fixture.Advance(t, db, bought, payment.Captured)
		ids, refs = append(ids, id), append(refs, ref)
	}
	clock.MoveOn(aLongSale)
	for i, id := range ids {
		unlock, begun := fixture.LockCampaign(t, db, id), make(chan int, 3)
		for range 2 {
			go func() { begun <- len(endSale(t, db, id).Messages) }()
		}
		go func() { begun <- len(fixture.Conclude(t, db, refs[i]).Messages) }()
		servers.AwaitBlocked(t, db, 3)
		unlock()
		if n := <-begun + <-begun + <-begun; n != 1 || drawJobs(t, db, id) != 1 {
			t.Errorf("%d began the draw, %d jobs", n, drawJobs(t, db, id))
		}
		expectState(t, db, id, campaign.Drawing)
		if n := counts(t, db, id); n.Sold != 1 || n.Reserved != 0 {
			t.Errorf("counted %+v", n)
		}
	}
	fixture.Sound(t, db)
}

func TestWhatIsSoldOutBeforeItsEndIsDrawnAtOnce(t *testing.T) {
	t.Parallel()
	db, clock := servers.DBWithClock(t)
	id := fixture.Campaign(t, db, fixture.DrawnAtEnd(3, aLongSale))
	if drawJob := fixture.SellOut(t, db, id); drawJob.ID == uuid.Nil {
		t.Error("no draw job")
	}
	expectState(t, db, id, campaign.Drawing)
	clock.MoveOn(aLongSale)
	if end := endSale(t, db, id); end.Ended || drawJobs(t, db, id) != 1 {
		t.Errorf("at its end: %+v", end)
	}
	fixture.Sound(t, db)
}
