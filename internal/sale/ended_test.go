package sale_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"triprize/internal/campaign"
	"triprize/internal/domain/fault"
	"triprize/internal/domain/shape"
	"triprize/internal/inventory"
	"triprize/internal/job"
	"triprize/internal/lease"
	"triprize/internal/lifecycle"
	"triprize/internal/payment"
	"triprize/internal/platform/postgres"
	"triprize/internal/purchase"
	"triprize/internal/sale"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

// aLongSale is how long the sales of these tests last: nothing here takes so long.
const aLongSale = 24 * time.Hour

// endSale ends a sale, as the sweep does, and compares what the campaign is then, how many holds have ended, how
// many payments were given up, and how many draws have begun by this.
func endSale(t *testing.T, db *pgxpool.Pool, id uuid.UUID, want string) {
	t.Helper()
	end, err := fixture.Seller(db).EndSale(t.Context(), id)
	servers.NoError(t, err)
	got := fmt.Sprintf("%s, %d holds, %d payments, %d draws", campaignOf(t, db, id).State, end.Holds, end.GivenUp, len(end.Messages))
	if got != want || end.Ended != (len(end.Messages) == 1) {
		t.Errorf("%s, %+v; want %s", got, end, want)
	}
}

// endingSale is a sale that is drawn at its end, of which some positions are sold and two are reserved for a
// while.
func endingSale(t *testing.T, sold int, ttl time.Duration) (db *pgxpool.Pool, clock *servers.Clock, id, bought uuid.UUID, ref job.Ref) {
	t.Helper()
	db, clock = servers.DBWithClock(t)
	id = fixture.Campaign(t, db, fixture.DrawnAtEnd(4, aLongSale))
	fixture.Sell(t, db, id, sold)
	bought, ref = fixture.Reserve(t, db, id, "a", 2, ttl)
	return db, clock, id, bought, ref
}

// drawJobs counts the draw jobs of a campaign.
func drawJobs(t *testing.T, db *pgxpool.Pool, id uuid.UUID) int {
	t.Helper()
	return servers.Value[int](t, db, `SELECT count(*) FROM jobs WHERE campaign_id = $1 AND kind = 'draw'`, id)
}

func TestFromItsEndOnNothingIsSoldHeldOrReserved(t *testing.T) {
	t.Parallel()
	db, clock := servers.DBWithClock(t)
	id, service := fixture.Campaign(t, db, fixture.DrawnAtEnd(5, aLongSale)), fixture.Holds(t, db, nil, nil)
	fixture.Wallet(t, db, "w", 10_000)
	held := fixture.Hold(t, service, fixture.HoldRequest(id, "h", at(5, 5))) // before others get it by chance
	fixture.Sell(t, db, id, 2)
	bought := fixture.Buy(t, db, id, "b", 0, 1)
	clock.MoveOn(aLongSale)
	if _, err := fixture.TryHold(t, service, fixture.HoldAnyRequest(id, "h", 0, 1)); fault.CodeOf(err) != fault.SaleNotOpen {
		t.Errorf("a hold: %v", err)
	}
	expect(t, "orders", fixture.Complete(t, db, fixture.PurchaseRequest(t, id, "e", 0, 1), fixture.WalletRequest(t, id, "w", 0, 1), fixture.CardRequest(t, id, "c", 0, 1),
		fixture.ChosenRequest(t, id, "d", at(5, 1)), fixture.HeldRequest(t, id, "h", held.ID)), "sale-not-open", "sale-not-open", "sale-not-open", "sale-not-open", "sale-not-open")
	servers.Exec(t, db, `UPDATE campaigns SET paused_at = clock_timestamp()`) // a paused sale ends as well
	endSale(t, db, id, "drawing, 0 holds, 0 payments, 1 draws")
	refused(t, "a cancellation", cancel(t, db, fixture.CancelRequest(t, id, bought)), "drawing: its sale has ended")
	if n := counts(t, db, id); n.Sold != 3 || n.Reserved != 0 || drawJobs(t, db, id) != 1 {
		t.Errorf("counted %+v", n)
	}
	if h := fixture.HoldNow(t, db, held.ID); h.State == inventory.HoldActive || h.EndedAt == nil {
		t.Errorf("its hold is %+v", h)
	}
	fixture.Sound(t, db)
}

