package sale_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"triprize/internal/campaign"
	"triprize/internal/domain/shape"
	"triprize/internal/lease"
	"triprize/internal/lifecycle"
	"triprize/internal/payment"
	"triprize/internal/sale"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

// waits returns what a campaign waits for.
func waits(t *testing.T, db *pgxpool.Pool, id uuid.UUID) *campaign.Wait {
	t.Helper()
	c, err := campaign.Get(t.Context(), db, id)
	if err != nil {
		t.Fatal(err)
	}
	return c.Waiting
}

// expired gives up what is over, as the sweep does.
func expired(t *testing.T, db *pgxpool.Pool) int {
	t.Helper()
	n, err := sale.ExpireReservations(t.Context(), db, 10)
	if err != nil {
		t.Fatal(err)
	}
	return n
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
	late, lateRef := fixture.Reserve(t, db, id, "c", 1, aLongSale) // its position is free again: nobody waits for it
	fixture.Advance(t, db, late, payment.Processing)
	fixture.Advance(t, db, late, payment.Expiring)
	setPayment(t, db, late, `uncancellable = true, deadline = clock_timestamp()`)
	fixture.Conclude(t, db, lateRef)
	if w := waits(t, db, id); w != nil {
		t.Errorf("during the sale it waits for %+v", w)
	}
	until, slowUntil := draft.SaleEndsAt.Add(fixture.Reservations.AfterSaleEnd), fixture.Payment(t, db, slow).Deadline
	if p := fixture.Payment(t, db, idle); !p.OverAt().Equal(until.Truncate(time.Microsecond)) {
		t.Errorf("the buyer is awaited until %s, want %s", p.OverAt(), until)
	}
	clock.MoveOn(aLongSale)
	if w := waits(t, db, id); w == nil || w.Kind != campaign.WaitsForPayments || w.Count != 2 || w.Until == nil || !w.Until.Equal(slowUntil) {
		t.Errorf("it waits for %+v, want 2 payments until %s", w, slowUntil)
	}
	if end, n := endSale(t, db, id), expired(t, db); end.Ended || n != 0 {
		t.Errorf("at the end: %+v, and %d are given up", end, n)
	}
	clock.MoveOn(fixture.Reservations.AfterSaleEnd)
	if p := fixture.Payment(t, db, idle); !p.Over {
		t.Error("its worker takes it for one that still awaits the buyer")
	}
	captures := fixture.Payment(t, db, idle)
	captures.Phase = payment.Capturing
	if err := fixture.Lead(t, db, &captures, payment.BeforeDeadline); !errors.Is(err, lease.ErrFenced) {
		t.Errorf("its capture begins after that: %v", err)
	}
	if n := expired(t, db); n != 1 {
		t.Errorf("%d are given up", n)
	}
	fixture.Advance(t, db, idle, payment.Ended)
	fixture.Conclude(t, db, idleRef)
	expectState(t, db, id, campaign.Active)
	if w := waits(t, db, id); w == nil || w.Count != 1 {
		t.Errorf("it waits for %+v, want the slow payment", w)
	}
	fixture.Advance(t, db, slow, payment.Capturing)
	if w := waits(t, db, id); w == nil || w.Until != nil {
		t.Errorf("while money is taken, it waits for %+v", w)
	}
	fixture.Advance(t, db, slow, payment.Captured)
	fixture.Conclude(t, db, slowRef)
	expectState(t, db, id, campaign.Drawing)
	if w := waits(t, db, id); w != nil {
		t.Errorf("it is drawn, and waits for %+v", w)
	}
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
	if n := expired(t, db); n != 0 {
		t.Error("it is given up after the old end")
	}
	want := later.Add(fixture.Reservations.AfterSaleEnd).Truncate(time.Microsecond)
	if p := fixture.Payment(t, db, bought); !p.OverAt().Equal(want) {
		t.Errorf("the buyer is awaited until %s, want %s", p.OverAt(), want)
	}
	move(nil)
	if p := fixture.Payment(t, db, bought); p.AwaitsUntil != nil || !p.OverAt().Equal(p.Deadline) {
		t.Errorf("without an end the buyer is awaited until %s", p.OverAt())
	}
	clock.MoveOn(2 * aLongSale)
	if n := expired(t, db); n != 1 {
		t.Errorf("after its own deadline %d are given up", n)
	}
}
