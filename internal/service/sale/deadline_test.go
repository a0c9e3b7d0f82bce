package sale_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"triprize/internal/domain/fault"
	"triprize/internal/platform/postgres"
	"triprize/internal/service/sale"
	"triprize/internal/store/inventory"
	"triprize/internal/store/job"
	"triprize/internal/testkit/fixture"
)

// What is due is read once: a hold that is not over then is bought wholly, however
// long the rest takes, and one that is over is not, though somebody extends it.
func TestAHoldIsBoughtWhollyOrNotAtAllWhenItEndsInTheMiddle(t *testing.T) {
	t.Parallel()
	db := fixture.DB(t)
	id, desk := fixture.Campaign(t, db, fixture.Draft(4)), fixture.Holds(t, db, nil, nil)
	due := fixture.Hold(t, desk, fixture.HoldRequest(id, "due", at(1, 1), at(2, 2)))
	last := fixture.Hold(t, desk, fixture.HoldRequest(id, "last", at(3, 1), at(3, 2)))
	refs := fixture.Accept(t, db, fixture.HeldRequest(t, id, "last", last.ID), fixture.HeldRequest(t, id, "due", due.ID),
		fixture.ChosenRequest(t, id, "other", at(3, 1)), fixture.ChosenRequest(t, id, "other", at(2, 2)))
	fixture.EndHold(t, db, due)
	stalled, err := db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stalled.Exec(t.Context(), `SELECT FROM holds WHERE id = $1 FOR UPDATE`, due.ID); err != nil { // the batch wants to end it
		t.Fatal(err)
	}
	type sold struct {
		report sale.Report
		err    error
	}
	ended := make(chan sold, 1)
	go func() {
		report, err := fixture.Seller(db).Sell(t.Context(), refs, sale.WaitForCampaign)
		ended <- sold{report, err}
	}()
	waiting(t, db)
	fixture.EndHoldMeanwhile(t, db, last)
	if now := fixture.HoldNow(t, db, last.ID); now.State != inventory.HoldExpired || now.EndedAt != nil {
		t.Fatalf("it is %+v", now)
	}
	if err := stalled.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := <-ended; got.err != nil || got.report.HoldsUsed != 1 || got.report.HoldsReclaimed != 1 || got.report.Sold != 3 {
		t.Fatalf("got %+v", got)
	}
	expect(t, "in its last moment", fixture.Job(t, db, refs[0].ID), "", at(3, 1), at(3, 2))
	expect(t, "over", fixture.Job(t, db, refs[1].ID), fault.HoldExpired)
	expectGone(t, "a held one", fixture.Job(t, db, refs[2].ID), 0)
	expect(t, "a freed one", fixture.Job(t, db, refs[3].ID), "", at(2, 2))
	fixture.Sound(t, db)
}

// Its holder and others meet at the deadline, round after round.
func TestAtTheDeadlineAHoldIsBoughtOrGone(t *testing.T) {
	t.Parallel()
	db := fixture.DB(t)
	desk, id := fixture.Holds(t, db, nil, nil), fixture.Campaign(t, db, fixture.Draft(20))
	holders, others := 0, 0
	for round := range 40 {
		h := fixture.Hold(t, desk, fixture.HoldRequest(id, "holder", free(t, db, id)[:3]...))
		mine := fixture.Accept(t, db, fixture.HeldRequest(t, id, "holder", h.ID))
		theirs := fixture.Accept(t, db, fixture.ChosenRequest(t, id, "other", h.Positions[1].Position))
		fixture.MoveDeadline(t, db, h, 8*time.Millisecond)
		var race sync.WaitGroup
		for i, refs := range [][]job.Ref{mine, theirs} {
			race.Go(func() {
				time.Sleep(time.Duration((round*5+i*3)%13) * time.Millisecond)
				if _, err := fixture.Seller(db).Sell(t.Context(), refs, sale.WaitForCampaign); err != nil {
					t.Error(err)
				}
			})
		}
		race.Wait()
		won, lost := fixture.Job(t, db, mine[0].ID), fixture.Job(t, db, theirs[0].ID)
		now := fixture.HoldNow(t, db, h.ID)
		switch {
		case won.Problem == nil:
			holders++
			expectGone(t, "the other", lost, 0)
			if len(bought(t, won)) != 3 || now.State != inventory.HoldUsed {
				t.Errorf("the holder got %v of %+v", bought(t, won), now)
			}
		default:
			expect(t, "the holder", won, fault.HoldExpired)
			if lost.Problem == nil {
				others++
			}
			if now.State != inventory.HoldExpired {
				t.Errorf("it is %+v", now)
			}
		}
		fixture.Sound(t, db)
	}
	t.Logf("%d times its holder, %d times the other", holders, others)
}

// Somebody without the lock ends a hold that the batch wants to buy, or to end
// itself: it has read the hold already, and then waits for the row.
func TestAHoldThatSomebodyEndsWithoutTheLockStopsTheBatch(t *testing.T) {
	t.Parallel()
	db := fixture.DB(t)
	for name, over := range map[string]bool{"bought": false, "over": true} {
		id := fixture.Campaign(t, db, fixture.Draft(4))
		h := fixture.Hold(t, fixture.Holds(t, db, nil, nil), fixture.HoldRequest(id, "a", at(3, 1)))
		if over {
			fixture.EndHold(t, db, h)
		}
		refs := fixture.Accept(t, db, fixture.HeldRequest(t, id, "a", h.ID), fixture.PurchaseRequest(t, id, "b", 4, 1))
		faster, err := db.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := faster.Exec(t.Context(), `UPDATE holds SET state = 'released', ended_at = clock_timestamp() WHERE id = $1`, h.ID); err != nil {
			t.Fatal(err)
		}
		failed := make(chan error, 1)
		go func() {
			_, err := fixture.Seller(db).Sell(t.Context(), refs, sale.WaitForCampaign)
			failed <- err
		}()
		waiting(t, db)
		if err := faster.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := <-failed; !errors.Is(err, postgres.ErrRows) || purchases(t, db, id) != 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// waiting waits until a statement waits for a lock of another.
func waiting(t *testing.T, db *pgxpool.Pool) {
	t.Helper()
	for range 1000 {
		var n int
		if err := db.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		if n > 0 {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatal("nobody waits")
}
