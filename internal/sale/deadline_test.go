package sale_test

import (
	"errors"
	"slices"
	"sync"
	"testing"

	"triprize/internal/campaign"
	"triprize/internal/domain/fault"
	"triprize/internal/inventory"
	"triprize/internal/job"
	"triprize/internal/platform/postgres"
	"triprize/internal/sale"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

// A batch reads once which holds are over. A hold that was not over then is bought
// wholly, however long the rest takes. One that was over is not bought, even if it
// is extended meanwhile.
func TestAHoldIsBoughtWhollyOrNotAtAllWhenItEndsInTheMiddle(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id, service := fixture.Campaign(t, db, fixture.Draft(4)), fixture.Holds(t, db, nil, nil)
	due := fixture.Hold(t, service, fixture.HoldRequest(id, "due", at(1, 1), at(2, 2)))
	last := fixture.Hold(t, service, fixture.HoldRequest(id, "last", at(3, 1), at(3, 2)))
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
	servers.AwaitBlocked(t, db, 1)
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

// The holder and another buyer both wait for the campaign. The database's clock
// decides when they have it, and not when they came.
func TestAtTheDeadlineAHoldIsBoughtOrGone(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	service, id := fixture.Holds(t, db, nil, nil), fixture.Campaign(t, db, fixture.Draft(8))
	for name, c := range map[string]struct{ holderFirst, over bool }{
		"the holder comes first, in time": {true, false}, "the holder comes first, and it is over": {true, true},
		"the other comes first, in time": {false, false}, "the other comes first, and it is over": {false, true},
	} {
		h := fixture.Hold(t, service, fixture.HoldRequest(id, "holder", free(t, db, id)[:3]...))
		mine := fixture.Accept(t, db, fixture.HeldRequest(t, id, "holder", h.ID))
		theirs := fixture.Accept(t, db, fixture.ChosenRequest(t, id, "other", h.Positions[1].Position))
		order := [][]job.Ref{mine, theirs}
		if !c.holderFirst {
			slices.Reverse(order)
		}
		locked, err := db.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := campaign.Lock(t.Context(), locked, id); err != nil {
			t.Fatal(err)
		}
		var race sync.WaitGroup
		for i, refs := range order {
			race.Go(func() {
				if _, err := fixture.Seller(db).Sell(t.Context(), refs, sale.WaitForCampaign); err != nil {
					t.Error(err)
				}
			})
			servers.AwaitBlocked(t, db, i+1)
		}
		if c.over {
			fixture.EndHoldMeanwhile(t, db, h)
		}
		if err := locked.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
		race.Wait()
		own, others := fixture.Job(t, db, mine[0].ID), fixture.Job(t, db, theirs[0].ID)
		want := inventory.HoldUsed
		if c.over {
			want = inventory.HoldExpired
			expect(t, name+": the holder", own, fault.HoldExpired)
			expect(t, name+": the other", others, "", h.Positions[1].Position)
		} else {
			expectGone(t, name+": the other", others, 0)
			if len(bought(t, own)) != 3 {
				t.Errorf("%s: the holder got %v", name, bought(t, own))
			}
		}
		if now := fixture.HoldNow(t, db, h.ID); now.State != want {
			t.Errorf("%s: the hold is %+v", name, now)
		}
		fixture.Sound(t, db)
	}
}

// A writer without the campaign's lock ends a hold that the batch wants to buy, or to
// end itself. The batch has read the hold already and waits for its row.
func TestAHoldThatIsEndedWithoutTheLockStopsTheBatch(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
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
		servers.Exec(t, faster, `UPDATE holds SET state = 'released', ended_at = clock_timestamp() WHERE id = $1`, h.ID)
		failed := make(chan error, 1)
		go func() {
			_, err := fixture.Seller(db).Sell(t.Context(), refs, sale.WaitForCampaign)
			failed <- err
		}()
		servers.AwaitBlocked(t, db, 1)
		if err := faster.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := <-failed; !errors.Is(err, postgres.ErrRows) || purchases(t, db, id) != 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
}
