//go:build failpoint

package sale_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"triprize/internal/campaign"
	"triprize/internal/domain/access"
	"triprize/internal/job"
	"triprize/internal/platform/failpoint"
	"triprize/internal/purchase"
	"triprize/internal/sale"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

// lastSale is a campaign of which all but one position are sold, the order for
// that one, and a cancellation of one of the others.
type lastSale struct {
	campaignID   uuid.UUID
	buyer, owner string
	order, back  job.Ref
	bought       uuid.UUID
}

func newLastSale(t *testing.T, db *pgxpool.Pool) lastSale {
	t.Helper()
	l := lastSale{campaignID: fixture.Campaign(t, db, fixture.Draft(3)), buyer: uuid.NewString(), owner: uuid.NewString()}
	l.bought = fixture.Buy(t, db, l.campaignID, l.owner, 0, 2)
	fixture.Sell(t, db, l.campaignID, 3)
	refs := fixture.Accept(t, db, fixture.PurchaseRequest(t, l.campaignID, l.buyer, 0, 1), fixture.CancelRequest(t, l.campaignID, l.bought))
	l.order, l.back = refs[0], refs[1]
	return l
}

// expect checks that one of the two came first, and that everything follows from
// it. It tells whether the last sale won.
func (l lastSale) expect(t *testing.T, db *pgxpool.Pool) (drawing bool) {
	t.Helper()
	c, err := campaign.Get(t.Context(), db, l.campaignID)
	if err != nil {
		t.Fatal(err)
	}
	if order := fixture.Job(t, db, l.order.ID); order.State != job.Succeeded { // there was a position in both cases
		t.Errorf("the order: %s, %+v", order.State, order.Problem)
	}
	back := fixture.Job(t, db, l.back.ID)
	if c.State == campaign.Active {
		if back.State != job.Succeeded || c.Counts.Sold != 4 {
			t.Errorf("active with %d sold, and the cancellation is %s, %+v", c.Counts.Sold, back.State, back.Problem)
		}
		return false
	}
	refused(t, "every position is sold", back, "drawing")
	if c.Counts.Sold != 6 {
		t.Errorf("drawing with %d sold", c.Counts.Sold)
	}
	return true
}

// The cancellation waits for the campaign while the last sale is about to commit.
// It must see the campaign as that sale leaves it.
func TestASettledLastSaleWinsOverTheCancellationThatWaitsForIt(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	l := newLastSale(t, db)
	seller := fixture.Seller(db)
	var waits sync.WaitGroup
	defer failpoint.Set("sale.commit", l.buyer, func() {
		waits.Go(func() {
			finalize(t, seller, l.back)
		})
		servers.AwaitBlocked(t, db, 1)
	})()
	if _, err := seller.Sell(t.Context(), []job.Ref{l.order}, sale.WaitForCampaign); err != nil {
		t.Fatal(err)
	}
	waits.Wait()
	if !l.expect(t, db) {
		t.Error("the campaign is not drawing")
	}
	fixture.Sound(t, db)
}

// And the other way round: the sale of what was the last position begins no draw.
func TestASettledCancellationWinsOverTheLastSaleThatWaitsForIt(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	l := newLastSale(t, db)
	seller := fixture.Seller(db)
	var waits sync.WaitGroup
	defer failpoint.Set("cancellation.commit", l.owner, func() {
		waits.Go(func() {
			if _, err := seller.Sell(t.Context(), []job.Ref{l.order}, sale.WaitForCampaign); err != nil {
				t.Error(err)
			}
		})
		servers.AwaitBlocked(t, db, 1)
	})()
	finalize(t, seller, l.back)
	waits.Wait()
	if l.expect(t, db) {
		t.Error("the campaign is drawing with positions left")
	}
	fixture.Sound(t, db)
}