func TestASaleIsNotEndedBeforeItsEndAndNotTwice(t *testing.T) {
	t.Parallel()
	db, clock := servers.DBWithClock(t)
	id, soldOut, stays := fixture.Campaign(t, db, fixture.DrawnAtEnd(4, aLongSale)), fixture.Campaign(t, db, fixture.DrawnAtEnd(3, aLongSale)), fixture.DrawnAtEnd(4, aLongSale)
	stays.Policies.Unsold = campaign.UnsoldStay
	other := fixture.Campaign(t, db, stays)
	fixture.Sell(t, db, id, 2)
	fixture.SellOut(t, db, soldOut)
	for _, of := range []uuid.UUID{id, other} {
		endSale(t, db, of, "active, 0 holds, 0 payments, 0 draws")
	}
	if end, err := fixture.Seller(db).EndSale(t.Context(), uuid.New()); err != nil || end.Ended {
		t.Errorf("of no campaign: %+v, %v", end, err)
	}
	bought, ref := fixture.Reserve(t, db, id, "a", 1, time.Hour)
	fixture.EndAs(t, db, bought, payment.Declined)
	fixture.SettlePayments(t, db, ref) // the last reservation ends, and the sale goes on
	expectState(t, db, id, campaign.Active)
	clock.MoveOn(2 * aLongSale)
	endSale(t, db, other, "active, 0 holds, 0 payments, 0 draws")
	endSale(t, db, soldOut, "drawing, 0 holds, 0 payments, 0 draws") // since it was sold out
	if n := drawJobs(t, db, soldOut); n != 1 {
		t.Errorf("%d draw jobs", n)
	}
	fixture.Sound(t, db)
}

func TestTheLastReservationThatEndsBeginsTheDraw(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		until, ends payment.Phase // until the end of the sale, and then
		over        time.Duration // then
		sold        int
	}{
		"it is paid":             {payment.Reserved, payment.Captured, aLongSale, 4},
		"it is given up":         {payment.Reserved, payment.Ended, aLongSale, 2},
		"its buyer paid in time": {payment.Capturing, payment.Captured, 10 * aLongSale, 4}, // the draw waits for the money, however long it takes
	} {
		db, clock, id, last, lastRef := endingSale(t, 1, 2*aLongSale)
		first, firstRef := fixture.Reserve(t, db, id, "b", 1, 2*aLongSale)
		fixture.Advance(t, db, first, payment.Capturing)
		fixture.Advance(t, db, last, c.until)
		clock.MoveOn(c.over)
		endSale(t, db, id, "active, 0 holds, 0 payments, 0 draws")
		fixture.Advance(t, db, first, payment.Captured)
		if report := fixture.SettlePayments(t, db, firstRef); report.Sold != 1 || len(report.Messages) != 0 {
			t.Errorf("%s: the first: %+v", name, report)
		}
		expectState(t, db, id, campaign.Active)
		fixture.Advance(t, db, last, c.ends)
		if report := fixture.SettlePayments(t, db, lastRef); len(report.Messages) != 1 || report.Messages[0].Kind != job.KindDraw || len(report.Due) != 0 {
			t.Errorf("%s: %+v", name, report)
		}
		endSale(t, db, id, "drawing, 0 holds, 0 payments, 0 draws")
		if n := counts(t, db, id); n.Sold != c.sold || n.Reserved != 0 || drawJobs(t, db, id) != 1 {
			t.Errorf("%s: counted %+v", name, n)
		}
		fixture.Sound(t, db)
	}
}

// The provider tells nothing about a payment that was given up and should have ended, with
// every extension: the draw does not wait for it, and its money goes back when it comes.
func TestNoReservationThatWasGivenUpIsWaitedForLongerThanItsExtensions(t *testing.T) {
	t.Parallel()
	for _, takenBack := range []bool{false, true} {
		db, clock, id, bought, ref := endingSale(t, 3, aLongSale)
		fixture.Advance(t, db, bought, payment.Confirming)
		want := now{purchase.Pending, payment.Late, job.Queued, "", "", 0, 0}
		if takenBack {
			takeBack(t, db, id, bought)
			want = now{purchase.Cancelled, payment.Cancelled, job.Failed, fault.PurchaseCancelled, "", 0, 0}
		} else {
			fixture.Advance(t, db, bought, payment.Expiring)
		}
		clock.MoveOn(aLongSale)
		endSale(t, db, id, "active, 0 holds, 0 payments, 0 draws") // while it can be extended
		clock.MoveOn(fixture.Reservations.MaxExtension)
		endSale(t, db, id, "drawing, 0 holds, 1 payments, 1 draws") // when it should have ended
		if got := nowOf(t, db, bought, ref); got != want {
			t.Errorf("taken back %t: %+v; want %+v", takenBack, got, want)
		}
		fixture.Sound(t, db)
		fixture.Advance(t, db, bought, payment.Captured)
		report := fixture.SettlePayments(t, db, ref)
		got, n := nowOf(t, db, bought, ref), counts(t, db, id)
		if len(report.Due) != 1 || len(report.Messages) != 0 || got.Purchase != purchase.Refunding || got.Payment != payment.RefundDue || got.Sold != 0 || n.Sold != 3 || n.Reserved != 0 {
			t.Errorf("taken back %t, paid after all: %+v, %+v, %+v", takenBack, report, got, n)
		}
		fixture.Sound(t, db)
	}
}

