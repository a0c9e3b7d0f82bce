//go:build failpoint

package lifecycle_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"triprize/internal/campaign"
	"triprize/internal/domain/fault"
	"triprize/internal/domain/shape"
	"triprize/internal/inventory"
	"triprize/internal/job"
	"triprize/internal/lifecycle"
	"triprize/internal/purchase"
	"triprize/internal/sale"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

// block and unblock return why they are refused.
func block(t *testing.T, s *lifecycle.Service, id uuid.UUID, reason string, chosen ...shape.Position) error {
	t.Helper()
	done, err := s.Block(t.Context(), request(job.KindPositionsBlock, id), chosen, reason)
	return fixture.Refused(done, err)
}

func unblock(t *testing.T, s *lifecycle.Service, id uuid.UUID, chosen ...shape.Position) error {
	t.Helper()
	done, err := s.Unblock(t.Context(), request(job.KindPositionsUnblock, id), chosen)
	return fixture.Refused(done, err)
}

// expectRefused checks the code of a refusal and what it says of which positions.
func expectRefused(t *testing.T, what string, err error, code fault.Code, fields ...fault.Field) {
	t.Helper()
	if fault.CodeOf(err) != code || len(fields) > 0 && !slices.Equal(fault.From(err).Fields, fields) {
		t.Errorf("%s: %v %v", what, err, fields)
	}
}

func expectCounts(t *testing.T, db *pgxpool.Pool, id uuid.UUID, want campaign.Counts) {
	t.Helper()
	if c := campaignOf(t, db, id); c.Counts != want {
		t.Errorf("counted %+v", c.Counts)
	}
	fixture.Sound(t, db)
}

func TestFreePositionsAreBlockedAndBlockedOnesUnblockedAllOrNone(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	s, holds, id := newService(t, db), fixture.Holds(t, db, nil, nil), fixture.Campaign(t, db, fixture.DrawnAtEnd(4, day))
	free, kept, sold, reserved, seen := fixture.At(1, 1), fixture.At(4, 1), fixture.At(4, 2), fixture.At(4, 3), fixture.At(4, 4)
	held := fixture.Hold(t, holds, fixture.HoldRequest(id, "h", kept))
	fixture.Complete(t, db, fixture.ChosenRequest(t, id, "s", sold))
	fixture.ReserveFor(t, db, fixture.PurchaseRequestOf(t, id, sale.Order{UserID: "c", Selection: fixture.Chosen(reserved),
		Payment: sale.Payment{Method: purchase.Card, PaymentMethod: "pm_card_visa"}}), time.Hour)
	servers.NoError(t, block(t, s, id, "sight", seen))
	expectRefused(t, "all kinds", block(t, s, id, "", free, kept, sold, reserved, seen), fault.PositionTaken,
		fault.Field{Pointer: "/positions/1", Detail: "position 4/1 is held"}, fault.Field{Pointer: "/positions/2", Detail: "position 4/2 is sold"},
		fault.Field{Pointer: "/positions/3", Detail: "position 4/3 is reserved"}, fault.Field{Pointer: "/positions/4", Detail: "position 4/4 is blocked"})
	expectRefused(t, "a free one, too", unblock(t, s, id, seen, free), fault.StateConflict, fault.Field{Pointer: "/positions/1", Detail: "position 1/1 is available"})
	expectCounts(t, db, id, campaign.Counts{Total: 10, Reserved: 2, Sold: 1, Blocked: 1})

	_, err := fixture.TryHold(t, holds, fixture.HoldRequest(id, "u", seen))
	expectRefused(t, "a hold of a blocked one", err, fault.PositionTaken)
	fixture.EndHold(t, db, held) // as the board shows it: no sweep has ended it
	if err := block(t, s, id, "", kept); err != nil {
		t.Errorf("when its hold is over: %v", err)
	}
	expectCounts(t, db, id, campaign.Counts{Total: 10, Reserved: 1, Sold: 1, Blocked: 2})
	if err := unblock(t, s, id, kept, seen); err != nil {
		t.Error(err)
	}
	fixture.Hold(t, holds, fixture.HoldRequest(id, "u", kept, seen))
	if p, err := inventory.Get(t.Context(), db, id, seen); err != nil || p.State != inventory.Held || p.BlockReason != nil {
		t.Errorf("%+v, %v", p, err)
	}
}