// Both wait for the campaign, in either order.
func TestTheLastSaleAndACancellationRaceAndOneComesFirst(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	seller := fixture.Seller(db)
	for round := range 2 {
		l := newLastSale(t, db)
		race := []func() error{
			func() error { _, err := seller.Sell(t.Context(), []job.Ref{l.order}, sale.WaitForCampaign); return err },
			func() error { _, err := seller.Cancel(t.Context(), []job.Ref{l.back}, forAll); return err },
		}
		locked, err := db.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := campaign.Lock(t.Context(), locked, l.campaignID); err != nil {
			t.Fatal(err)
		}
		var both sync.WaitGroup
		for i := range race {
			both.Go(func() {
				if err := race[(i+round)%2](); err != nil {
					t.Error(err)
				}
			})
			servers.AwaitBlocked(t, db, i+1)
		}
		if err := locked.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
		both.Wait()
		l.expect(t, db)
	}
	fixture.Sound(t, db)
}

func TestACancellationThatDiesBeforeItsCommitLeavesNothingHalf(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id, owner := fixture.Campaign(t, db, fixture.Draft(3)), uuid.NewString()
	bought := fixture.Buy(t, db, id, owner, 0, 2)
	ref := fixture.Accept(t, db, fixture.CancelRequest(t, id, bought))[0]
	seller := fixture.Seller(db)
	func() {
		defer func() { _ = recover() }()
		defer failpoint.Set("cancellation.commit", owner, func() { panic(errDies) })()
		_, _ = seller.Cancel(t.Context(), []job.Ref{ref}, forAll)
		t.Error("it lived")
	}()
	if p, err := purchase.Get(t.Context(), db, access.Everything(), bought); err != nil || p.State != purchase.Completed || sold(t, db, id) != 2 || fixture.Job(t, db, ref.ID).State != job.Queued {
		t.Errorf("after the death: %+v, %v", p, err)
	}
	fixture.Sound(t, db)
	finalize(t, seller, ref)
	fixture.Sound(t, db)
}

// Every person of a crowd buys and gives back, twice, on one campaign, round after
// round. There is enough for all, so that the count of every outcome is known.
func TestCrowdsOfPurchasesAndCancellationsNeverDeadlockAndEndSound(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	draft, limit := fixture.Draft(8), 6 // two persons are one user: they have up to 4 at a time
	draft.PurchaseLimit = &limit
	id := fixture.Campaign(t, db, draft)
	seller := fixture.Seller(db)
	const persons, rounds = 12, 5
	var crowd sync.WaitGroup
	for person := range persons {
		crowd.Go(func() {
			for round := range rounds {
				ref := fixture.Accept(t, db, fixture.PurchaseRequest(t, id, fmt.Sprint(person%6), 0, 1+round%2))[0]
				if _, err := seller.Sell(t.Context(), []job.Ref{ref}, sale.WaitForCampaign); err != nil {
					t.Errorf("purchase: %v", err)
					return
				}
				bought := fixture.Job(t, db, ref.ID)
				if bought.State != job.Succeeded {
					t.Errorf("purchase: %+v", bought.Problem)
					return
				}
				purchaseID := resultOf(t, bought).PurchaseID
				backs := fixture.Accept(t, db, fixture.CancelRequest(t, id, purchaseID), fixture.CancelRequest(t, id, purchaseID))
				if round%2 == 0 {
					finalize(t, seller, backs...)
				} else {
					finalize(t, seller, backs[0])
					finalize(t, seller, backs[1])
				}
				if first := fixture.Job(t, db, backs[0].ID); first.State != job.Succeeded {
					t.Errorf("the first cancellation: %+v", first.Problem)
				}
				refused(t, "the second cancellation", fixture.Job(t, db, backs[1].ID), "cancelled already")
			}
		})
	}
	crowd.Wait()
	if n := purchases(t, db, id); n != persons*rounds || sold(t, db, id) != 0 {
		t.Errorf("%d purchases, and %d positions are sold", n, sold(t, db, id))
	}
	fixture.Sound(t, db)
}