// Between the end and the draw, too: nothing new is sold.
func TestLateMoneyAfterTheEndIsRefunded(t *testing.T) {
	t.Parallel()
	db, clock, id, kept, keptRef := endingSale(t, 0, 2*aLongSale) // what is kept keeps it from being drawn
	bought, ref := late(t, db, fixture.CardRequest(t, id, "a", 0, 1))
	drawing, drawingRef := late(t, db, fixture.CardRequest(t, id, "b", 0, 1))
	clock.MoveOn(aLongSale)
	back := now{purchase.Refunding, payment.RefundDue, job.Failed, fault.ReservationExpired, payment.RefundLatePayment, 0, 0}
	fixture.SettlePayments(t, db, ref)
	if got := nowOf(t, db, bought, ref); got != back {
		t.Errorf("after the end: %+v", got)
	}
	expectState(t, db, id, campaign.Active)
	fixture.EndAs(t, db, kept, payment.Expired)
	if report := fixture.SettlePayments(t, db, keptRef); len(report.Messages) != 1 {
		t.Errorf("the last reservation: %+v", report)
	}
	expectState(t, db, id, campaign.Drawing)
	fixture.SettlePayments(t, db, drawingRef)
	if got := nowOf(t, db, drawing, drawingRef); got != back {
		t.Errorf("when it is drawn: %+v", got)
	}
	fixture.Sound(t, db)
}

func TestTheSweepAndTheLastSettlementAtOnceBeginOneDraw(t *testing.T) {
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
			go func() {
				end, err := fixture.Seller(db).EndSale(t.Context(), id)
				if err != nil {
					t.Error(err)
				}
				begun <- len(end.Messages)
			}()
		}
		go func() { begun <- len(fixture.SettlePayments(t, db, refs[i]).Messages) }()
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