func TestOnlyASaleThatIsDrawnAtItsEndHasBlockedPositions(t *testing.T) {
	t.Parallel()
	db, clock := servers.DBWithClock(t)
	s := newService(t, db)
	drawn, staying, cancelled := fixture.Campaign(t, db, fixture.DrawnAtEnd(4, day)), fixture.Campaign(t, db, fixture.Draft(4)), fixture.Campaign(t, db, fixture.DrawnAtEnd(4, day))
	servers.NoError(t, block(t, s, drawn, "", fixture.At(1, 1)))
	servers.Exec(t, db, `UPDATE campaigns SET state = 'cancelled', cancelled_at = now(), cancelled_by = 'operator:test' WHERE id = $1`, cancelled)
	for what, id := range map[string]uuid.UUID{"a draft": pending(t, db, fixture.Draft(4)), "one that is drawn sold out": staying, "a cancelled one": cancelled} {
		expectRefused(t, what, block(t, s, id, "", fixture.At(2, 1)), fault.StateConflict)
	}
	expectRefused(t, "none", block(t, s, uuid.New(), "", fixture.At(2, 1)), fault.NotFound)
	clock.MoveOn(day)
	expectRefused(t, "after the end", block(t, s, drawn, "", fixture.At(2, 1)), fault.SaleNotOpen)
	expectRefused(t, "to unblock after the end", unblock(t, s, drawn, fixture.At(1, 1)), fault.SaleNotOpen)
}

func TestWhatIsBlockedIsNeverChosenAndASaleWithItIsDrawnAtItsEnd(t *testing.T) {
	t.Parallel()
	db, clock := servers.DBWithClock(t)
	s, id := newService(t, db), fixture.Campaign(t, db, fixture.DrawnAtEnd(4, day))
	servers.NoError(t, block(t, s, id, "house", fixture.At(2, 1), fixture.At(4, 4)))
	fixture.SellOut(t, db, id)
	expectCounts(t, db, id, campaign.Counts{Total: 10, Sold: 8, Blocked: 2}) // it is no draw: all is not sold
	for i, j := range fixture.Complete(t, db, fixture.PurchaseRequest(t, id, "a", 0, 1), fixture.PurchaseRequest(t, id, "a", 2, 1)) {
		if j.State != job.Failed || j.Problem.Code != fault.SoldOut {
			t.Errorf("order %d of what is sold or blocked: %s, %+v", i, j.State, j.Problem)
		}
	}
	servers.NoError(t, unblock(t, s, id, fixture.At(2, 1)))
	if j := fixture.Complete(t, db, fixture.PurchaseRequest(t, id, "a", 2, 1))[0]; j.State != job.Succeeded {
		t.Errorf("one that is on sale again: %+v", j.Problem)
	}
	clock.MoveOn(day)
	if end, err := fixture.Seller(db).EndSale(t.Context(), id); err != nil || !end.Ended {
		t.Errorf("at its end: %+v, %v", end, err)
	}
	expectCounts(t, db, id, campaign.Counts{Total: 10, Sold: 9, Blocked: 1})
}

