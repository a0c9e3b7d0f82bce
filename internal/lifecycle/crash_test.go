//go:build failpoint

package lifecycle_test

import (
	"errors"
	"sync"
	"testing"

	"github.com/google/uuid"

	"triprize/internal/campaign"
	"triprize/internal/domain/fault"
	"triprize/internal/inventory"
	"triprize/internal/job"
	"triprize/internal/lifecycle"
	"triprize/internal/platform/failpoint"
	"triprize/internal/sale"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

var errDies = errors.New("the worker dies")

// The worker dies at each point, in each chunk; the next one finishes what it has begun.
func TestAWorkerThatDiesAnywhereLeavesNothingHalfAndNothingIsGivenBackTwice(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]lifecycle.CancelOrder{"a cancellation": byOps, "a void": voided} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			diesAnywhere(t, o)
		})
	}
}

func diesAnywhere(t *testing.T, o lifecycle.CancelOrder) {
	t.Helper()
	db := servers.DB(t)
	id := fixture.Campaign(t, db, fixture.Draft(40))
	sum := mixedPurchases(t, db, id, 240)
	if o.Void {
		servers.Exec(t, db, `UPDATE campaigns SET state = 'drawing', draw_started_at = now() - interval '24 hours' WHERE id = $1`, id)
	}
	ref := order(t, db, id, o)
	die := func(point string, nth int) {
		defer func() { _ = recover() }()
		defer failpoint.Set(point, id.String(), func() {
			if nth--; nth == 0 {
				panic(errDies)
			}
		})()
		_, err := canceller(t, db).Run(t.Context(), ref)
		t.Errorf("it lived through %s: %v", point, err)
	}
	for _, point := range []string{"lifecycle.begun", "lifecycle.chunk", "lifecycle.chunked", "lifecycle.begun", "lifecycle.chunk", "lifecycle.chunked"} {
		die(point, 1)
		fixture.Sound(t, db)
	}
	if _, err := canceller(t, db).Run(t.Context(), ref); !errors.Is(err, lifecycle.ErrWaiting) {
		t.Fatalf("got %v", err)
	}
	sum.check(t, db, id)
	succeedRefunds(t, db, id)
	die("lifecycle.finalize", 1)
	if j := fixture.Job(t, db, ref.ID); j.State != job.Queued {
		t.Errorf("the job is %s", j.State)
	}
	if _, err := canceller(t, db).Run(t.Context(), ref); err != nil {
		t.Fatal(err)
	}
	fixture.Sound(t, db)
}

// Two workers have the same job, because Redis has forgotten whose it is.
func TestTwoWorkersWithOneJobGiveEachPurchaseBackOnce(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := fixture.Campaign(t, db, fixture.Draft(40))
	sum := mixedPurchases(t, db, id, 240)
	ref := order(t, db, id, byOps)
	var both sync.WaitGroup
	for range 2 {
		both.Go(func() {
			if _, err := canceller(t, db).Run(t.Context(), ref); !errors.Is(err, lifecycle.ErrWaiting) {
				t.Errorf("got %v", err)
			}
		})
	}
	both.Wait()
	sum.check(t, db, id)
	fixture.Sound(t, db)
}

// A sale waits for the campaign while its cancellation is about to commit, and the other
// way round.
func TestASaleAndTheEndOfItsCampaignTakeTurns(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := fixture.Campaign(t, db, fixture.Draft(6))
	fixture.Sell(t, db, id, 3)
	waits := fixture.Accept(t, db, fixture.PurchaseRequest(t, id, "late", 0, 1))[0]
	ref := order(t, db, id, byOps)
	var sales sync.WaitGroup
	first := true
	defer failpoint.Set("lifecycle.chunk", id.String(), func() { // under the lock, and the campaign is cancelled
		if !first {
			return
		}
		first = false
		sales.Go(func() {
			if _, err := fixture.Seller(db).Sell(t.Context(), []job.Ref{waits}, sale.WaitForCampaign); err != nil {
				t.Error(err)
			}
		})
		servers.AwaitBlocked(t, db, 1)
	})()
	if _, err := canceller(t, db).Run(t.Context(), ref); err != nil {
		t.Fatal(err)
	}
	sales.Wait()
	if j := fixture.Job(t, db, waits.ID); j.Problem == nil || j.Problem.Code != fault.CampaignNotActive {
		t.Errorf("the sale: %s, %+v", j.State, j.Problem)
	}
	fixture.Sound(t, db)

	other, buyer := fixture.Campaign(t, db, fixture.Draft(6)), uuid.NewString()
	sells := fixture.Accept(t, db, fixture.PurchaseRequest(t, other, buyer, 0, 2))[0]
	ends := order(t, db, other, byOps)
	defer failpoint.Set("sale.commit", buyer, func() {
		sales.Go(func() {
			outcome, err := canceller(t, db).Run(t.Context(), ends)
			if err != nil || resultOf(t, outcome).Refunded.External != 1 {
				t.Errorf("the end: %+v, %v", outcome, err)
			}
		})
		servers.AwaitBlocked(t, db, 1)
	})()
	if _, err := fixture.Seller(db).Sell(t.Context(), []job.Ref{sells}, sale.WaitForCampaign); err != nil {
		t.Fatal(err)
	}
	sales.Wait()
	if c := campaignOf(t, db, other); c.State != campaign.Cancelled || c.Counts.Sold != 0 {
		t.Errorf("got %+v", c)
	}
	fixture.Sound(t, db)
}

// A hold is about to commit when its campaign is cancelled: it must not survive.
func TestAHoldThatCommitsJustBeforeTheEndOfItsCampaignEndsWithIt(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id, user := fixture.Campaign(t, db, fixture.Draft(6)), uuid.NewString()
	ref := order(t, db, id, byOps)
	var ends sync.WaitGroup
	defer failpoint.Set("holds.commit", user, func() {
		ends.Go(func() {
			if _, err := canceller(t, db).Run(t.Context(), ref); err != nil {
				t.Error(err)
			}
		})
		servers.AwaitBlocked(t, db, 1)
	})()
	held := hold(t, db, id, user)
	ends.Wait()
	if now := fixture.HoldNow(t, db, held.ID); now.State != inventory.HoldReleased {
		t.Errorf("the hold is %s", now.State)
	}
	if c := campaignOf(t, db, id); c.State != campaign.Cancelled || c.Counts.Reserved != 0 {
		t.Errorf("got %+v", c)
	}
	fixture.Sound(t, db)
}