// No transaction of the end releases more than 100: a trigger of this test refuses that. The holds are those
// of an earlier release, which last longer than the sale.
func TestManyHoldsEndWithTheSaleInSeveralTransactions(t *testing.T) {
	t.Parallel()
	db, clock := servers.DBWithClock(t)
	id, service := fixture.Campaign(t, db, fixture.DrawnAtEnd(20, aLongSale)), fixture.Holds(t, db, nil, nil)
	const many = 201
	for i := range many {
		held := fixture.Hold(t, service, fixture.HoldAnyRequest(id, fmt.Sprint("user-", i), 0, 1))
		fixture.MoveDeadline(t, db, held, 2*aLongSale)
	}
	servers.Exec(t, db, `CREATE FUNCTION bound_holds() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		IF (SELECT count(*) FROM ended) > 100 THEN RAISE EXCEPTION 'too many at once'; END IF; RETURN NULL; END $$`)
	servers.Exec(t, db, `CREATE TRIGGER bound_holds AFTER UPDATE ON holds REFERENCING NEW TABLE AS ended FOR EACH STATEMENT EXECUTE FUNCTION bound_holds()`)
	clock.MoveOn(aLongSale)
	endSale(t, db, id, "drawing, 201 holds, 0 payments, 1 draws")
	if n := servers.Value[[]int](t, db, `SELECT ARRAY[count(*) FILTER (WHERE state = 'released'), count(DISTINCT xmin::text)] FROM holds`); n[0] != many || n[1] != 3 {
		t.Errorf("%d are released, in %d transactions", n[0], n[1])
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
	find := func(limit int, want ...uuid.UUID) {
		t.Helper()
		var found []payment.Ref
		err := postgres.InTx(t.Context(), db, func(tx pgx.Tx) error {
			var b pgx.Batch
			payment.QueueOutOfTime(&b, id, limit, &found)
			return tx.SendBatch(t.Context(), &b).Close()
		})
		var ids []uuid.UUID
		for _, ref := range found {
			ids = append(ids, ref.PurchaseID)
		}
		if err != nil || fmt.Sprint(ids) != fmt.Sprint(want) {
			t.Errorf("found %v, want %v, %v", ids, want, err)
		}
	}
	find(9, byLatest...)
	defer fixture.LockRows(t, db, `payments WHERE purchase_id = $1`, byLatest[0])()
	find(1, byLatest[1])
}

// awaits compares what a campaign waits for: how many payments, until when.
func awaits(t *testing.T, db *pgxpool.Pool, id uuid.UUID, payments int, until time.Time) {
	t.Helper()
	w := campaignOf(t, db, id).Waiting
	switch {
	case payments == 0 && w == nil:
	case w == nil || w.Kind != campaign.BlockedByPayments || w.Count != payments || (w.Until == nil) != until.IsZero() || w.Until != nil && !w.Until.Equal(until):
		t.Errorf("it waits for %+v, want %d payments until %s", w, payments, until)
	}
}

// expired gives up what is over, as the sweep does.
func expired(t *testing.T, db *pgxpool.Pool, want int) {
	t.Helper()
	if n, err := sale.ExpireReservations(t.Context(), db, 10); err != nil || n != want {
		t.Errorf("%d are given up, want %d, %v", n, want, err)
	}
}

// The buyer has bought in the last second, and never authenticates. A slow payment is waited for
// as before.
func TestABuyerIsAwaitedAfterTheSaleAsLongAsTheSettingSays(t *testing.T) {
	t.Parallel()
	db, clock := servers.DBWithClock(t)
	draft := fixture.DrawnAtEnd(4, aLongSale)
	id := fixture.Campaign(t, db, draft)
	fixture.Sell(t, db, id, 3)
	idle, idleRef := fixture.Reserve(t, db, id, "a", 2, aLongSale+time.Hour)
	slow, slowRef := fixture.Reserve(t, db, id, "b", 1, aLongSale+3*time.Hour)
	fixture.Advance(t, db, idle, payment.Action)
	fixture.Advance(t, db, slow, payment.Processing)
	free, freeRef := fixture.Reserve(t, db, id, "c", 1, aLongSale)
	outOfTime(t, db, free, freeRef) // its position is free again: nobody waits for it
	awaits(t, db, id, 0, time.Time{})
	until, slowUntil := draft.SaleEndsAt.Add(fixture.Reservations.AfterSaleEnd), fixture.Payment(t, db, slow).Deadline
	if p := fixture.Payment(t, db, idle); !p.OverAt().Equal(until.Truncate(time.Microsecond)) {
		t.Errorf("the buyer is awaited until %s, want %s", p.OverAt(), until)
	}
	clock.MoveOn(aLongSale)
	awaits(t, db, id, 2, slowUntil)
	endSale(t, db, id, "active, 0 holds, 0 payments, 0 draws")
	expired(t, db, 0)
	clock.MoveOn(fixture.Reservations.AfterSaleEnd)
	captures := fixture.Payment(t, db, idle)
	if !captures.Over {
		t.Error("its worker takes it for one that still awaits the buyer")
	}
	captures.Phase = payment.Capturing
	if err := fixture.Lead(t, db, &captures, payment.BeforeDeadline); !errors.Is(err, lease.ErrFenced) {
		t.Errorf("its capture begins after that: %v", err)
	}
	expired(t, db, 1)
	fixture.Advance(t, db, idle, payment.Ended)
	fixture.SettlePayments(t, db, idleRef)
	expectState(t, db, id, campaign.Active)
	awaits(t, db, id, 1, slowUntil)
	fixture.Advance(t, db, slow, payment.Capturing)
	awaits(t, db, id, 1, time.Time{}) // while money is taken
	fixture.Advance(t, db, slow, payment.Captured)
	fixture.SettlePayments(t, db, slowRef)
	expectState(t, db, id, campaign.Drawing)
	awaits(t, db, id, 0, time.Time{})
	fixture.Sound(t, db)
}

func TestTheWaitForABuyerMovesWithTheEndOfTheSale(t *testing.T) {
	t.Parallel()
	db, clock := servers.DBWithClock(t)
	draft, end := fixture.Draft(4), time.Now().Add(aLongSale)
	draft.SaleEndsAt = &end
	id := fixture.Campaign(t, db, draft)
	bought, _ := fixture.Reserve(t, db, id, "a", 2, 3*aLongSale)
	fixture.Advance(t, db, bought, payment.Action)
	service := lifecycle.New(fixture.Gate(db), fixture.Key(t), shape.MaxPositions, nil, func(lifecycle.Details) any { return nil })
	move := func(to *time.Time) {
		t.Helper()
		if _, err := service.Patch(t.Context(), id, campaign.Patch{SaleEndsAt: campaign.Optional[time.Time]{Set: true, Value: to}}); err != nil {
			t.Fatal(err)
		}
	}
	later := end.Add(aLongSale)
	move(&later)
	clock.MoveOn(aLongSale + time.Hour)
	expired(t, db, 0) // after the old end
	want := later.Add(fixture.Reservations.AfterSaleEnd).Truncate(time.Microsecond)
	if p := fixture.Payment(t, db, bought); !p.OverAt().Equal(want) {
		t.Errorf("the buyer is awaited until %s, want %s", p.OverAt(), want)
	}
	move(nil)
	if p := fixture.Payment(t, db, bought); p.AwaitsUntil != nil || !p.OverAt().Equal(p.Deadline) {
		t.Errorf("without an end the buyer is awaited until %s", p.OverAt())
	}
	clock.MoveOn(2 * aLongSale)
	expired(t, db, 1) // after its own deadline
}