// The table itself refuses here to give a blocked position away, and to block one that
// somebody has.
func TestACrowdGetsNoBlockedPositionWhileOperatorsBlockAndUnblock(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	s, holds, id := newService(t, db), fixture.Holds(t, db, nil, nil), fixture.Campaign(t, db, fixture.DrawnAtEnd(20, day)) // 210 positions
	servers.Exec(t, db, `
		CREATE FUNCTION only_free_ones() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			RAISE EXCEPTION 'from % to %', OLD.state, NEW.state;
		END $$`)
	servers.Exec(t, db, `
		CREATE TRIGGER only_free_ones BEFORE UPDATE ON positions FOR EACH ROW
		WHEN ((OLD.state = 'blocked') <> (NEW.state = 'blocked') AND 'available' NOT IN (OLD.state, NEW.state)) EXECUTE FUNCTION only_free_ones()`)
	always := []shape.Position{fixture.At(20, 1), fixture.At(20, 2), fixture.At(20, 3)}
	servers.NoError(t, block(t, s, id, "wheelchair", always...))
	const rounds = 25
	refusals := []fault.Code{"", fault.PositionTaken, fault.StateConflict, fault.NoneAvailable, fault.SoldOut, fault.HoldLimitExceeded}
	allowed := func(what string, err error) {
		if !slices.Contains(refusals, fault.CodeOf(err)) {
			t.Errorf("%s: %v", what, err)
		}
	}
	var crowd sync.WaitGroup
	for n := range 3 {
		crowd.Go(func() { // an operator, one of many at a row
			for i := range rounds {
				row := 15 + (i+n)%6
				chosen := []shape.Position{fixture.At(row, 5+n), fixture.At(row, 6+n)}
				allowed("block", block(t, s, id, "", chosen...))
				allowed("unblock", unblock(t, s, id, chosen...))
			}
		})
		crowd.Go(func() { // buyers
			for i := range rounds {
				row := 15 + i%6
				for _, j := range fixture.Complete(t, db, fixture.PurchaseRequest(t, id, fmt.Sprint("b", n), row, 1), fixture.ChosenRequest(t, id, fmt.Sprint("b", n), fixture.At(row, 5+n), fixture.At(row, 1+n))) {
					if j.Problem != nil {
						allowed("a purchase", j.Problem.Err())
					}
				}
			}
		})
		crowd.Go(func() { // a user who holds, and gives back
			for i := range rounds {
				h, err := fixture.TryHold(t, holds, fixture.HoldRequest(id, fmt.Sprint("h", n), fixture.At(15+i%6, 6+n)))
				if allowed("a hold", err); err == nil {
					_, err = holds.Release(t.Context(), id, h.ID)
					allowed("a release", err)
				}
			}
		})
	}
	crowd.Wait()
	for _, p := range always {
		if now, err := inventory.Get(t.Context(), db, id, p); err != nil || now.State != inventory.Blocked || now.UserID != nil || *now.BlockReason != "wheelchair" {
			t.Errorf("%v: %+v, %v", p, now, err)
		}
	}
	fixture.Sound(t, db)
}

func TestAPauseOfALockedCampaignEndsAndNamesTheSession(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	s, id := newService(t, db), fixture.Campaign(t, db, fixture.Draft(4))
	tx, err := db.Begin(t.Context())
	servers.NoError(t, err)
	defer func() { _ = tx.Rollback(context.Background()) }()
	servers.Exec(t, tx, `SET LOCAL idle_in_transaction_session_timeout = 0`)
	servers.Exec(t, tx, `SET LOCAL application_name = 'somebody'`)
	servers.Exec(t, tx, `UPDATE campaigns SET name = 'another' WHERE id = $1`, id) // a lock that a change has taken
	pause := request(job.KindCampaignPause, id)
	inTime, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err = s.Pause(inTime, pause)
	if fault.CodeOf(err) != fault.Unavailable || !strings.Contains(err.Error(), fmt.Sprintf("pid %d and application_name %q", tx.Conn().PgConn().PID(), "somebody")) {
		t.Errorf("while it is locked: %v", err)
	}
	servers.NoError(t, tx.Rollback(t.Context()))
	if done, err := s.Pause(t.Context(), pause); err != nil || done.Replayed || done.Job.Problem != nil {
		t.Errorf("with the same key, when it is free: %+v, %v", done, err)
	}
}
